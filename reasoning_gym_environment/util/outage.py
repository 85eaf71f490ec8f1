"""Failures in a row as one outage: when to speak of it, how long it was, what is said of it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

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

    def failed(self, *, lost: int = 1, already: float = 0.0) -> bool:
        """Count a failure; whether to speak of it now.

        Args:
            already: for how many seconds it had lasted before it was first seen.
        """
        now = self._clock()
        if self._since is None:
            self._since, self._said, self.lost = now - already, -math.inf, 0
        self.lost += lost
        speak = now - self._said >= BETWEEN_LINES
        if speak:
            self._said = now
        return speak

    @property
    def seconds(self) -> float:
        """For how long it goes on; 0 where there is none."""
        return 0.0 if self._since is None else self._clock() - self._since

    def over(self) -> float | None:
        """End it where there is one; gives the seconds that it lasted."""
        if self._since is None:
            return None
        seconds, self._since = self._clock() - self._since, None
        return seconds


class FailingRequests:
    """Knows which requests to a server are failing, and logs the beginning and the end of it.

    Args:
        server: names it at the beginning of a sentence.
        clock: gives the time in seconds.
        lost: what is counted as lost.
    """

    def __init__(
        self,
        server: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        lost: str = "groups lost",
    ) -> None:
        self._server = server
        self._unit = lost
        self._outage = Outage(clock)
        self._failing: set[object] = set()

    def fails(self, request: object, why: str, *, already: float = 0.0) -> None:
        """Note that a request fails, for the first time or again.

        Args:
            already: as of `Outage.failed`.
        """
        self._failing.add(request)
        if self._outage.failed(lost=0, already=already):
            seconds = self._outage.seconds
            lasting = f" for {seconds:.0f} s" if seconds >= 1 else ""
            logger.warning("%s doesn't answer%s: %s", self._server, lasting, why)

    def answered(self, request: object) -> None:
        """Note that a request was answered; the outage is over when none fails any more."""
        self._failing.discard(request)
        if self._failing:
            return
        lost = self._outage.lost
        if (seconds := self._outage.over()) is not None:
            said = "%s is back after %.0f s, %d %s"
            logger.warning(said, self._server, seconds, lost, self._unit)

    def dropped(self, request: object, *, lost: int = 0) -> None:
        """Note that a request is no longer tried, and how much is lost with it."""
        self._failing.discard(request)
        self._outage.lost += lost
