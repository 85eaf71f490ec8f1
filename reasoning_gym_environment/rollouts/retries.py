"""Retries of groups that inference lost: how often per problem, and how long to wait."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable

from ..inference.errors import InferenceError
from ..records import GroupResult, Recipe
from ..util.outages import LOG_INTERVAL

logger = logging.getLogger(__name__)

MAX_RETRIES = 3
"""Retries of one problem."""

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_POLL_SECONDS = 0.5


class RetryBudget:
    """Number of retries left for each problem whose group was lost.

    Example:
        >>> budget, recipe = RetryBudget(), Recipe(task="gcd", seed=2)
        >>> [budget.may_retry(recipe) for _ in range(4)]
        [True, True, True, False]
    """

    def __init__(self) -> None:
        self._lost: Counter[tuple[str, int]] = Counter()

    def group_finished(self, group: GroupResult) -> None:
        """Forget the failures of a problem."""
        self._forget(group.problem.recipe)

    def may_retry(self, recipe: Recipe) -> bool:
        """Count a lost group; return whether to retry its problem, which else is forgotten."""
        self._lost[recipe.task, recipe.seed] += 1
        if self._lost[recipe.task, recipe.seed] <= MAX_RETRIES:
            return True
        self._forget(recipe)
        return False

    def _forget(self, recipe: Recipe) -> None:
        self._lost.pop((recipe.task, recipe.seed), None)


class FailureBackoff:
    """Failure backoff with rate-limited logging.

    Args:
        clock: gives the time in seconds.

    Attributes:
        failures: groups lost since the last success.
        permanent: those whose error is not transient.
        pause: seconds between two requests while inference fails, else 0.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.failures = 0
        self.permanent = 0
        self.pause = 0.0
        self._clock = clock
        self._since = 0.0
        self._increased = 0.0
        self._next = 0.0
        self._logged_at = -math.inf
        self._logged = False

    async def wait(self) -> None:
        """Wait until a group may be requested: while inference fails, one at a time."""
        while self.pause and self._clock() < self._next:
            await asyncio.sleep(_POLL_SECONDS)
        self._next = self._clock() + self.pause  # the others wait for the result of this one

    def record_failure(self, task: str, error: InferenceError) -> None:
        """Count a lost group; the pause doubles once for all groups that were in flight."""
        now = self._clock()
        if not self.failures:
            self._since = now
        self.failures += 1
        self.permanent += not error.is_transient
        if not self.pause or now - self._increased >= self.pause:
            self._increased = now
            self.pause = min(_LONGEST_PAUSE, max(_FIRST_PAUSE, 2 * self.pause))
        self._next = now + self.pause
        if now - self._logged_at >= LOG_INTERVAL:
            self._logged_at, self._logged = now, True
            logger.warning("Lost a group of %s, %d in a row: %s", task, self.failures, error)

    def group_finished(self, group: GroupResult) -> None:
        """Reset after a success, which is logged if a failure was."""
        if self._logged:
            seconds = self._clock() - self._since
            groups = "1 group" if self.failures == 1 else f"{self.failures} groups"
            logger.warning("Inference is back after %.0f s, %s lost", seconds, groups)
        self.failures = self.permanent = 0
        self.pause = 0.0
        self._logged = False
