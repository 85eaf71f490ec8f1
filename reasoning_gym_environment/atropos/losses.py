"""Groups that inference lost in a row: said once a minute, and a pause that grows with them."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable

from ..rollouts.rollouts import InferenceError
from ..util.outages import BETWEEN_LINES

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_LOOK_SECONDS = 0.5


class Losses:
    """Counts groups lost since the last that came, and says when the next may be asked for.

    Args:
        clock: gives the time in seconds.

    Attributes:
        in_a_row: groups lost since the last that came.
        for_good: those of them that asking again could not have saved.
        pause: seconds between two requests while nothing but failures comes; 0 when all is well.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.in_a_row = 0
        self.for_good = 0
        self.pause = 0.0
        self._clock = clock
        self._since = 0.0
        self._grown = 0.0
        self._next = 0.0
        self._said = -math.inf
        self._told = False

    async def turn(self) -> None:
        """Return when a group may be asked for: while groups get lost, one at a time."""
        while self.pause and self._clock() < self._next:
            await asyncio.sleep(_LOOK_SECONDS)
        self._next = self._clock() + self.pause  # the others wait for what becomes of this one

    def lost(self, task: str, error: InferenceError) -> None:
        """Count a lost group; the pause doubles once for all that were under way together."""
        now = self._clock()
        if not self.in_a_row:
            self._since = now
        self.in_a_row += 1
        self.for_good += not error.heals
        if not self.pause or now - self._grown >= self.pause:
            self._grown = now
            self.pause = min(_LONGEST_PAUSE, max(_FIRST_PAUSE, 2 * self.pause))
        self._next = now + self.pause
        if now - self._said >= BETWEEN_LINES:
            self._said, self._told = now, True
            logger.warning("Lost a group of %s, %d in a row: %s", task, self.in_a_row, error)

    def came(self) -> None:
        """Note that a group came, and say so where a loss was said."""
        if self._told:
            seconds = self._clock() - self._since
            groups = "1 group" if self.in_a_row == 1 else f"{self.in_a_row} groups"
            logger.warning("Inference is back after %.0f s, %s lost", seconds, groups)
        self.in_a_row = self.for_good = 0
        self.pause = 0.0
        self._told = False
