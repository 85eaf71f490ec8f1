"""Making a problem that must be there: once more where it failed."""

from __future__ import annotations

from typing import Protocol

from ..errors import GenerationError
from ..records import Problem, Recipe

TRIES = 3
"""A deadline missed on a busy machine must not make another set."""


class MakesProblems(Protocol):
    """The task pool, or a part of it."""

    async def generate(self, recipe: Recipe) -> Problem: ...


async def generate_surely(pool: MakesProblems, recipe: Recipe) -> Problem:
    """Make a problem in three tries at most.

    Raises:
        GenerationError: of the last try.
    """
    for _ in range(TRIES - 1):
        try:
            return await pool.generate(recipe)
        except GenerationError:
            continue
    return await pool.generate(recipe)
