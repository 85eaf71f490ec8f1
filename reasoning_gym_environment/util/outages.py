"""What is said while something outside doesn't work: that it fails, once a minute, and its end."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

_BETWEEN_LINES = 60.0


class Paced:
    """Says when a line is due that comes at once, and then once a minute at the most.

    Args:
        clock: gives the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said = -math.inf

    def due(self) -> bool:
        """Whether to say it now; if so, the next minute begins."""
        now = self._clock()
        if now - self._said < _BETWEEN_LINES:
            return False
        self._said = now
        return True


class Outage:
    """Knows which requests to a server are failing, and logs the beginning and the end of it.

    Args:
        what: names the server at the beginning of a sentence.
        clock: gives the time in seconds.
        lost: what is counted as lost.
    """

    def __init__(
        self,
        what: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        lost: str = "groups lost",
    ) -> None:
        self._what = what
        self._unit = lost
        self._clock = clock
        self._failing: set[object] = set()
        self._since: float | None = None
        self._lost = 0
        self._line = Paced(clock)

    def fails(self, request: object, why: str, *, already: float = 0.0) -> None:
        """Note that a request fails, for the first time or again.

        Args:
            already: for how many seconds it has when that is first seen.
        """
        if self._since is None:
            self._since = self._clock() - already
            self._lost, self._line = 0, Paced(self._clock)
        self._failing.add(request)
        if self._line.due():
            seconds = self._clock() - self._since
            lasting = f" for {seconds:.0f} s" if seconds >= 1 else ""
            logger.warning("%s doesn't answer%s: %s", self._what, lasting, why)

    def answered(self, request: object) -> None:
        """Note that a request was answered; the outage is over when none fails any more."""
        self._failing.discard(request)
        if self._since is None or self._failing:
            return
        logger.warning(
            "%s is back after %.0f s, %d %s",
            self._what,
            self._clock() - self._since,
            self._lost,
            self._unit,
        )
        self._since = None

    def dropped(self, request: object, *, lost: int = 0) -> None:
        """Note that a request is no longer tried, and how much is lost with it."""
        self._failing.discard(request)
        self._lost += lost
