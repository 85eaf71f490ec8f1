"""Problems made from recipes: the endless training stream, and sets of a fixed size.

Both skip items that can't be made, and questions of the evaluation set (decontamination).
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import sys
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import msgspec

from ..errors import ConfigurationError, GenerationError
from ..records import FaultKind, Problem, Recipe, recipe_key
from ..sandbox.pool import ProblemGenerator, generate_with_retry
from ..tasks.recipes import read_recipe
from ..util.models import validate
from ..util.text import shorten
from .sampler import Sampler
from .seeds import is_evaluation_seed, redrawn_seed, split_seed

logger = logging.getLogger(__name__)

MAX_SKIPPED = 1000
"""Give up after this many skipped items in a row in a stream."""

MAX_FAULTY = 1000
"""Give up after this many faulty items in place of one."""

MAX_FAILED_IN_SET = 20
"""Give up after this many failed items in a row in a set."""

MAX_EXCLUDED_IN_SET = 1000
"""Give up after this many excluded questions in a row in a set."""

_KEPT_OVERHEAD = 4096
"""Bytes of the objects that hold a kept problem."""

ExcludedQuestions = Callable[[str], Awaitable[Collection[bytes]]]
"""Returns the hashes of a task's questions that training must not see."""


def question_hash(question: str) -> bytes:
    """Return a hash of a question, to compare questions by."""
    return hashlib.blake2b(question.encode(), digest_size=16).digest()


def fixed_exclusions(hashes: Collection[bytes]) -> ExcludedQuestions:
    """Exclude the same questions for every task."""

    async def of_task(_: str) -> Collection[bytes]:
        return hashes

    return of_task


def is_left_out(problem: Problem) -> bool:
    """Return whether a problem is faulty; in training, one with several answers is not."""
    if problem.fault is None:
        return False
    evaluates = is_evaluation_seed(problem.recipe.seed)
    return evaluates or problem.fault.kind is not FaultKind.AMBIGUOUS


class SoundItems:
    """Makes problems, and draws again where the library's item is faulty.

    The new seed depends on the old one alone, so a set stays the same whatever its size.

    Args:
        counts: counts the faulty items, in all and by task.
    """

    def __init__(self, pool: ProblemGenerator, counts: Counter[str]) -> None:
        self._pool = pool
        self._counts = counts

    async def generate(self, recipe: Recipe) -> Problem:
        """Make a problem.

        Raises:
            GenerationError: it can't be made, or too many items in a row are faulty.
        """
        for _ in range(MAX_FAULTY):
            problem = await self._pool.generate(recipe)
            if not is_left_out(problem):
                return problem
            self._counts["sampling/faulty_items_redrawn"] += 1
            self._counts[f"sampling/faulty_items_redrawn/{recipe.task}"] += 1
            recipe = replace(recipe, seed=redrawn_seed(recipe.seed))
        raise GenerationError(
            f"{recipe.task}: {MAX_FAULTY} items in a row are faulty: choose another level, or "
            "set skip_faulty_items to false"
        )


def sound_items(pool: ProblemGenerator, counts: Counter[str], *, skip: bool) -> ProblemGenerator:
    """Return a generator that leaves out faulty items if `skip` is set."""
    return SoundItems(pool, counts) if skip else pool


class RememberedProblems:
    """The latest problems of recipes: concurrent and later callers share one problem.

    Args:
        most: bytes of the problems that are kept.
    """

    def __init__(self, *, most: int = 64 * 2**20) -> None:
        self._most = most
        self._bytes = 0
        self._making: dict[str, asyncio.Task[Problem]] = {}
        self._kept: dict[str, Problem] = {}  # the last used is last

    async def get(self, pool: ProblemGenerator, recipe: Recipe) -> Problem:
        """Make the problem of a recipe unless it is kept; raise GenerationError as `pool` does."""
        key = recipe_key(recipe)
        if key in self._kept:
            problem = self._kept[key] = self._kept.pop(key)
            return problem
        if key not in self._making:
            self._making[key] = asyncio.create_task(pool.generate(recipe))
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
    """Estimate the memory of a problem with its key, twice for its parameters."""
    return _KEPT_OVERHEAD + sum(
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
        pool: ProblemGenerator,
        *,
        prefetch: int,
        excluded: ExcludedQuestions,
        counts: Counter[str],
    ) -> None:
        self._sampler = sampler
        self._pool = pool
        self._prefetch = prefetch
        self._excluded = excluded
        self._counts = counts
        self._resumed: deque[Recipe] = deque()
        self._pending: deque[tuple[Recipe, asyncio.Task[Problem | None]]] = deque()

    def _start_next(self) -> None:
        """Start to make the next recipe: a restored one if there is any, else a new one."""
        recipe = self._resumed.popleft() if self._resumed else self._sampler.next_recipe()
        task = asyncio.create_task(self.make(recipe))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._pending.append((recipe, task))

    async def make(self, recipe: Recipe) -> Problem | None:
        """Make a problem; return None if its question is excluded.

        Raises:
            GenerationError: it can't be made.
        """
        problem, excluded = await asyncio.gather(
            self._pool.generate(recipe), self._excluded(recipe.task)
        )
        return None if question_hash(problem.question) in excluded else problem

    def fill(self) -> None:
        """Start to make problems until `prefetch` are pending."""
        while len(self._pending) < self._prefetch:
            self._start_next()

    async def next_problem(self) -> Problem:
        """Return the next problem in order.

        Raises:
            GenerationError: too many items in a row were skipped.
            PoolClosedError: the pool is closed.
        """
        for _ in range(MAX_SKIPPED):
            self.fill()
            task = self._pending[0][1]
            failed = False
            try:
                problem = await asyncio.shield(task)
            except GenerationError as error:
                logger.warning("Skipping an item that can't be generated: %s", error)
                failed, problem = True, None
            # A caller that was cancelled above leaves the item to the next caller, and a
            # concurrent caller may have taken it.
            if not self._pending or self._pending[0][1] is not task:
                continue
            self._pending.popleft()
            if problem is not None:
                self.fill()
                return problem
            if not failed:
                self._counts["sampling/evaluation_questions_redrawn"] += 1
        raise GenerationError(
            f"{MAX_SKIPPED} items in a row could not be generated or are in the evaluation set"
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


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Height = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
_Streak = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=2**53)]
_Positive = Annotated[float, msgspec.Meta(ge=0.01, le=2**53)]
_Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]


class _Cap(msgspec.Struct):
    top_level: _Count
    height: _Height


class _TaskState(msgspec.Struct):
    """A task in the curriculum; evidence rows are (level, solved, answered)."""

    height: _Height
    position: _Amount
    evidence: list[tuple[_Count, _Amount, _Amount]]
    streak: _Streak
    groups: _Count
    stale: _Count
    moves: _Count


class _LevelsState(msgspec.Struct):
    caps: dict[str, _Cap] = {}
    tasks: dict[str, _TaskState] = {}


_Known = tuple[
    dict[str, Any], _Count, _Count, _Amount, _Amount, _Count, _Count | None, _Probability
]
"""A problem: recipe, askings, size, solved, failed, last draw, step, expected signal."""


class _MemoryState(msgspec.Struct):
    """The memory; level rows are (task, level, groups, shares, pairs, last draw)."""

    step: _Count | None
    correction: tuple[_Amount, _Positive]
    levels: list[tuple[str, _Count | None, _Amount, _Amount, _Amount, _Count]]
    ready: list[_Known]
    awaited: list[_Known]


class _SamplerState(msgspec.Struct):
    """The sampler; signal rows are (task, level, groups with signal, without, last draw)."""

    run_seed: int
    replica: str
    draw: _Count
    levels: _LevelsState | msgspec.UnsetType = msgspec.UNSET
    signal: list[tuple[str, _Count | None, _Amount, _Amount, _Count]] = []
    memory: _MemoryState | msgspec.UnsetType = msgspec.UNSET


class _StreamState(msgspec.Struct):
    """A stored stream; prompt_room rows are (task, level, fits, questions)."""

    sampler: _SamplerState
    ahead: list[Any]
    prompt_room: list[tuple[str, _Count, bool, _Count]]
    max_token_length: _Count | msgspec.UnsetType = msgspec.UNSET


def require_stream_state(state: Any) -> None:
    """Validate a stored stream state, except the recipes in `ahead`.

    Raises:
        ValueError: a value is missing or invalid; the message has its path.
    """
    sampler = validate(state, _StreamState).sampler
    for what, since in _dated(sampler):
        if since > sampler.draw:
            raise ValueError(f"{what} is from draw {since}, after the last, {sampler.draw}")


def _dated(sampler: _SamplerState) -> Iterator[tuple[str, int]]:
    """Yield the evidence of a state, each with the draw that it is from."""
    for task, *_, since in sampler.signal:
        yield f"signal of {shorten(task)}", since
    if memory := sampler.memory:
        for task, *_, since in memory.levels:
            yield f"the level of {shorten(task)}", since
        for recipe, _, _, _, _, since, *_ in (*memory.ready, *memory.awaited):
            yield f"a problem of {read_recipe(recipe).task} in the memory", since


class EvaluationQuestionError(GenerationError):
    """A problem's question is in the evaluation set."""


def set_recipes(
    split: str, run_seed: int, task: str, level: int | None, parameters: Mapping[str, Any]
) -> Iterator[Recipe]:
    """Yield a task's recipes for a set of "train" or "eval", without end."""
    for index in itertools.count():
        seed = split_seed(split, run_seed, task, index)
        yield Recipe(task=task, seed=seed, level=level, parameters=parameters)


async def make_problems(
    pool: ProblemGenerator, recipes: Iterator[Recipe], count: int
) -> list[Problem]:
    """Make the first `count` problems that can be made, in order.

    Raises:
        ConfigurationError: too many items in a row can't be made.
    """
    made: list[Problem] = []
    in_a_row: Counter[bool] = Counter()
    while len(made) < count:
        batch = itertools.islice(recipes, count - len(made))
        for tried in await asyncio.gather(*(_try(pool, recipe) for recipe in batch)):
            if isinstance(tried, Problem):
                made.append(tried)
                in_a_row.clear()
                continue
            excluded = isinstance(tried, EvaluationQuestionError)
            in_a_row[excluded] += 1
            if in_a_row[excluded] == (MAX_EXCLUDED_IN_SET if excluded else MAX_FAILED_IN_SET):
                raise ConfigurationError(
                    f"{in_a_row[excluded]} items in a row can't be made: {tried}"
                )
    return made


async def _try(pool: ProblemGenerator, recipe: Recipe) -> Problem | GenerationError:
    try:
        return await pool.generate(recipe)
    except GenerationError as error:
        return error


class DecontaminatedPool:
    """Makes problems whose question is not in the evaluation set.

    Args:
        excluded: hashes of the evaluation set's questions.
        on_made: called once for each problem.

    Attributes:
        refused: the number of questions that were in the evaluation set.
    """

    def __init__(
        self, pool: ProblemGenerator, excluded: Collection[bytes], on_made: Callable[[], None]
    ) -> None:
        self._pool = pool
        self._excluded = excluded
        self._on_made = on_made
        self.refused = 0

    async def generate(self, recipe: Recipe) -> Problem:
        """Make a problem; raise EvaluationQuestionError if its question is excluded."""
        problem = await generate_with_retry(self._pool, recipe)
        if question_hash(problem.question) in self._excluded:
            self.refused += 1
            raise EvaluationQuestionError(
                f"{recipe.task}: the question is in the evaluation set; use harder levels or "
                "fewer evaluation items"
            )
        self._on_made()
        return problem
