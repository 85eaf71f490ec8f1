"""What timed out once is made again, and what fails for good says why."""

import pytest

from reasoning_gym_environment.errors import (
    ConfigurationError,
    GenerationError,
    GenerationTimeoutError,
)
from reasoning_gym_environment.problems.selection import require_values
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import (
    MAX_TIMEOUTS,
    generate_with_retry,
)

RECIPE = Recipe(task="gcd", seed=1)


class Busy:
    """Fails a number of times."""

    def __init__(self, misses: int) -> None:
        self._misses = misses
        self.asked = 0

    async def generate(self, recipe: Recipe) -> Problem:
        self.asked += 1
        if self.asked <= self._misses:
            raise GenerationError(f"missed {self.asked}")
        return Problem(recipe=recipe, question="?", oracle="1", entry=b"")


async def test_what_the_library_raises_is_not_tried_again() -> None:
    pool = Busy(9)
    with pytest.raises(GenerationError, match="missed 1"):
        await generate_with_retry(pool.generate, RECIPE)
    assert pool.asked == 1


class Late(Busy):
    """Misses its deadline, which is an error of its own."""

    async def generate(self, recipe: Recipe) -> Problem:
        try:
            return await super().generate(recipe)
        except GenerationError as error:
            raise GenerationTimeoutError(str(error)) from error


async def test_a_deadline_missed_once_is_forgiven() -> None:
    pool = Late(1)
    assert (await generate_with_retry(pool.generate, RECIPE)).recipe == RECIPE
    assert pool.asked == 2


async def test_a_recipe_that_runs_into_the_deadline_is_tried_twice() -> None:
    pool = Late(9)
    with pytest.raises(GenerationTimeoutError, match="missed 2"):
        await generate_with_retry(pool.generate, RECIPE)
    assert pool.asked == MAX_TIMEOUTS == 2


async def test_parameters_whose_items_miss_the_deadline_are_not_tried_thrice() -> None:
    pool = Late(9)
    with pytest.raises(ConfigurationError, match=r"no item of gcd with .*: missed 2"):
        await require_values(pool.generate, {"gcd": {"max_value": 9}}, {})
    assert pool.asked == MAX_TIMEOUTS
