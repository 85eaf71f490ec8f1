"""Outages, and waiting until a server is reachable."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from ..errors import TRY_AGAIN, ConfigurationError, FixableError
from . import retries
from .log_throttle import LOG_INTERVAL as LOG_INTERVAL
from .log_throttle import THROTTLE, throttled


class Retry:
    """The pauses between the attempts of one operation.

    The caller says in its `except` what is transient, and raises its own error at the end.

    Args:
        seconds: how long to try, counted from here; the last attempt begins at the deadline.
        pauses: seconds before each further attempt, or before all; ends with the attempts.
    """

    def __init__(
        self, seconds: float = math.inf, *, pauses: float | Iterable[float] = 1.0
    ) -> None:
        self._give_up = time.monotonic() + seconds
        self._pauses = (
            itertools.repeat(pauses)
            if isinstance(pauses, float | int)
            else iter(pauses)
        )

    @property
    def left(self) -> float:
        """Seconds until the deadline; 0 or less after it."""
        return self._give_up - time.monotonic()

    def next_pause(self, *, at_least: float = 0.0) -> float | None:
        """Return the seconds before the next attempt, if there is one in time."""
        pause = next(self._pauses, None)
        seconds_left = self.left
        if pause is None or seconds_left <= 0 or at_least > seconds_left:
            return None
        return min(max(pause, at_least), seconds_left)

    async def wait(self, *, at_least: float = 0.0) -> bool:
        """Pause before the next attempt; return False at once if there is none."""
        pause = self.next_pause(at_least=at_least)
        if pause is not None:
            await asyncio.sleep(pause)
        return pause is not None


logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)


class LogThrottle:
    """Failures in a row, of which the first is logged and then one a minute.

    Args:
        clock: returns the time in seconds.
        interval: seconds between two failures that are to be logged.

    Attributes:
        failures: their number since the last success.
        should_log: whether the last failure is to be logged.

    Example:
        >>> throttle = LogThrottle(clock=iter([0.0, 1.0]).__next__)
        >>> throttle.record_failure()
        >>> throttle.record_failure()
        >>> throttle.failures, throttle.should_log
        (2, False)
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        interval: float = LOG_INTERVAL,
    ) -> None:
        self.failures = 0
        self.should_log = False
        self._clock = clock
        self._interval = interval
        self._logged_at = -math.inf

    def record_failure(self) -> None:
        now = self._clock()
        self.failures += 1
        self.should_log = now - self._logged_at >= self._interval
        if self.should_log:
            self._logged_at = now

    def record_success(self) -> None:
        """Log the next failure at once, whenever it comes."""
        self.failures = 0
        self._logged_at = -math.inf


class Outage:
    """A time in which requests fail, from the first failure to the next success.

    Args:
        clock: returns the time in seconds.
        server: what fails, at the start of log lines: at once, once a minute, and at the end.
            Without it the caller writes them.
        unit: what `lost` counts, in log lines.

    Attributes:
        lost: what was lost since the outage began.
        episode: another object for each outage: the subject of `throttled` messages, so that the
            first of each is logged.

    Example:
        >>> outage = Outage(clock=iter([0.0, 1.0, 2.0]).__next__)
        >>> outage.record_failure()
        >>> outage.record_failure()
        >>> outage.lost, outage.end(), outage.end()
        (2, 2.0, None)
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        server: str = "",
        unit: str = "groups lost",
    ) -> None:
        self.lost = 0
        self.episode = object()
        self._clock = clock
        self._server = server
        self._unit = unit
        self._since: float | None = None
        self._failing: set[object] = set()

    def __bool__(self) -> bool:
        """Return whether the outage is ongoing."""
        return self._since is not None

    @property
    def seconds(self) -> float:
        """Seconds since the outage began; 0 if there is none."""
        return 0.0 if self._since is None else self._clock() - self._since

    def record_failure(
        self,
        why: str = "",
        *,
        lost: int = 1,
        already: float = 0.0,
        request: object = None,
    ) -> None:
        """Count a failure.

        Args:
            already: seconds that the outage had lasted before the first failure was seen.
            request: the outage lasts until this one succeeds, or ends.
        """
        now = self._clock()
        if self._since is None:
            self._since = now - already
            self.episode = object()
            self.lost = 0
        self.lost += lost
        if request is not None:
            self._failing.add(request)
        if self._server:
            seconds = now - self._since
            lasting = f" for {seconds:.0f} s" if seconds >= 1 else ""
            logger.warning(
                "%s doesn't answer%s: %s",
                self._server,
                lasting,
                why,
                extra=throttled(self.episode),
            )

    @contextlib.contextmanager
    def request(self) -> Iterator[object]:
        """Yield a key for the failures of one request, which are forgotten with it."""
        request = object()
        try:
            yield request
        finally:
            self._failing.discard(request)

    def end(self, request: object = None) -> float | None:
        """End the outage, unless other requests fail; return its seconds, None if none ends."""
        self._failing.discard(request)
        if self._since is None or self._failing:
            return None
        seconds = self._clock() - self._since
        self._since = None
        if self._server:
            message = "%s is back after %.0f s, %d %s"
            logger.warning(message, self._server, seconds, self.lost, self._unit)
        return seconds


@contextlib.contextmanager
def logging_wait(what: str, *, interval: float = 10.0) -> Iterator[None]:
    """Log every `interval` seconds how long the block has waited for something.

    A thread of its own logs, since the block may hold up the event loop.
    """
    is_over = threading.Event()

    def log() -> None:
        began = time.monotonic()
        while not is_over.wait(interval):
            logger.info("Waiting for %s, %.0f s", what, time.monotonic() - began)

    thread = threading.Thread(target=log, name="logging-wait", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def limit_loop_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Log each kind of error of an event loop at most once a minute."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if THROTTLE.admits(("asyncio", context["message"])):
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


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


async def _connect(url: str) -> None:
    """Connect once; raises OSError, or ValueError if the URL has no host or a bad port."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("it has no host")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(parts.hostname, port), 5.0
        )
    except asyncio.TimeoutError as error:
        raise OSError("no answer") from error
    writer.close()


async def require_reachable(
    urls: Sequence[str],
    *,
    what: str,
    hint: str,
    seconds: float,
    interval: float = 10.0,
) -> None:
    """Wait until a server listens at one of the URLs.

    Args:
        what: the server's name in messages.
        hint: what the user can do, in messages.
        seconds: how long to keep trying.
        interval: seconds between log lines; the first is immediate.

    Raises:
        UnreachableError: no server listens in time.
        ConfigurationError: a URL is malformed.
    """
    policy = retries.RetryPolicy(seconds=seconds, first_pause=min(1.0, interval))
    retry = retries.Retry(policy)
    for attempt in itertools.count(1):
        problems = []
        for url in urls:
            try:
                await _connect(url)
                return
            except ValueError as error:
                raise ConfigurationError(
                    f"{what}: {url!r} is not a valid URL: {error}"
                ) from error
            except OSError as error:
                # Python adds a number and the address to the reason.
                number = error.errno or 0
                reason = (
                    os.strerror(number) if number > 0 else error.strerror or str(error)
                )
                problems.append(f"{url} ({reason})")
        message = f"{what} can't be reached at {', '.join(problems)}"
        seconds_left = retry.seconds_left
        if seconds_left > 0:
            logger.warning(
                "%s, attempt %d: %s; %.0f s left",
                message,
                attempt,
                hint,
                seconds_left,
                extra=throttled(what, interval=interval),
            )
        if not await retry.wait():
            raise UnreachableError(f"{message}: {hint}")
