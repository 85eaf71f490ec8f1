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
from typing import Any

from ..errors import ConfigurationError, GenerationError
from ..records import FaultKind, Problem, Recipe, recipe_key
from ..sandbox.pool import Generate
from .sampler import Sampler, is_evaluation_seed, redrawn_seed, split_seed

logger = logging.getLogger(__name__)

MAX_SKIPPED = 1000
"""Give up after this many items in a row that are faulty, can't be made or are excluded."""

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


def is_skipped(problem: Problem) -> bool:
    """Return whether a problem is faulty; in training, one with several answers is not."""
    if problem.fault is None:
        return False
    evaluates = is_evaluation_seed(problem.recipe.seed)
    return evaluates or problem.fault.kind is not FaultKind.AMBIGUOUS


async def generate_faultless(generate: Generate, counts: Counter[str], recipe: Recipe) -> Problem:
    """Make a problem, and draw again where the library's item is faulty.

    The new seed depends on the old one alone, so a set stays the same whatever its size.

    Args:
        counts: counts the faulty items, in all and by task.

    Raises:
        GenerationError: it can't be made, or too many items in a row are faulty.
    """
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


def skip_faulty(generate: Generate, counts: Counter[str], *, skip: bool = True) -> Generate:
    """Return what makes problems without faulty items if `skip` is set."""
    return partial(generate_faultless, generate, counts) if skip else generate


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
        self._resumed: deque[Recipe] = deque()
        self._pending: deque[tuple[Recipe, asyncio.Task[Problem | None]]] = deque()

    async def make(self, recipe: Recipe) -> Problem | None:
        """Make a problem; return None if its question is excluded.

        Raises:
            GenerationError: it can't be made.
        """
        problem, excluded = await asyncio.gather(
            self._generate(recipe), self._excluded(recipe.task)
        )
        return None if question_hash(problem.question) in excluded else problem

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


def set_recipes(
    split: str, run_seed: int, task: str, level: int | None, parameters: Mapping[str, Any]
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
        excluded: hashes of the evaluation set's questions.
        on_excluded, on_made: called once for each problem.

    Raises:
        ConfigurationError: too many items in a row can't be made, or are excluded.
    """

    async def make(recipe: Recipe) -> Problem | GenerationError | None:
        try:
            problem = await generate(recipe)
        except GenerationError as error:
            return error
        if question_hash(problem.question) in excluded:
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
                        f"{refused} items in a row can't be made: {recipe.task}: the question is "
                        "in the evaluation set; use harder levels or fewer evaluation items"
                    )
            else:
                failed += 1
                if failed == 20:
                    raise ConfigurationError(f"{failed} items in a row can't be made: {tried}")
    return made
