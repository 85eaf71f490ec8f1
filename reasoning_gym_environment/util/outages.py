"""Outages, and waiting until a server is reachable."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from ..errors import TRY_AGAIN, ConfigurationError, FixableError
from .log_throttle import LOG_PAUSES, THROTTLE, LogPauses, Reminders, throttled
from .retries import Retry, RetryPolicy

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)


class Outage:
    """A time in which requests fail, from the first failure to the next success.

    Args:
        clock: returns the time in seconds.
        server: what fails, at the start of log lines: at once, once a minute, and at the end.
            Without it the caller writes them.
        unit: what `losses` counts, in log lines.

    Attributes:
        losses: what was lost since the outage began.
        episode: another object for each outage: the subject of `throttled` messages, so that the
            first of each is logged.

    Example:
        >>> outage = Outage(clock=iter([0.0, 1.0, 2.0]).__next__)
        >>> outage.record_failure()
        >>> outage.record_failure()
        >>> outage.losses, outage.end(), outage.end()
        (2, 2.0, None)
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        server: str = "",
        unit: str = "groups lost",
    ) -> None:
        self.losses = 0
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
        losses: int = 1,
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
            self.losses = 0
        self.losses += losses
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

    def add_losses(self, count: int) -> None:
        """Count what is lost after its failure was recorded."""
        self.losses += count

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
            logger.warning(message, self._server, seconds, self.losses, self._unit)
        return seconds


@contextlib.contextmanager
def logging_wait(what: str, pauses: LogPauses = LOG_PAUSES) -> Iterator[None]:
    """Log, after pauses that grow, how long the block has waited for something.

    A thread of its own logs, since the block may hold up the event loop.
    """
    is_over = threading.Event()

    def log() -> None:
        began = time.monotonic()
        for pause in pauses.growing():
            if is_over.wait(pause):
                return
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
    pauses: LogPauses = LOG_PAUSES,
) -> None:
    """Wait until a server listens at one of the URLs.

    Args:
        what: the server's name in messages.
        hint: what the user can do, in messages.
        seconds: how long to keep trying.
        pauses: between log lines; the first is immediate.

    Raises:
        UnreachableError: no server listens in time.
        ConfigurationError: a URL is malformed.
    """
    policy = RetryPolicy(seconds=seconds, first_pause=min(1.0, pauses.first))
    retry = Retry(policy)
    reminders = Reminders(pauses)
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
        if seconds_left > 0 and reminders.is_due():
            logger.info(
                "%s, attempt %d: %s; %.0f s left", message, attempt, hint, seconds_left
            )
        if not await retry.wait():
            raise UnreachableError(f"{message}: {hint}")
