"""The endless stream of problems, in the order in which their recipes are drawn.

Items that can't be made are skipped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import Any

from ..errors import (
    ConfigurationError,
    GenerationError,
    GenerationTimeoutError,
    NoQuestionsLeftError,
)
from ..records import FaultKind, Problem, Recipe
from ..sandbox.pool import Generate
from .sampler import Sampler
from .seeds import redrawn_seed

logger = logging.getLogger(__name__)

MAX_SKIPPED = 1000
"""Give up after this many items in a row that can't be used, for whatever reason; where items are
drawn again, after as many of one level."""

MAX_FAILED = 20
"""Give up if this many items can't be made before any other."""


MAX_HANGS = 3
"""Give up after this many items in a row that take longer than their deadline."""


class Skip(Enum):
    """What a draw brings in place of a problem."""

    UNUSABLE = auto()
    LEVEL_CAPPED = auto()
    """Unusable, and its level is drawn no more: other items come, so the count starts again."""


async def first_usable(draw: Callable[[], Awaitable[Problem | Skip]]) -> Problem | None:
    """Draw until there is a problem; return None after MAX_SKIPPED draws in a row without one."""
    skipped = 0
    while skipped < MAX_SKIPPED:
        drawn = await draw()
        if isinstance(drawn, Problem):
            return drawn
        skipped = 0 if drawn is Skip.LEVEL_CAPPED else skipped + 1
    return None


def give_up_on_hangs(generate: Generate) -> Generate:
    """Wrap a generator: raise ConfigurationError after MAX_HANGS items in a row that hang.

    Without it, a set of a task that hangs would take a deadline for each of its items.
    """
    hangs = 0

    async def make(recipe: Recipe) -> Problem:
        nonlocal hangs
        try:
            problem = await generate(recipe)
        except GenerationTimeoutError as error:
            hangs += 1
            if hangs < MAX_HANGS:
                raise
            raise ConfigurationError(
                f"{hangs} items in a row hang; the last error: {error}; raise generation_timeout, "
                "or leave the task or its level out"
            ) from error
        hangs = 0
        return problem

    return make


def is_skipped(problem: Problem) -> bool:
    """Return whether to leave a problem out.

    Any fault does so in evaluation, all but AMBIGUOUS in training.
    """
    if problem.fault is None:
        return False
    return problem.recipe.is_evaluation or problem.fault.kind is not FaultKind.AMBIGUOUS


def skip_faulty(
    generate: Generate, counts: Counter[str], *, skip: bool = True
) -> Generate:
    """Wrap a generator: redraw faulty items, unless `skip` is false.

    The new seed depends on the old one alone, so a set stays the same whatever its size. Too many
    faulty items in a row are a GenerationError.

    Args:
        counts: counts the faulty items, in all and by task.
    """

    async def make(recipe: Recipe) -> Problem:
        async def draw() -> Problem | Skip:
            nonlocal recipe
            problem = await generate(recipe)
            if not is_skipped(problem):
                return problem
            counts["sampling/faulty_items_redrawn"] += 1
            counts[f"sampling/faulty_items_redrawn/{recipe.task}"] += 1
            recipe = replace(recipe, seed=redrawn_seed(recipe.seed))
            return Skip.UNUSABLE

        problem = await first_usable(draw)
        if problem is None:
            raise GenerationError(
                f"{recipe.task}: {MAX_SKIPPED} items in a row are faulty: choose another level, "
                "or set skip_faulty_items to false"
            )
        return problem

    return make if skip else generate


class RecipeStream:
    """A stream of problems in the order in which the sampler draws their recipes.

    Args:
        prefetch: the number of problems to make ahead of demand.
    """

    def __init__(self, sampler: Sampler, generate: Generate, *, prefetch: int) -> None:
        self._sampler = sampler
        self._generate = give_up_on_hangs(generate)
        self._prefetch = prefetch
        self._made_any = False
        self._failures = 0  # items that can't be made, before any was
        self._last_failure = ""  # for messages
        self._resumed: deque[Recipe] = deque()
        self._pending: deque[tuple[Recipe, asyncio.Task[Problem]]] = deque()

    def fill(self) -> None:
        """Start to make problems until `prefetch` are pending: of restored recipes, then new."""
        while len(self._pending) < self._prefetch:
            if self._resumed:
                recipe = self._resumed.popleft()
            else:
                recipe = self._sampler.next_recipe()
            task = asyncio.create_task(self._generate(recipe))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._pending.append((recipe, task))

    async def next_problem(self) -> Problem:
        """Return the next problem in order.

        Raises:
            GenerationError: none of the first items could be made, or too many in a row were
                skipped.
            PoolClosedError: the pool is closed.
        """
        problem = await first_usable(self._draw)
        if problem is None:
            raise GenerationError(
                f"{MAX_SKIPPED} items in a row could not be generated{self._last_failure}"
            )
        return problem

    async def _draw(self) -> Problem | Skip:
        """Take the next item, unless another caller does."""
        self.fill()
        task = self._pending[0][1]
        problem: Problem | None = None
        try:
            problem = await asyncio.shield(task)
        except GenerationError as error:
            # A level without questions has been logged when that was found.
            if not isinstance(error, NoQuestionsLeftError):
                logger.warning("Skipping an item that can't be generated: %s", error)
            self._last_failure = f"; the last error: {error}"
        # A caller that was cancelled above leaves the item to the next caller, and a
        # concurrent caller may have taken it.
        if not self._pending or self._pending[0][1] is not task:
            return Skip.UNUSABLE
        self._pending.popleft()
        if problem is not None:
            self._made_any = True
            self.fill()
            return problem
        self._failures += 1
        if self._failures == MAX_FAILED and not self._made_any:
            raise GenerationError(
                f"none of the first {MAX_FAILED} items can be made{self._last_failure}"
            )
        return Skip.UNUSABLE

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
