"""Problem sets: so many problems of a task and a level, the same for the same seed."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator

from ..errors import ConfigurationError, GenerationError
from ..records import Problem, Recipe
from ..sandbox.pool import MakesProblems, generate_surely
from .stream import question_hash

GIVE_UP_AFTER = 20
"""So many items in a row that can't be made mean that none can."""

RESERVED_IN_A_ROW = 1000
"""So many reserved questions in a row mean that there are hardly others."""


class ReservedError(GenerationError):
    """A problem's question is in the evaluation set."""


async def first_made(pool: MakesProblems, recipes: Iterator[Recipe], count: int) -> list[Problem]:
    """Make the first `count` problems that can be made, in order.

    Raises:
        ConfigurationError: none can.
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
            reserved = isinstance(tried, ReservedError)
            in_a_row[reserved] += 1
            if in_a_row[reserved] == (RESERVED_IN_A_ROW if reserved else GIVE_UP_AFTER):
                raise ConfigurationError(
                    f"{in_a_row[reserved]} items in a row can't be made: {tried}"
                )
    return made


async def _try(pool: MakesProblems, recipe: Recipe) -> Problem | GenerationError:
    try:
        return await pool.generate(recipe)
    except GenerationError as error:
        return error


class Unreserved:
    """Makes problems, but none whose question is reserved.

    Args:
        reserved: hashes of the questions of an evaluation set.
        on_made: called once for each problem.

    Attributes:
        refused: how many questions were reserved.
    """

    def __init__(
        self, pool: MakesProblems, reserved: Collection[bytes], on_made: Callable[[], None]
    ) -> None:
        self._pool = pool
        self._reserved = reserved
        self._on_made = on_made
        self.refused = 0

    async def generate(self, recipe: Recipe) -> Problem:
        """Make a problem; raises GenerationError, or ReservedError where its question is."""
        problem = await generate_surely(self._pool, recipe)
        if question_hash(problem.question) in self._reserved:
            self.refused += 1
            raise ReservedError(
                f"{recipe.task}: the question is in the evaluation set; take harder levels or "
                "fewer evaluation items"
            )
        self._on_made()
        return problem
