"""The endless stream of training problems, made ahead of demand and handed out in order."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from ..errors import GenerationError
from ..records import Problem, Recipe
from ..sandbox.pool import TaskPool
from .sampler import Sampler

logger = logging.getLogger(__name__)

GIVE_UP_AFTER = 1000
"""So many failed items in a row mean that nothing can be generated at all."""

Reserved = Callable[[str], Awaitable[Collection[bytes]]]
"""Gives the hashes of a task's questions that training must not see."""


def question_hash(question: str) -> bytes:
    """Hash a question: stands for it where only equality matters."""
    return hashlib.blake2b(question.encode(), digest_size=16).digest()


def reserving(hashes: Collection[bytes]) -> Reserved:
    """Reserve the same questions for every task."""

    async def of_task(_: str) -> Collection[bytes]:
        return hashes

    return of_task


class ProblemStream:
    """Draws recipes, has them made into problems, and hands these out in the order drawn.

    An item that can't be made, or whose question is in the evaluation set, is counted and
    the next one takes its place.

    Args:
        ahead: how many problems are drawn before they are asked for.
        reserved: asked for each task that is drawn, while its problem is made.
        counts: where skipped items are counted.
    """

    def __init__(
        self,
        sampler: Sampler,
        pool: TaskPool,
        *,
        ahead: int,
        reserved: Reserved,
        counts: Counter[str],
    ) -> None:
        self._sampler = sampler
        self._pool = pool
        self._ahead = ahead
        self._reserved = reserved
        self._counts = counts
        self._resumed: deque[Recipe] = deque()
        self._drawn: deque[tuple[Recipe, asyncio.Task[Problem | None]]] = deque()

    def _draw(self) -> None:
        """Have the next recipe made: another stream's, if this one continues it, else a new one."""
        recipe = self._resumed.popleft() if self._resumed else self._sampler.next_recipe()
        task = asyncio.create_task(self._make(recipe))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._drawn.append((recipe, task))

    async def _make(self, recipe: Recipe) -> Problem | None:
        """Make a problem; None where its question is reserved."""
        problem, reserved = await asyncio.gather(
            self._pool.generate(recipe), self._reserved(recipe.task)
        )
        return None if question_hash(problem.question) in reserved else problem

    def fill(self) -> None:
        """Begin to make what is made ahead."""
        while len(self._drawn) < self._ahead:
            self._draw()

    async def next_problem(self) -> Problem:
        """Hand out the next problem in order.

        Raises:
            GenerationError: nothing can be generated any more.
            PoolClosedError: the pool is closed.
        """
        for _ in range(GIVE_UP_AFTER):
            self.fill()
            task = self._drawn[0][1]
            made = True
            try:
                problem = await asyncio.shield(task)
            except GenerationError as error:
                logger.warning("Skipping an item that can't be generated: %s", error)
                made, problem = False, None
            # A caller cancelled above leaves the item in place for the next one; a second
            # caller may have taken it meanwhile.
            if not self._drawn or self._drawn[0][1] is not task:
                continue
            self._drawn.popleft()
            if problem is not None:
                self.fill()
                return problem
            if made:
                self._counts["sampling/evaluation_questions_redrawn"] += 1
        raise GenerationError(
            f"{GIVE_UP_AFTER} items in a row could not be generated or are in the evaluation set"
        )

    def state_dict(self) -> dict[str, Any]:
        """Give as JSON the sampler's state, and what was drawn but not yet handed out."""
        recipes = [*(recipe for recipe, _ in self._drawn), *self._resumed]
        ahead = [recipe.to_json() for recipe in recipes]
        return {"sampler": self._sampler.state_dict(), "ahead": ahead}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue another stream exactly; what this one has drawn ahead is dropped."""
        self._sampler.load_state_dict(state["sampler"])
        self.cancel()
        self._resumed.extend(Recipe.from_json(recipe) for recipe in state["ahead"])

    def cancel(self) -> None:
        """Drop what was drawn ahead."""
        self._resumed.clear()
        while self._drawn:
            self._drawn.popleft()[1].cancel()
