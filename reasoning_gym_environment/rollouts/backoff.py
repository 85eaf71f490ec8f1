"""Pauses between requests for groups while inference fails."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from ..inference.errors import InferenceError
from ..util.log_throttle import THROTTLE
from ..util.retries import RetryPolicy

logger = logging.getLogger(__name__)

PAUSES = RetryPolicy(first_pause=1.0, growth=2.0, longest_pause=60.0)
"""A server that is back is noticed within a minute."""

POLL_SECONDS = 0.5
"""How often a waiting worker looks whether inference is back, which ends the pause early."""


class FailureBackoff:
    """Pauses between requests while inference fails, with rate-limited logging."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.failures = 0  # groups lost since the last success
        self.permanent = 0  # those of them that a retry can't help
        self.pause = 0.0  # seconds between two requests while inference fails, else 0
        self._clock = clock
        self._failing_since = 0.0
        self._increased_at = 0.0
        self._next_at = 0.0
        self._pauses = PAUSES.pauses()
        self._is_logged = False

    async def wait(self) -> None:
        """Wait until a group may be requested: while inference fails, one at a time."""
        while self.pause and self._clock() < self._next_at:
            await asyncio.sleep(POLL_SECONDS)
        # The others wait for the result of this one.
        self._next_at = self._clock() + self.pause

    def record_failure(self, task: str, error: InferenceError) -> None:
        """Count a lost group; the pause doubles once for all groups that were in flight."""
        now = self._clock()
        if not self.failures:
            self._failing_since = now
        self.failures += 1
        self.permanent += not error.is_transient
        if not self.pause or now - self._increased_at >= self.pause:
            self._increased_at = now
            self.pause = next(self._pauses)
        self._next_at = now + self.pause
        # One line a minute, however often inference is back.
        if THROTTLE.admits(self):
            self._is_logged = True
            logger.warning(
                "Lost a group of %s, %d in a row: %s", task, self.failures, error
            )

    def record_success(self) -> None:
        """End the pauses after a group; log that inference is back if a failure was logged."""
        if self._is_logged:
            seconds = self._clock() - self._failing_since
            groups = "1 group" if self.failures == 1 else f"{self.failures} groups"
            logger.warning("Inference is back after %.0f s, %s lost", seconds, groups)
        self.failures = 0
        self.permanent = 0
        self.pause = 0.0
        self._pauses = PAUSES.pauses()
        self._is_logged = False
