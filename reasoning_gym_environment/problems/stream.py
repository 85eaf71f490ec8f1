"""Problems made from recipes: the endless stream of training, and sets of a fixed size.

Both skip items that can't be made, and questions of the evaluation set (decontamination).
`TrainingProblems` holds a run's tasks, validated at the start, and its one stream.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import math
import sys
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from statistics import median_low
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from ..errors import ConfigurationError, GenerationError, GenerationTimeoutError, did_you_mean
from ..records import FaultKind, GroupResult, Ladder, Problem, Recipe, recipe_key
from ..sandbox.pool import MAX_TIMEOUTS, Generate, TaskPool
from ..tasks.catalogue import proven_tasks, require_known, select_tasks, task_weights
from ..tasks.facts import DISGUISES_ITS_ANSWER
from ..tasks.ladders import TaskLadder
from ..tasks.recipes import read_recipe
from ..util.concurrency import gather_or_cancel
from ..util.values import shorten, validate
from .levels import Count, Curriculum, DefaultLevels, FixedLevels, LevelPolicy, RandomLevels
from .options import TaskOptions
from .sampler import Sampler, SamplerState, count_group, evaluation_seed, redrawn_seed, split_seed

logger = logging.getLogger(__name__)
PROBLEM_LOGGER = logging.getLogger(f"{__name__}.problems")
"""For a line per problem; the commands show them only under debug_logging."""

MAX_SKIPPED = 1000
"""Give up after this many items in a row that are faulty, can't be made or are excluded."""

MAX_FAILED = 20
"""Give up if this many items can't be made before any other."""

ExcludedQuestions = Callable[[str], Awaitable[Collection[bytes]]]
"""Returns the hashes of a task's questions and answers that training must not see."""


def question_hash(question: str) -> bytes:
    """Return a hash of a question or answer, to compare them by."""
    return hashlib.blake2b(question.encode(), digest_size=16).digest()


def held_out_hashes(task: str, question: str, oracle: str | None) -> frozenset[bytes]:
    """Return the hash of an item's question; and of its answer, where that is the same item."""
    disguised = oracle if task in DISGUISES_ITS_ANSWER else None
    return frozenset(question_hash(text) for text in (question, disguised) if text is not None)


def _is_held_out(problem: Problem, excluded: Collection[bytes]) -> bool:
    own = held_out_hashes(problem.recipe.task, problem.question, problem.oracle)
    return not own.isdisjoint(excluded)


def fixed_exclusions(hashes: Collection[bytes]) -> ExcludedQuestions:
    """Exclude the same questions for every task."""

    async def of_task(_: str) -> Collection[bytes]:
        return hashes

    return of_task


def is_skipped(problem: Problem) -> bool:
    """Return whether a problem is faulty; in training, one with several answers is not."""
    if problem.fault is None:
        return False
    return problem.recipe.is_evaluation or problem.fault.kind is not FaultKind.AMBIGUOUS


def skip_faulty(generate: Generate, counts: Counter[str], *, skip: bool = True) -> Generate:
    """Return what makes problems, and if `skip` is set, draws again where an item is faulty.

    The new seed depends on the old one alone, so a set stays the same whatever its size. Too many
    faulty items in a row are a GenerationError.

    Args:
        counts: counts the faulty items, in all and by task.
    """

    async def make(recipe: Recipe) -> Problem:
        for _ in range(MAX_SKIPPED):
            problem = await generate(recipe)
            if not is_skipped(problem):
                return problem
            counts["sampling/faulty_items_redrawn"] += 1
            counts[f"sampling/faulty_items_redrawn/{recipe.task}"] += 1
            recipe = replace(recipe, seed=redrawn_seed(recipe.seed))
        raise GenerationError(
            f"{recipe.task}: {MAX_SKIPPED} items in a row are faulty: choose another level, or "
            "set skip_faulty_items to false"
        )

    return make if skip else generate


class ProblemCache:
    """The latest problems of recipes: concurrent and later callers share one problem.

    Args:
        most: bytes of the problems that are kept.
    """

    def __init__(self, *, most: int = 64 * 2**20) -> None:
        self._most = most
        self._bytes = 0
        self._making: dict[str, asyncio.Task[Problem]] = {}
        self._kept: dict[str, Problem] = {}  # the last used is last

    async def get(self, generate: Callable[[Recipe], Any], recipe: Recipe) -> Problem:
        """Make the problem of a recipe unless it is kept; raise GenerationError as `generate`."""
        key = recipe_key(recipe)
        if key in self._kept:
            problem = self._kept[key] = self._kept.pop(key)
            return problem
        if key not in self._making:
            self._making[key] = asyncio.create_task(generate(recipe))
            self._making[key].add_done_callback(partial(self._keep, key))
        return await asyncio.shield(self._making[key])

    def _keep(self, key: str, made: asyncio.Task[Problem]) -> None:
        """Keep a problem that could be made, and forget the oldest beyond the limit."""
        del self._making[key]
        if made.cancelled() or made.exception():
            return
        self._kept[key] = made.result()
        self._bytes += _kept_bytes(key, made.result())
        while self._bytes > self._most:
            oldest = next(iter(self._kept))
            self._bytes -= _kept_bytes(oldest, self._kept.pop(oldest))


def _kept_bytes(key: str, problem: Problem) -> int:
    """Estimate the memory of a problem with its key, twice for its parameters, and of objects."""
    return 4096 + sum(
        map(sys.getsizeof, (key, key, problem.question, problem.oracle, problem.entry))
    )


class RecipeStream:
    """A stream of problems in the order in which the sampler draws their recipes.

    Args:
        prefetch: the number of problems to make ahead of demand.
        excluded: called for each recipe's task, while its problem is made.
        counts: counts the skipped evaluation questions.
    """

    def __init__(
        self,
        sampler: Sampler,
        generate: Generate,
        *,
        prefetch: int,
        excluded: ExcludedQuestions,
        counts: Counter[str],
    ) -> None:
        self._sampler = sampler
        self._generate = generate
        self._prefetch = prefetch
        self._excluded = excluded
        self._counts = counts
        self._failed = 0.0  # below 0 once an item has been made
        self._resumed: deque[Recipe] = deque()
        self._pending: deque[tuple[Recipe, asyncio.Task[Problem | None]]] = deque()

    async def make(self, recipe: Recipe) -> Problem | None:
        """Make a problem, or raise GenerationError; return None if its question is excluded."""
        problem, excluded = await asyncio.gather(
            self._generate(recipe), self._excluded(recipe.task)
        )
        return None if _is_held_out(problem, excluded) else problem

    def fill(self) -> None:
        """Start to make problems until `prefetch` are pending: of restored recipes, then new."""
        while len(self._pending) < self._prefetch:
            recipe = self._resumed.popleft() if self._resumed else self._sampler.next_recipe()
            task = asyncio.create_task(self.make(recipe))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._pending.append((recipe, task))

    async def next_problem(self) -> Problem:
        """Return the next problem in order.

        Raises:
            GenerationError: none of the first items could be made, or too many in a row were
                skipped.
            PoolClosedError: the pool is closed.
        """
        last = ""
        for _ in range(MAX_SKIPPED):
            self.fill()
            task = self._pending[0][1]
            failed = False
            try:
                problem = await asyncio.shield(task)
            except GenerationError as error:
                logger.warning("Skipping an item that can't be generated: %s", error)
                failed = True
                problem = None
                last = f"; the last error: {error}"
            # A caller that was cancelled above leaves the item to the next caller, and a
            # concurrent caller may have taken it.
            if not self._pending or self._pending[0][1] is not task:
                continue
            self._pending.popleft()
            self._failed += 1 if failed else -math.inf
            if self._failed == MAX_FAILED:
                raise GenerationError(f"none of the first {MAX_FAILED} items can be made{last}")
            if problem is not None:
                self.fill()
                return problem
            if not failed:
                self._counts["sampling/evaluation_questions_redrawn"] += 1
        raise GenerationError(
            f"{MAX_SKIPPED} items in a row could not be generated or are in the evaluation set: "
            f"use fewer evaluation items, or levels with more questions{last}"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the sampler's state and the pending recipes as JSON."""
        recipes = [*(recipe for recipe, _ in self._pending), *self._resumed]
        ahead = [recipe.to_json() for recipe in recipes]
        return {"sampler": self._sampler.state_dict(), "ahead": ahead}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue another stream exactly, and drop this one's pending problems."""
        self._sampler.load_state_dict(state["sampler"])
        self.cancel()
        self._resumed.extend(Recipe.from_json(recipe) for recipe in state["ahead"])

    def cancel(self) -> None:
        """Drop all pending problems."""
        self._resumed.clear()
        while self._pending:
            self._pending.popleft()[1].cancel()


def set_recipes(
    split: str,
    run_seed: int,
    task: str,
    level: int | None,
    parameters: Mapping[str, Any],
) -> Iterator[Recipe]:
    """Yield a task's recipes for a set of "train" or "eval", without end."""
    for index in itertools.count():
        seed = split_seed(split, run_seed, task, index)
        yield Recipe(task=task, seed=seed, level=level, parameters=parameters)


async def make_problems(
    generate: Generate,
    recipes: Iterator[Recipe],
    count: int,
    *,
    excluded: Collection[bytes] = (),
    on_excluded: Callable[[], None] = lambda: None,
    on_made: Callable[[], None] = lambda: None,
) -> list[Problem]:
    """Make the first `count` problems that can be made and are not excluded, in order.

    Args:
        excluded: the `held_out_hashes` of the evaluation set.
        on_excluded, on_made: called once for each problem.

    Raises:
        ConfigurationError: too many items in a row can't be made, or are excluded.
    """

    async def make(recipe: Recipe) -> Problem | GenerationError | None:
        try:
            problem = await generate(recipe)
        except GenerationError as error:
            return error
        if _is_held_out(problem, excluded):
            on_excluded()
            return None
        on_made()
        return problem

    made: list[Problem] = []
    failed = refused = 0  # in a row
    while len(made) < count:
        batch = list(itertools.islice(recipes, count - len(made)))
        for recipe, tried in zip(batch, await asyncio.gather(*map(make, batch)), strict=True):
            if isinstance(tried, Problem):
                made.append(tried)
                failed = refused = 0
            elif tried is None:
                refused += 1
                if refused == MAX_SKIPPED:
                    raise ConfigurationError(
                        f"{refused} items in a row can't be made: {recipe.task}: the question, or "
                        "the text that it disguises, is in the evaluation set: use fewer "
                        "evaluation items, or levels with more questions"
                    )
            else:
                failed += 1
                if failed == MAX_FAILED:
                    raise ConfigurationError(f"{failed} items in a row can't be made: {tried}")
    return made


MAX_AWAITED = 4096
"""Problems that may await their first result; beyond that the oldest is forgotten."""

MAX_PARTIAL = 1024
"""Groups that may be partly scored; beyond that the one without news for longest is closed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The tasks that a run uses.

    Attributes:
        categories: category by task.
        weights: relative weight by task.
        ladders: by task; empty unless requested or needed.
        levels: chooses the level of each problem.
    """

    categories: Mapping[str, str]
    weights: Mapping[str, float]
    ladders: Mapping[str, Ladder]
    levels: LevelPolicy


async def select(
    pool: TaskPool,
    options: TaskOptions,
    *,
    tasks: Sequence[str],
    with_ladders: bool,
) -> Selection:
    """Discover the tasks and select those of the run, with their weights and levels.

    Args:
        tasks: tasks and categories to use; empty means all.
        with_ladders: whether to load the ladders even if training needs none.

    Raises:
        UnknownTaskError: a configured task does not exist.
        ConfigurationError: no task is left, a task of a user's makes no item, or one refuses its
            parameters.
    """
    discovery = await pool.discover(proven=proven_tasks())
    if discovery.warning:
        logger.warning("%s", discovery.warning)
    found = select_tasks(discovery, include=tasks, exclude=options.exclude_tasks)
    reasons = Counter(task.reason for task in found if not task.used)
    left_out = "".join(f"; {number} left out: {reason}" for reason, number in reasons.items())
    logger.info("%d of %d tasks are used%s", sum(t.used for t in found), len(found), left_out)
    weights = task_weights(found, options.task_weights)
    ladders: dict[str, Ladder] = {}
    drawn: dict[str, Ladder] = {}
    if options.complexity_mode or options.task_parameters or with_ladders:
        known = await pool.ladders()
        require_names(options.task_parameters, known)
        ladders = {task: known[task].levels for task in weights}
        if options.complexity_mode:
            drawn = {task: ladder for task, ladder in ladders.items() if weights[task] > 0}
        used = {t: values for t, values in options.task_parameters.items() if t in ladders}
        await require_values(pool.generate, used, drawn)
    hint = "fix it, or leave it out with exclude_tasks"
    await gather_or_cancel(
        _require_item(pool.generate, task, {}, f"{task}: it makes no item", hint)
        for task, weight in weights.items()
        if weight > 0 and pool.module_of(task) and task not in options.task_parameters
    )
    return Selection(
        categories={task.name: task.category for task in found if task.used},
        weights=weights,
        ladders=ladders,
        levels=_levels_of(options, drawn),
    )


def _levels_of(options: TaskOptions, ladders: Mapping[str, Ladder]) -> LevelPolicy:
    """Return the levels for the options' mode."""
    match options.complexity_mode:
        case "random":
            return RandomLevels(ladders)
        case "fixed":
            return FixedLevels(ladders, options.difficulty or 0.0)
        case "curriculum":
            return Curriculum(ladders, options.curriculum_target_accuracy)
        case None:
            return DefaultLevels()


def require_names(
    parameters: Mapping[str, Mapping[str, Any]], ladders: Mapping[str, TaskLadder]
) -> None:
    """Raise ConfigurationError if a task or parameter does not exist."""
    require_known(parameters, ladders, "task_parameters", what="task")
    for task, values in parameters.items():
        names = ladders[task].parameters
        for name in values:
            if name not in names:
                hint = did_you_mean(name, names, otherwise=f"it has {', '.join(names)}")
                raise ConfigurationError(
                    f"task_parameters: {task} has no parameter {name!r}; {hint}"
                )


async def require_values(
    generate: Generate, parameters: Mapping[str, Mapping[str, Any]], ladders: Mapping[str, Ladder]
) -> None:
    """Try the parameters: make an item of each task at each of its levels.

    Args:
        ladders: the levels in use; other tasks are tried at the library's default.

    Raises:
        ConfigurationError: a task refuses its parameters.
    """
    for task, values in parameters.items():
        for number, level in enumerate(ladders.get(task, ({},))):
            at = f" at its level {number} ({dict(level)})" if task in ladders else ""
            said = f"task_parameters: no item of {task} with {dict(values)}{at}"
            hint = "levels set both ends of a range, so set both"
            await _require_item(generate, task, {**level, **values}, said, hint)


async def _require_item(
    generate: Generate,
    task: str,
    parameters: Mapping[str, Any],
    said: str,
    hint: str,
) -> None:
    error: GenerationError | None = None
    missed = 0
    for index in range(3):  # single items of some tasks fail
        recipe = Recipe(task=task, seed=evaluation_seed(0, task, index), parameters=parameters)
        try:
            await generate(recipe)
            return
        except GenerationError as raised:
            error = raised
            missed += isinstance(raised, GenerationTimeoutError)
            if missed == MAX_TIMEOUTS:
                break
    raise ConfigurationError(f"{said}: {error}; {hint}") from error


class StreamState(Struct):
    """The stored state of a run's stream; prompt_room rows are (task, level, fits, questions)."""

    sampler: SamplerState
    ahead: list[Any]
    prompt_room: list[tuple[str, Count, bool, Count]]
    max_token_length: Count | UnsetType = UNSET


def require_stream_state(state: Any) -> None:
    """Raise ValueError, with the value's path, for an invalid stream state, `ahead` aside."""
    sampler = validate(state, StreamState).sampler
    dated = [(f"signal of {shorten(task)}", since) for task, *_, since in sampler.signal]
    memory = sampler.memory
    dated += [(f"the level of {shorten(task)}", since) for task, *_, since in memory.levels]
    for recipe, _, _, _, _, since, *_ in (*memory.ready, *memory.awaited):
        dated.append((f"a problem of {read_recipe(recipe).task} in the memory", since))
    for what, since in dated:
        if since > sampler.draw:
            raise ValueError(f"{what} is from draw {since}, after the last, {sampler.draw}")


class TrainingProblems:
    """A run's stream of training problems, with its tasks and curriculum.

    Args:
        counts: counts the skipped problems.
        tasks: tasks and categories to use; empty means all.
        skip_faulty_items: whether to draw again where an item is known to be faulty.
        max_token_length: of prompt and completion; levels whose questions don't fit are left out.
            None if tokens are not counted.

    Attributes:
        selection: the run's tasks; empty before `prepare`.
        sampling: counts of the groups recorded so far, for `sampling_metrics`.
        step: the trainer's step; None if unknown.
        max_token_length: as given; a trainer may allow less.
        limit: what limits prompt and completion, for messages.
    """

    def __init__(
        self,
        options: TaskOptions,
        pool: TaskPool,
        counts: Counter[str],
        *,
        tasks: Sequence[str],
        seed: int,
        skip_faulty_items: bool,
        max_token_length: int | None = None,
    ) -> None:
        self._options = options
        self._tasks = tasks
        self._seed = seed
        self._skip_faulty_items = skip_faulty_items
        self.max_token_length = max_token_length
        self.limit = f"max_token_length {max_token_length}"
        self._pool = pool
        self._counts = counts
        self.selection = Selection(
            categories={},
            weights={},
            ladders={},
            levels=DefaultLevels(),
        )
        self.sampling: Counter[str] = Counter()
        self.step: int | None = None
        # By task, level and whether the question fits.
        self._questions: Counter[tuple[str, int, bool]] = Counter()
        self._sampler: Sampler | None = None
        self._stream: RecipeStream | None = None

    async def prepare(self, *, with_ladders: bool) -> None:
        """Select the tasks; see `select` for the argument and the errors."""
        self.selection = await select(
            self._pool,
            self._options,
            tasks=self._tasks,
            with_ladders=with_ladders,
        )

    def start_stream(self, replica: str, *, prefetch: int, excluded: ExcludedQuestions) -> None:
        """Start the training stream.

        Args:
            replica: this replica's name; others draw different problems.
            prefetch: the number of problems to make ahead of demand.
            excluded: returns the questions of a task that training must not see.
        """
        self._sampler = Sampler(
            self.selection.weights,
            run_seed=self._seed,
            replica=replica,
            levels=self.selection.levels,
            overrides=self._options.task_parameters,
            by_signal=self._options.sampling == "signal",
        )
        generate = skip_faulty(self._pool.generate, self._counts, skip=self._skip_faulty_items)
        self._stream = RecipeStream(
            self._sampler,
            generate,
            prefetch=prefetch,
            excluded=excluded,
            counts=self._counts,
        )

    @property
    def started(self) -> bool:
        return self._stream is not None

    def fill(self) -> None:
        """Start to make the stream's first problems."""
        assert self._stream is not None
        self._stream.fill()

    async def next(self, has_room: Callable[[Problem], Awaitable[bool]] | None = None) -> Problem:
        """Return the next training problem whose prompt leaves room for a completion.

        Args:
            has_room: whether a prompt does; None accepts all.

        Raises:
            ConfigurationError: too many prompts in a row leave none.
        """
        assert self._stream is not None
        tries = 0
        while tries < MAX_SKIPPED:
            problem = await self._stream.next_problem()
            recipe = problem.recipe
            if self._sampler and self._sampler.is_asked_again(recipe):
                problem = replace(problem, asked_again=True)
            fits = has_room is None or await has_room(problem)
            level = "default" if recipe.level is None else str(recipe.level)
            described = (recipe.task, recipe.seed, level)
            tries = 0 if self._cap_if_too_long(recipe, fits=fits) else tries + 1
            if fits:
                PROBLEM_LOGGER.info("Selected %s (seed %d, level %s)", *described)
                return problem
            self._counts["sampling/prompts_too_long"] += 1
            PROBLEM_LOGGER.info("Skipping %s (seed %d, level %s): prompt too long", *described)
        raise ConfigurationError(
            f"{self.limit} leaves no room after any of {MAX_SKIPPED} prompts: raise it, or shorten "
            "system_prompt"
        )

    async def make(
        self, recipe: Recipe, has_room: Callable[[Problem], Awaitable[bool]]
    ) -> Problem | None:
        """Make the problem of a recipe that another run chose.

        Returns:
            None if it can't be made, is in the evaluation set, or leaves no room for a completion.
        """
        assert self._stream is not None
        try:
            problem = await self._stream.make(recipe)
        except GenerationError as error:
            logger.warning("Skipping an item that can't be generated: %s", error)
            return None
        if problem is None or await has_room(problem):
            return problem
        self._counts["sampling/prompts_too_long"] += 1
        return None

    def _cap_if_too_long(self, recipe: Recipe, *, fits: bool) -> bool:
        """Cap the ladder below a level whose questions mostly don't fit; return whether it did."""
        assert self._sampler is not None
        task = recipe.task
        level = recipe.level
        if not level:
            return False
        self._questions[task, level, fits] += 1
        too_long = self._questions[task, level, False]
        if too_long < 5 or too_long <= self._questions[task, level, True]:
            return False
        if not self._sampler.cap(task, level - 1):
            return False
        logger.warning(
            "%s: capping the ladder below level %d, whose questions exceed %s",
            *(task, level, self.limit),
        )
        return True

    def group_finished(self, group: GroupResult) -> None:
        """Update levels and task sampling with a training group."""
        recipe = group.problem.recipe
        again = group.problem.asked_again
        self.report_result(
            recipe,
            solved=group.solved,
            scored=len(group.scored),
            asked_again=again,
        )

    def report_result(
        self,
        recipe: Recipe,
        *,
        solved: int,
        scored: int,
        asked_again: bool = False,
    ) -> None:
        """Update the curriculum and the sampler with a group: `solved` of its `scored` rollouts."""
        assert self._sampler is not None
        own = self._sampler.is_asked_again(recipe)
        count_group(
            self.sampling,
            asked_again=asked_again or own,
            solved=solved,
            scored=scored,
        )
        if asked_again and not own:
            return  # a shared curriculum chose it: learn from first groups alone
        move = self._sampler.report_result(
            recipe,
            solved=solved,
            scored=scored,
            step=self.step,
        )
        if move is not None:
            self._counts["curriculum/moves"] += 1
            PROBLEM_LOGGER.info("Curriculum: %s", move)

    def curriculum_stats(self) -> dict[str, Any]:
        """Return the curriculum's state as JSON.

        Returns:
            `curriculum_mode`, whether there is a curriculum. If so, `target_accuracy`,
            `total_tasks_tracked`, `tasks_with_adjustments`, `average_complexity` in [0, 1], and
            `task_details` by task: `level`, `difficulty`, recent `solved_share` and more.
        """
        levels = self.selection.levels
        if not isinstance(levels, Curriculum):
            return {"curriculum_mode": False}
        target = self._options.curriculum_target_accuracy
        return {"curriculum_mode": True, "target_accuracy": target, **levels.stats()}

    def state_dict(self, unfinished: Sequence[Problem]) -> dict[str, Any]:
        """Return the stream's state as JSON.

        Args:
            unfinished: problems handed out but not yet trained on; a resumed stream repeats them.
        """
        assert self._stream is not None
        state = self._stream.state_dict()
        budget = self.max_token_length
        return {
            **state,
            **({} if budget is None else {"max_token_length": budget}),
            "ahead": [p.recipe.to_json() for p in unfinished] + state["ahead"],
            "prompt_room": [[*key, count] for key, count in self._questions.items()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a stored stream.

        Drops problems of tasks that this run does not use, and the caps on levels if the token
        budget has changed.

        Raises:
            ValueError: the state is invalid, or has another seed, another replica or only other
                tasks.
            ConfigurationError: a problem drawn ahead has an invalid recipe.
        """
        assert self._stream is not None
        assert self._sampler is not None
        require_stream_state(state)
        try:
            drawn = [read_recipe(recipe) for recipe in state["ahead"]]
        except ValueError as error:
            message = f"the checkpoint holds an invalid problem: {error}"
            raise ConfigurationError(message) from error
        ahead = [r.to_json() for r in drawn if self.selection.weights.get(r.task, 0) > 0]
        sampler = state["sampler"]
        self._sampler.require_own(sampler)
        if drawn and not ahead:
            tasks = ", ".join(sorted({recipe.task for recipe in drawn})[:5])
            raise ValueError(f"this run uses none of the state's tasks, such as {tasks}")
        dropped = len(drawn) - len(ahead)
        if dropped:
            logger.info("Dropped %d problems of tasks that this run does not use", dropped)
        if state.get("max_token_length") == self.max_token_length:
            self._questions = Counter(
                {(task, level, fits): n for task, level, fits, n in state["prompt_room"]}
            )
        else:
            sampler = {**sampler, "levels": {**sampler.get("levels", {}), "caps": {}}}
        self._stream.load_state_dict({"sampler": sampler, "ahead": ahead})

    def close(self) -> None:
        """Drop all pending problems."""
        if self._stream is not None:
            self._stream.cancel()


@dataclass(kw_only=True, slots=True)
class GatheredGroup:
    """The results of a problem so far; `completions` counts those whose scoring failed too."""

    recipe: Recipe
    completions: int = 0
    scored: int = 0
    solved: int = 0


class GroupGathering:
    """Gathers results by problem; they may come in any order, and from several processes.

    Args:
        size: completions of a group. None learns it from the first result. It changes if groups
            agree: most that were taken for whole got more, or most of those that stall got fewer.

    Attributes:
        incomplete: groups that were closed with fewer completions.

    Example:
        gathering = GroupGathering(8)
        gathering.assign(recipe)
        for group in gathering.report_result(recipe, completions=8, scored=8, solved=3):
            problems.report_result(group.recipe, solved=group.solved, scored=group.scored)
    """

    def __init__(self, size: int | None) -> None:
        self.incomplete = 0
        self._size = size or 0
        self._learns = size is None
        self._awaited: dict[str, Recipe] = {}
        self._most_awaited = 0  # problems that were handed out at once
        self._begun = 0  # groups since one became whole
        self._partial: dict[str, GatheredGroup] = {}  # the last one with news is last
        self._closed: dict[str, int] = {}

    @property
    def size(self) -> int | None:
        """Completions of a group; None until it is known."""
        return self._size or None

    @property
    def awaited(self) -> dict[str, Recipe]:
        """Problems whose group is not whole, by their keys, those partly scored first."""
        partial = {key: group.recipe for key, group in self._partial.items()}
        return {**partial, **self._awaited}

    def assign(self, recipe: Recipe) -> None:
        """Await the results of a problem that is handed out, for the first time or again."""
        key = recipe_key(recipe)
        self._forget(key)
        self._awaited[key] = recipe
        if len(self._awaited) > MAX_AWAITED:
            del self._awaited[next(iter(self._awaited))]
        self._most_awaited = max(self._most_awaited, len(self._awaited))

    def report_result(
        self,
        recipe: Recipe,
        *,
        completions: int,
        scored: int,
        solved: int,
    ) -> list[GatheredGroup]:
        """Add results; return the groups to record, if any. Other problems' are ignored."""
        key = recipe_key(recipe)
        group = self._partial.pop(key, None)
        if group is None and key in self._awaited:
            group = GatheredGroup(recipe=self._awaited.pop(key))
            self._begun += 1
        if group is None:
            if key in self._closed:  # more results of a group that was taken for whole
                self._closed[key] += completions
                if self._learns and len(self._closed) > 2:
                    self._size = max(self._size, median_low(self._closed.values()))
            return []
        group.completions += completions
        group.scored += scored
        group.solved += solved
        self._size = self._size or group.completions
        if group.completions >= self._size:
            self._begun = 0
            self._close(key, group.completions)
            return [group]
        self._partial[key] = group
        most = max(64, 2 * self._most_awaited) if self._learns else MAX_PARTIAL
        waiting = len(self._partial)
        stalls = min(self._begun, waiting) > most or waiting > MAX_PARTIAL
        return self._close_stalled() if stalls else []

    def _close_stalled(self) -> list[GatheredGroup]:
        """Close the group without news for longest; return what to record if a size is learned."""
        key = next(iter(self._partial))
        group = self._partial.pop(key)
        self.incomplete += 1
        if self._learns:
            longest = [group, *islice(self._partial.values(), 7)]
            self._size = median_low(each.completions for each in longest)
            whole = {k: g for k, g in self._partial.items() if g.completions >= self._size}
            for k, g in {key: group, **whole}.items():
                self._partial.pop(k, None)
                self._close(k, g.completions)
            self._begun = 0
            return [group, *whole.values()]
        if self.incomplete == 1:
            logger.warning(
                "group_size is %d, but a problem of %s got %d scores while %d others were scored: "
                "such groups are not counted",
                *(self._size, group.recipe.task, group.completions, MAX_PARTIAL),
            )
        return []

    def withdraw(self, recipe: Recipe) -> bool:
        """Await no more results of a problem; return False if its group is recorded already."""
        key = recipe_key(recipe)
        if key in self._closed:
            return False
        self._forget(key)
        return True

    def _close(self, key: str, completions: int) -> None:
        self._closed[key] = completions
        if len(self._closed) > MAX_PARTIAL:
            del self._closed[next(iter(self._closed))]

    def _forget(self, key: str) -> None:
        self._awaited.pop(key, None)
        self._partial.pop(key, None)
        self._closed.pop(key, None)
