"""Failures in a row as one outage: when to speak of it, and how long it was."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

BETWEEN_LINES = 60.0


class Outage:
    """Says when an outage is to be spoken of: at once, then once a minute, then at its end.

    Args:
        clock: gives the time in seconds.

    Attributes:
        lost: what failed since it began.

    Example:
        >>> outage = Outage(clock=iter([0.0, 1.0, 2.0]).__next__)
        >>> outage.failed(), outage.failed(), outage.over(), outage.over()
        (True, False, 2.0, None)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.lost = 0
        self._clock = clock
        self._since: float | None = None
        self._said = -math.inf

    def __bool__(self) -> bool:
        """Whether it goes on."""
        return self._since is not None

    def failed(self, *, lost: int = 1) -> bool:
        """Count a failure; whether to speak of it now."""
        now = self._clock()
        if self._since is None:
            self._since, self._said, self.lost = now, -math.inf, 0
        self.lost += lost
        speak = now - self._said >= BETWEEN_LINES
        if speak:
            self._said = now
        return speak

    def over(self) -> float | None:
        """End it where there is one; gives the seconds that it lasted."""
        if self._since is None:
            return None
        seconds, self._since = self._clock() - self._since, None
        return seconds
