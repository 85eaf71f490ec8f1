"""`AsyncReasoningGym`: problems and scores from worker processes that start at first use."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError, GenerationError, PoolClosedError
from ..problems.sets import first_made
from ..problems.stream import question_hash, reserving
from ..problems.training import TrainingProblems
from ..records import SOLVED_SCORE, Problem, Recipe, Status
from ..sandbox.pool import PoolSettings, TaskPool, default_processes
from ..sandbox.processes import StartWorker
from ..scoring.grading import verify_texts
from ..storage.rows import recipe_key
from ..tasks.catalogue import known_categories, require_known
from ..tasks.ladders import TaskLadder
from .checks import Scorable, checked, require_split, seed_of
from .stream import AsyncProblemStream, StreamOptions, problem_settings
from .values import Score, TaskSummary

if TYPE_CHECKING:
    from typing_extensions import Unpack

REMEMBERED = 1024
"""So many problems made from recipes are kept for the next score."""

AHEAD = 32
"""So many problems of a stream are made before they are asked for."""


class AsyncReasoningGym:
    """Makes problems of reasoning-gym and scores completions, in contained worker processes.

    Workers start at first use; they end with `close`, at the end of `async with`, and with this
    process, however it ends. Calls may run side by side, in one event loop.

    Args:
        processes: generators, and as many verifier hosts; half the cores where None.
        answer_tolerance: whether form around an answer (bold, a box, a full stop) is taken off
            where that makes it right.
        solved_threshold: score from which an answer is solved.
        generation_timeout: seconds for one problem.
        verify_timeout: seconds for one answer.
        verify_group_timeout: seconds for all answers to one problem.
        start_worker: where worker processes come from, if not from its own.

    Attributes:
        counts: items that could not be made, workers that were replaced, and the like.

    Example:
        async with AsyncReasoningGym() as gym:
            [problem] = await gym.problems("chain_sum", level=3)
            scored = await gym.score(problem, "<think>…</think><answer>42</answer>")
    """

    def __init__(
        self,
        *,
        processes: int | None = None,
        answer_tolerance: bool = False,
        solved_threshold: float = SOLVED_SCORE,
        generation_timeout: float = 10.0,
        verify_timeout: float = 5.0,
        verify_group_timeout: float = 120.0,
        start_worker: StartWorker | None = None,
    ) -> None:
        self._settings = PoolSettings(
            processes=default_processes() if processes is None else processes,
            generation_timeout=generation_timeout,
            verify_timeout=verify_timeout,
            verify_group_timeout=verify_group_timeout,
            solved_threshold=solved_threshold,
        )
        self._answer_tolerance = answer_tolerance
        self._start_worker = start_worker
        self._starting = asyncio.Lock()
        self._pool: TaskPool | None = None
        self._closed = False
        self._ladders: Mapping[str, TaskLadder] = {}
        self._remembered: dict[str, asyncio.Task[Problem]] = {}
        self.counts: Counter[str] = Counter()

    async def __aenter__(self) -> AsyncReasoningGym:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all worker processes. May be called again; no other call works after it."""
        self._closed = True
        async with self._starting:
            if self._pool is not None:
                await self._pool.close()

    async def start(self) -> None:
        """Start the worker processes now; raises WorkerStartError where one does not come up."""
        await self._workers()

    @property
    def ready(self) -> bool:
        """Whether worker processes of both kinds run."""
        return self._pool is not None and self._pool.ready

    async def _workers(self) -> TaskPool:
        """The task pool, started at first use; what did not come up is tried again."""
        async with self._starting:
            if self._closed:
                raise PoolClosedError("this gym is closed; make another")
            if self._pool is None:
                pool = TaskPool(self._settings, self.counts, start_worker=self._start_worker)
                await pool.start()
                self._pool = pool
            return self._pool

    async def _known_ladders(self) -> Mapping[str, TaskLadder]:
        if not self._ladders:
            self._ladders = await (await self._workers()).ladders()
        return self._ladders

    async def tasks(self) -> list[TaskSummary]:
        """List the tasks by name."""
        categories = known_categories()
        return [
            TaskSummary(name=task, category=categories.get(task, ""), levels=len(ladder.levels))
            for task, ladder in sorted((await self._known_ladders()).items())
        ]

    async def problems(
        self,
        task: str,
        *,
        level: int | None = None,
        count: int = 1,
        seed: int = 0,
        parameters: Mapping[str, Any] | None = None,
        split: str = "train",
    ) -> list[Problem]:
        """Make `count` problems of a task: the same for the same arguments.

        Args:
            level: on the task's ladder, 0 is the easiest; None is the library's default.
            parameters: of the task's dataset; they win over those of the level.
            split: "train" or "eval"; the two have no seed in common.

        Raises:
            UnknownTaskError: there is no such task.
            ConfigurationError: there is no such level or split, or no item can be made.
        """
        require_split(split)
        require_known([task], await self._known_ladders(), "task", what="task")
        at_level = {} if level is None else await self._level(task, level)
        recipes = (
            Recipe(
                task=task,
                seed=seed_of(split, seed, task, index),
                level=level,
                parameters={**at_level, **(parameters or {})},
            )
            for index in itertools.count()
        )
        return await first_made(await self._workers(), recipes, count)

    async def _level(self, task: str, level: int) -> Mapping[str, Any]:
        levels = (await self._known_ladders())[task].levels
        if not 0 <= level < len(levels):
            raise ConfigurationError(
                f"{task} has no level {level}: its levels go from 0 to {len(levels) - 1}"
            )
        return levels[level]

    async def problem(self, recipe: Recipe | Mapping[str, Any]) -> Problem:
        """Make the problem of a recipe, from a stored row or another process.

        Raises:
            ConfigurationError: it is no sound recipe.
            GenerationError: its problem can't be made.
        """
        recipe = checked(recipe)
        pool = await self._workers()
        key = recipe_key(recipe)
        task = self._remembered.pop(key, None)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = asyncio.create_task(pool.generate(recipe))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._remembered[key] = task  # the newest is last
        if len(self._remembered) > REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        return await asyncio.shield(task)

    async def score(self, problem: Scorable, completion: str) -> Score:
        """Score one completion; see `score_many`."""
        [score] = await self.score_many([(problem, completion)])
        return score

    async def score_many(self, pairs: Iterable[tuple[Scorable, str]]) -> list[Score]:
        """Score completions side by side, and give the scores in their order.

        A completion's answer is the one `<answer>…</answer>` outside of its thought. Problems are
        this process's own: what comes from outside is a recipe.

        Raises:
            ConfigurationError: what should be a recipe is none; nothing is scored then.
        """
        by_problem: dict[str, list[int]] = {}
        known: dict[str, Problem | Recipe] = {}
        texts: list[str] = []
        for index, (scorable, text) in enumerate(pairs):
            which = scorable if isinstance(scorable, Problem) else checked(scorable)
            key = recipe_key(which.recipe if isinstance(which, Problem) else which)
            known.setdefault(key, which)
            by_problem.setdefault(key, []).append(index)
            texts.append(text)
        groups = by_problem.values()
        scored = await asyncio.gather(
            *(
                self._score_group(known[key], [texts[index] for index in indices])
                for key, indices in by_problem.items()
            )
        )
        placed = {
            index: score
            for indices, scores in zip(groups, scored, strict=True)
            for index, score in zip(indices, scores, strict=True)
        }
        return [placed[index] for index in range(len(texts))]

    async def _score_group(self, which: Problem | Recipe, texts: Sequence[str]) -> list[Score]:
        try:
            problem = which if isinstance(which, Problem) else await self.problem(which)
        except GenerationError as error:
            return [Score(score=None, status=Status.UNSCORED, detail=str(error))] * len(texts)
        found = await verify_texts(
            problem, texts, await self._workers(), answer_tolerance=self._answer_tolerance
        )
        return [
            Score(
                score=verdict.score,
                status=verdict.status,
                answer=answer,
                detail=verdict.detail,
                seconds=verdict.seconds,
            )
            for answer, verdict in found
        ]

    async def stream(
        self, tasks: Sequence[str] = (), **options: Unpack[StreamOptions]
    ) -> AsyncProblemStream:
        """Begin a stream of training problems.

        Args:
            tasks: tasks and categories; empty means all.

        Raises:
            ConfigurationError: an option can't work; the message names it.
        """
        settings = problem_settings(tasks, options)
        problems = TrainingProblems(settings, await self._workers(), self.counts)
        await problems.prepare(with_ladders=False)
        problems.start_stream(
            options.get("replica", ""),
            ahead=AHEAD,
            reserved=reserving({question_hash(q) for q in options.get("reserved", ())}),
        )
        return AsyncProblemStream(problems)
