"""Failures in a row as one outage: when to speak of it, how long it was, what is said of it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from ..errors import TRY_AGAIN, FixableError

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


_ATTEMPT_SECONDS = 5.0
_PAUSE_SECONDS = 1.0


class UnreachableError(FixableError):
    """Nothing listens where a server was expected."""

    exit_status = TRY_AGAIN


class UnusableUrlError(UnreachableError):
    """Nothing can ever listen there."""

    exit_status = 2


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches an address.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _connect(url: str) -> None:
    """Connect once; raises OSError, or ValueError when the URL names no host or a bad port."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("no host in it")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(parts.hostname, port), _ATTEMPT_SECONDS
        )
    except asyncio.TimeoutError as error:
        raise OSError("no answer") from error
    writer.close()


async def require_reachable(
    urls: Sequence[str], *, what: str, way_out: str, seconds: float, interval: float = 10.0
) -> None:
    """Wait until something listens at one of the URLs.

    Args:
        what: names the server in messages.
        way_out: what the user can do, in messages.
        seconds: how long to keep trying.
        interval: seconds between lines in the log; the first comes at once.

    Raises:
        UnreachableError: nothing did.
        UnusableUrlError: a URL is malformed.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + seconds
    pause = min(_PAUSE_SECONDS, interval)
    rounds_a_line = round(interval / pause)
    attempt = 0
    while True:
        attempt += 1
        problems = []
        for url in urls:
            try:
                await _connect(url)
                return
            except ValueError as error:
                raise UnusableUrlError(f"{what}: {url!r} is no usable URL: {error}") from error
            except OSError as error:
                problems.append(f"{url} ({error})")
        said = f"{what} can't be reached at {', '.join(problems)}"
        if loop.time() >= give_up:
            raise UnreachableError(f"{said}: {way_out}")
        left = give_up - loop.time()
        if (attempt - 1) % rounds_a_line == 0:
            logger.warning("%s, attempt %d: %s; %.0f s left", said, attempt, way_out, left)
        await asyncio.sleep(min(pause, left))
