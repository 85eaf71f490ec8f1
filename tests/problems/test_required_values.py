"""Parameters whose items run into their time limit are refused without a third item."""

import pytest

from reasoning_gym_environment.errors import (
    ConfigurationError,
    GenerationTimeoutError,
)
from reasoning_gym_environment.problems.selection import MAX_TIMEOUTS, require_values
from reasoning_gym_environment.records import Problem, Recipe


class Late:
    """Reaches the time limit with each recipe."""

    def __init__(self) -> None:
        self.asked = 0

    async def generate(self, recipe: Recipe) -> Problem:
        self.asked += 1
        raise GenerationTimeoutError(f"missed {self.asked}")


async def test_parameters_whose_items_miss_the_deadline_are_not_tried_thrice() -> None:
    pool = Late()
    with pytest.raises(ConfigurationError, match=r"no item of gcd with .*: missed 2"):
        await require_values(pool.generate, {"gcd": {"max_value": 9}}, {})
    assert pool.asked == MAX_TIMEOUTS == 2
