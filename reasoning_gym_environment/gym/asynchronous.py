"""`AsyncReasoningGym`: problems, scores and streams, from worker processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NoReturn
from weakref import WeakSet

from pydantic import BeforeValidator, Field
from typing_extensions import Unpack

from ..errors import ConfigurationError, GenerationError, PoolClosedError
from ..problems.cache import ProblemCache
from ..problems.levels import require_difficulty_where_fixed
from ..problems.options import Integer, StreamKeywords, StreamOptions
from ..problems.seeds import EVAL_SEED, evaluation_recipe
from ..problems.sets import (
    make_evaluation_problems,
    make_problems,
    training_recipes,
)
from ..problems.split import ReservedQuestions, Split, SplitProblems
from ..problems.training import TrainingProblems
from ..records import Problem, Recipe, Score, Status, recipe_key
from ..sandbox.pool import PoolSettings, TaskPool, default_processes
from ..sandbox.worker_groups import StartWorker
from ..scoring.extraction import AnswerFormat
from ..scoring.grading import ANY_FORM_IS_PAID, verify_texts
from ..tasks.catalogue import UnknownTaskError, require_known
from ..tasks.ladders import TaskLadder
from ..tasks.modules import find_modules
from ..util.command_line import build
from ..util.values import shorten
from .arguments import (
    AS_DICT,
    AS_LIST,
    AnyScorable,
    Count,
    GroupSize,
    Level,
    Modules,
    Number,
    Processes,
    Scorable,
    ScoringPair,
    Seconds,
    Text,
    checked,
    shows_stream_options,
    to_recipe,
    to_scorable,
)
from .background import LazyPool
from .streams import AsyncProblemStream, fed_streams

logger = logging.getLogger(__name__)

PREFETCH = 32
"""Problems that a stream makes ahead of demand: a trainer asks for a batch of prompts at once, and
while some items take seconds, most take milliseconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSummary:
    """A task of the library. Its levels go from 0, the easiest, to `levels - 1`."""

    name: str
    category: str
    levels: int


def _recipe_of(which: Problem | Recipe) -> Recipe:
    return which.recipe if isinstance(which, Problem) else which


def _by_problem(
    scorables: Sequence[Scorable],
) -> list[tuple[Problem | Recipe, list[int]]]:
    """Return each problem or recipe to score against, and the indices of its completions."""
    groups: dict[Hashable, tuple[Problem | Recipe, list[int]]] = {}
    previous = object()
    indices = list[int]()
    for index, scorable in enumerate(scorables):
        if scorable is not previous:  # the key takes as long as the rest
            which = to_scorable(scorable)
            previous = scorable
            key: Hashable = recipe_key(_recipe_of(which))
            if isinstance(which, Problem):
                key = key, which.oracle, which.entry
            _, indices = groups.setdefault(key, (which, []))
        indices.append(index)
    return list(groups.values())


def _one_task(value: Any) -> Any:
    if isinstance(value, list):
        raise ValueError(
            f"must be one task, got {shorten(value)}: call it for each, or start a stream"
        )
    return value


class AsyncReasoningGym:
    """A client for reasoning-gym's problems and verifiers, which run in sandboxed processes.

    Worker processes start at first use. They end with `close`, at the end of `async with`, with
    the event loop, when nothing refers to the gym, and with this process, however it ends. Calls
    may run concurrently in one event loop. An invalid argument raises ConfigurationError; a closed
    gym and another event loop raise PoolClosedError.

    Args:
        processes: number of generators, and of verifier hosts; by default half the cores.
        solved_threshold: score from which an answer is solved; None is each task's own: full credit
            but where less is right.
        answer_format: where a completion has its answer: between "tags", "boxed" or, in
            "tags-or-boxed", in a box where no tag opens; see docs/scoring.md.
        skip_faulty_items: whether to draw again where an item's label is known to be false, or its
            question to have no answer; in evaluation, several answers too.
        generation_timeout: seconds that a process may work or wait for one problem; at least 60
            for an evaluation item.
        verify_timeout: the same for one answer.
        require_containment: whether to refuse to start where the sandbox is incomplete.
        task_modules: modules with tasks of your own, by importable name or path.
        task_environment: names of environment variables that these modules see.
        start_worker: starts a worker process of the library, in place of the default.
        answer_tolerance: has no effect; logged where it is set.

    Attributes:
        answer_format: as given.
        counts: skipped items, restarted workers and similar events.

    Example:
        async with AsyncReasoningGym() as gym:
            [problem] = await gym.problems("chain_sum", level=3)
            scored = await gym.score(problem, "<think>…</think><answer>42</answer>")
    """

    @checked
    def __init__(
        self,
        *,
        processes: Processes = None,
        solved_threshold: Annotated[Number | None, Field(gt=0, le=1)] = None,
        answer_format: AnswerFormat = "tags",
        skip_faulty_items: bool = True,
        generation_timeout: Seconds = 10.0,
        verify_timeout: Seconds = 5.0,
        require_containment: bool = False,
        task_modules: Modules = (),
        task_environment: Annotated[Iterable[str], AS_LIST] = (),
        start_worker: StartWorker | None = None,
        answer_tolerance: bool | None = None,
    ) -> None:
        if answer_tolerance is not None:
            logger.warning("answer_tolerance has no effect: %s", ANY_FORM_IS_PAID)
        self._settings = PoolSettings(
            processes=processes or default_processes(),
            generation_timeout=generation_timeout,
            verify_timeout=verify_timeout,
            solved_threshold=solved_threshold,
            answer_format=answer_format,
            require_containment=require_containment,
            modules=find_modules(list(task_modules)),
            task_environment=list(task_environment),
        )
        self._skip_faulty_items = skip_faulty_items
        self._loop: asyncio.AbstractEventLoop | None = None
        create = partial(TaskPool, self._settings, start_worker=start_worker)
        self._pool: LazyPool[TaskPool] = LazyPool(create, name="gym")
        self._ladders: Mapping[str, TaskLadder] = {}
        self._remembered = ProblemCache()
        self._fed = WeakSet[AsyncProblemStream]()
        self._split: SplitProblems | None = None
        self.answer_format = answer_format
        self.counts = self._pool.counts

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an AsyncReasoningGym belongs to its event loop: pickle a ReasoningGym, or create one "
            "in each process"
        )

    async def __aenter__(self) -> AsyncReasoningGym:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop all worker processes. Safe to call again; other calls then fail."""
        await self._pool.close()

    async def start(self) -> None:
        """Start the worker processes now; raise WorkerStartError if one fails to start."""
        await self._workers()

    @property
    def ready(self) -> bool:
        """Whether worker processes of both kinds are running."""
        return self._pool.pool is not None and self._pool.pool.ready

    @property
    def missing_protections(self) -> list[str]:
        """What the sandbox does not enforce on this system; empty before the start as well."""
        return self._pool.missing_protections

    def require_own_loop(self) -> None:
        """Raise PoolClosedError in another event loop than that of the first call."""
        running = asyncio.get_running_loop()
        self._loop = self._loop or running
        if self._loop is not running:
            raise PoolClosedError(
                "this gym belongs to another event loop; create one in each event loop, or use "
                "ReasoningGym, which works in all"
            )

    async def _workers(self) -> TaskPool:
        """Return the task pool; start it at first use, or again if it failed to start."""
        self.require_own_loop()
        return await self._pool.start()

    async def _split_problems(self) -> SplitProblems:
        """Return what makes problems on their side; it remembers which levels have few."""
        pool = await self._workers()
        self._split = self._split or SplitProblems.of_pool(
            pool, self.counts, skip_faulty_items=self._skip_faulty_items
        )
        return self._split

    async def _known_ladders(self) -> Mapping[str, TaskLadder]:
        if not self._ladders:
            self._ladders = await (await self._workers()).ladders()
        return self._ladders

    async def modules(self) -> dict[str, str]:
        """Return the digest of each module with tasks of your own, by its name."""
        return (await self._workers()).versions

    async def tasks(self) -> list[TaskSummary]:
        """List the tasks by name."""
        categories = (await self._workers()).categories
        return [
            TaskSummary(
                name=task, category=categories.get(task, ""), levels=len(ladder.levels)
            )
            for task, ladder in sorted((await self._known_ladders()).items())
        ]

    @checked
    async def problems(
        self,
        task: Annotated[str, BeforeValidator(_one_task)],
        *,
        level: Level = None,
        count: Count = 1,
        seed: Integer | None = None,
        parameters: Annotated[Mapping[str, Any], AS_DICT] | None = None,
        split: Split = "train",
    ) -> list[Problem]:
        """Make `count` problems of a task, always the same for the same arguments.

        Args:
            level: on the task's ladder, where 0 is the easiest; None is the library's default.
            parameters: of the task's dataset; they override those of the level.
            seed: None is 0 in "train", and `evaluate`'s own eval_seed in "eval".
            split: "train" or "eval", which share no question but of levels that have few. "eval"
                has the items that `evaluate` asks with `seed` as its eval_seed: no question twice,
                and fewer than `count` where the level has fewer.

        Raises:
            UnknownTaskError: there is no such task.
        """
        ladders = await self._known_ladders()
        pool = await self._workers()
        for module in pool.modules.values():
            if task in module.failures:
                raise ConfigurationError(f"task: {task} {module.failures[task]}")
        tasks = [name for name, category in pool.categories.items() if category == task]
        if tasks and task not in ladders:
            raise UnknownTaskError(
                f"task: {task!r} is a category: name one of its tasks, such as {tasks[0]}, or "
                "start a stream"
            )
        require_known([task], ladders, "task", what="task")
        levels = ladders[task].levels
        if level is not None and level >= len(levels):
            raise ConfigurationError(
                f"level of {task} must be from 0 to {len(levels) - 1}, got {level}"
            )
        at_level = {} if level is None else levels[level]
        own = {**at_level, **(parameters or {})}
        generate = (await self._split_problems()).make
        if split == "eval":
            eval_seed = EVAL_SEED if seed is None else seed
            items = [
                evaluation_recipe(eval_seed, task, number, level, own)
                for number in range(count)
            ]
            return await make_evaluation_problems(generate, items)
        recipes = training_recipes(seed or 0, task, level, own)
        return await make_problems(generate, recipes, count)

    async def problem(
        self, recipe: Recipe | Mapping[str, Any], *, split: Split | None = None
    ) -> Problem:
        """Make the problem of a recipe, from a stored row or another process; also a faulty one.

        Args:
            split: with "train" or "eval", another one if it is faulty or belongs to the other
                side; for recipes that weren't drawn by this package.

        Raises:
            GenerationError: it can't be made.
        """
        if split is not None:
            split_problems = await self._split_problems()
            return await split_problems.make(to_recipe(recipe), split=split)
        return await self._remembered.get(
            (await self._workers()).generate, to_recipe(recipe)
        )

    @checked
    async def score(self, problem: AnyScorable, completion: Text) -> Score:
        """Score one completion; see `score_many`."""
        [score] = await self.score_many([(problem, completion)])
        return score

    @checked
    async def score_many(
        self,
        pairs: Annotated[Iterable[ScoringPair], AS_LIST],
        *,
        group_size: GroupSize = None,
    ) -> list[Score]:
        """Score completions concurrently, and return the scores in the same order.

        A completion's answer is the one `<answer>…</answer>` outside its thought, but for another
        `answer_format`. Pass only problems that this process made; pass recipes from other
        sources. The streams of this gym
        that handed out the problem learn the result. If a pair is invalid, nothing is scored.

        Args:
            group_size: completions that the trainer gives each problem, here or in other calls.
                Streams take it unless they have one.

        Raises:
            ConfigurationError: an argument is invalid, or a stream that learns from these scores
                has no group size, or another one.
        """
        pair_list = list(pairs)
        groups = _by_problem([scorable for scorable, _ in pair_list])
        for which, _ in groups:
            for stream in list(self._fed):
                stream.require_group_size(_recipe_of(which), group_size)
        texts = [text for _, text in pair_list]
        placed: dict[int, Score] = {}

        async def score_and_tell(
            which: Problem | Recipe, indices: Sequence[int]
        ) -> None:
            scores = await self.score_group(which, [texts[index] for index in indices])
            placed.update(zip(indices, scores, strict=True))
            recipe = _recipe_of(which)
            for stream in fed_streams():
                if stream in self._fed:
                    stream.report_scores(recipe, scores)
                else:
                    stream.note_other_gym(recipe)

        await asyncio.gather(*(score_and_tell(*group) for group in groups))
        return [placed[index] for index in range(len(texts))]

    @checked
    async def score_group(
        self,
        problem: AnyScorable,
        completions: Annotated[Sequence[Text], AS_LIST],
    ) -> list[Score]:
        """Score completions of one problem as `score_many` does, but tell no stream."""
        which = to_scorable(problem)
        try:
            made = which if isinstance(which, Problem) else await self.problem(which)
        except GenerationError as error:
            return [Score(score=None, status=Status.UNSCORED, detail=str(error))] * len(
                completions
            )
        judged = await verify_texts(
            made,
            completions,
            await self._workers(),
            any_form=self._settings.solved_threshold is None,
            answer_format=self.answer_format,
        )
        return [Score.of(verdict, answer) for answer, verdict in judged]

    @shows_stream_options
    async def stream(
        self, tasks: Sequence[str] = (), **options: Unpack[StreamKeywords]
    ) -> AsyncProblemStream:
        """Start a stream of training problems, which learns from the scores of this gym.

        Args:
            tasks: tasks and categories; empty means all.
            options: the other fields of `StreamOptions`.
        """
        stream = await self.open_stream(
            build(StreamOptions, {"tasks": tasks, **options})
        )
        self._fed.add(stream)
        stream.feed()
        return stream

    async def open_stream(self, options: StreamOptions) -> AsyncProblemStream:
        """Start a stream that learns from `report_scores` and `observe` alone: see `stream`."""
        require_difficulty_where_fixed(options.complexity_mode, options.difficulty)
        problems = TrainingProblems(
            options,
            await self._workers(),
            self.counts,
            tasks=options.tasks,
            seed=options.seed,
            split=await self._split_problems(),
            group_size=options.group_size,
        )
        await problems.prepare(with_ladders=False)
        problems.start_stream(
            options.replica,
            prefetch=PREFETCH,
            reserved=ReservedQuestions(options.reserved),
        )
        return AsyncProblemStream(
            problems, options, require_own_loop=self.require_own_loop
        )
