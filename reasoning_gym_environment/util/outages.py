"""Rate-limited logging of outages, and waiting until a server is reachable."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from ..errors import TRY_AGAIN, ConfigurationError, FixableError

logger = logging.getLogger(__name__)

LOG_INTERVAL = 60.0


class Outage:
    """Consecutive failures, to be logged at once, then once a minute, then at their end.

    Args:
        clock: returns the time in seconds.

    Attributes:
        lost: failures counted since the outage began.

    Example:
        >>> outage = Outage(clock=iter([0.0, 1.0, 2.0]).__next__)
        >>> outage.failed(), outage.failed(), outage.over(), outage.over()
        (True, False, 2.0, None)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.lost = 0
        self._clock = clock
        self._since: float | None = None
        self._logged_at = -math.inf

    def __bool__(self) -> bool:
        """Return whether the outage is ongoing."""
        return self._since is not None

    def failed(self, *, lost: int = 1, already: float = 0.0) -> bool:
        """Count a failure; return whether to log it now.

        Args:
            already: seconds that the outage had lasted before the first failure was seen.
        """
        now = self._clock()
        if self._since is None:
            self._since, self._logged_at, self.lost = now - already, -math.inf, 0
        self.lost += lost
        due = now - self._logged_at >= LOG_INTERVAL
        if due:
            self._logged_at = now
        return due

    @property
    def seconds(self) -> float:
        """Seconds since the outage began; 0 if there is none."""
        return 0.0 if self._since is None else self._clock() - self._since

    def over(self) -> float | None:
        """End the outage; return how many seconds it lasted, or None if there was none."""
        if self._since is None:
            return None
        seconds, self._since = self._clock() - self._since, None
        return seconds


class FailingRequests:
    """The failing requests to one server, logged as an outage.

    Args:
        server: the server's name at the start of a sentence.
        clock: returns the time in seconds.
        lost: the unit of what is lost, in messages.
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
        """Record that a request failed, for the first time or again.

        Args:
            already: as in `Outage.failed`.
        """
        self._failing.add(request)
        if self._outage.failed(lost=0, already=already):
            seconds = self._outage.seconds
            lasting = f" for {seconds:.0f} s" if seconds >= 1 else ""
            logger.warning("%s doesn't answer%s: %s", self._server, lasting, why)

    def answered(self, request: object) -> None:
        """Record that a request succeeded; the outage ends when no request is failing."""
        self._failing.discard(request)
        if self._failing:
            return
        lost = self._outage.lost
        if (seconds := self._outage.over()) is not None:
            message = "%s is back after %.0f s, %d %s"
            logger.warning(message, self._server, seconds, lost, self._unit)

    def dropped(self, request: object, *, lost: int = 0) -> None:
        """Record that a request was given up, and how much is lost with it."""
        self._failing.discard(request)
        self._outage.lost += lost


_ATTEMPT_SECONDS = 5.0
_PAUSE_SECONDS = 1.0


class UnreachableError(FixableError):
    """No server listens at the expected address."""

    exit_status = TRY_AGAIN


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reason(error: OSError) -> str:
    """Return `Connection refused` without the number and the address that Python adds."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)


async def _connect(url: str) -> None:
    """Connect once; raises OSError, or ValueError if the URL has no host or a bad port."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("it has no host")
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
    """Wait until a server listens at one of the URLs.

    Args:
        what: the server's name in messages.
        way_out: what the user can do, in messages.
        seconds: how long to keep trying.
        interval: seconds between log lines; the first is immediate.

    Raises:
        UnreachableError: no server listens in time.
        ConfigurationError: a URL is malformed.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + seconds
    log_at = loop.time()
    for attempt in itertools.count(1):
        problems = []
        for url in urls:
            try:
                await _connect(url)
                return
            except ValueError as error:
                raise ConfigurationError(f"{what}: {url!r} is not a valid URL: {error}") from error
            except OSError as error:
                problems.append(f"{url} ({_reason(error)})")
        message = f"{what} can't be reached at {', '.join(problems)}"
        now = loop.time()
        left = give_up - now
        if left <= 0:
            raise UnreachableError(f"{message}: {way_out}")
        if now >= log_at:
            log_at = now + interval
            logger.warning("%s, attempt %d: %s; %.0f s left", message, attempt, way_out, left)
        await asyncio.sleep(min(_PAUSE_SECONDS, interval, left))
