"""Whether an inference server answers: its replies, and in a pause between them its `/health`."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ..util.log_throttle import (
    LOG_INTERVAL,
    THROTTLE,
    LogPauses,
    Reminders,
    throttled,
)
from .errors import RequestTimeoutError
from .servers import ServerClient

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)

T = TypeVar("T")

CHECK_SECONDS = 1.0
"""Interval between two checks of a waiting request."""

QUIET_SECONDS = 4.0
"""Seconds without a reply after which `/health` is requested, again after as many."""

SILENT_SECONDS = 10.0
"""Seconds without an answer after which a server is silent: two health checks have failed."""

LONG_SILENCE = 60.0
"""Seconds of silence that are logged, and after which waiting requests are asked once more."""

STEADY_SECONDS = 10.0
"""How long a server must answer after a silence to count as back. One that blocks while it
generates answers for a moment only, between two generations."""


class SilenceTimes(NamedTuple):
    """The seconds of silence that matter; tests shorten them.

    Attributes:
        quiet: as QUIET_SECONDS.
        silent: as SILENT_SECONDS.
        long: as LONG_SILENCE.
        steady: as STEADY_SECONDS.
    """

    quiet: float = QUIET_SECONDS
    silent: float = SILENT_SECONDS
    long: float = LONG_SILENCE
    steady: float = STEADY_SECONDS


DEFAULT_TIMES = SilenceTimes()


class Liveness:
    """Awaits the replies of one server, and knows since when it is silent.

    A server that generates may be silent as well, so silence ends no request: that does its
    connection, whose other end the kernel watches, or the server's `timeout`.

    Attributes:
        check_seconds: interval between two checks of a waiting request.
    """

    check_seconds = CHECK_SECONDS

    def __init__(
        self,
        server: ServerClient,
        clock: Callable[[], float] = time.monotonic,
        times: SilenceTimes = DEFAULT_TIMES,
    ) -> None:
        self._server = server
        self._times = times
        self._clock = clock
        self._started: dict[object, float] = {}  # the oldest first
        self._last_sign = -math.inf
        self._last_check = -math.inf
        self._answering_since = -math.inf
        self._long_silence_ended = -math.inf
        self._unanswered_since: float | None = None
        """The start of the first request since the last sign of life, given up or not."""
        self._is_reported = False
        self._reminders = self._new_reminders()

    def _new_reminders(self) -> Reminders:
        """Return when to log a silence that has become long: at once, then ever less often."""
        pauses = LogPauses(first=self._times.long, longest=math.inf)
        return Reminders(pauses, clock=self._clock)

    async def reply(self, request: asyncio.Future[T]) -> T:
        """Await the reply to a request; raise RequestTimeoutError at the server's `timeout`."""
        started = self._clock()
        self._started[request] = started
        if self._unanswered_since is None:
            self._unanswered_since = started
        try:
            while not (await asyncio.wait({request}, timeout=self.check_seconds))[0]:
                await self._check_alive()
                if request.done():
                    break
                self._log_long_waits(started)
                self._raise_at_timeout(started)
            answer = request.result()
            self._record_sign()
        finally:
            del self._started[request]
            request.cancel()
        return answer

    @property
    def asked(self) -> int:
        """The number of requests that the server has not answered yet."""
        return len(self._started)

    @property
    def silence(self) -> float:
        """Seconds since the last sign of life, or since the oldest waiting request if later."""
        if not self._started:
            return 0.0
        return self._clock() - max(self._last_sign, self._oldest_start)

    @property
    def _reported_silence(self) -> float:
        """Seconds of silence that requests have found, those included that were given up."""
        since = self._unanswered_since
        return max(self.silence, 0.0 if since is None else self._clock() - since)

    @property
    def _oldest_start(self) -> float:
        """When the oldest waiting request started."""
        return next(iter(self._started.values()))

    @property
    def is_silent(self) -> bool:
        """Whether requests wait, and the server has answered nothing for SILENT_SECONDS."""
        return self.silence >= self._times.silent

    @property
    def is_steady(self) -> bool:
        """Whether the server is not silent, and has not been within STEADY_SECONDS."""
        answering = self._clock() - self._answering_since
        return not self.is_silent and answering >= self._times.steady

    def may_have_lost(self, started: float) -> bool:
        """Return whether a request from then has waited through a long silence."""
        return self.silence >= self._times.long or started < self._long_silence_ended

    @property
    def waiting(self) -> str:
        """Say which server has been silent for a minute, and what waits; empty if none has."""
        if self.silence < self._times.long:
            return ""
        count = len(self._started)
        requests = "1 request waits" if count == 1 else f"{count} requests wait"
        return (
            f"the inference server at {self._server.config.base_url} has been silent for "
            f"{self._reported_silence:.0f} s, {requests}: look at its log or restart it, unless it "
            "is silent while it generates"
        )

    async def _check_alive(self) -> None:
        """Ask a quiet server for a sign of life; log a silence of a minute, then ever less."""
        now = self._clock()
        if (
            self.silence < self._times.quiet
            or now - self._last_check < self._times.quiet
        ):
            return
        self._last_check = now
        if await self._server.is_alive():
            self._record_sign()
            return
        if self.silence < self._times.long or not self._reminders.is_due():
            return
        self._is_reported = True
        logger.warning(
            "Waiting: %s. Each request ends at --openai.timeout, %g s, or with its connection",
            self.waiting,
            self._server.config.timeout,
        )

    def _record_sign(self) -> None:
        """Record that the server has answered just now."""
        now = self._clock()
        silence = self.silence
        if silence >= self._times.silent:
            self._answering_since = now
        if silence >= self._times.long:
            self._long_silence_ended = now
        if self._is_reported:
            self._is_reported = False
            self._reminders = self._new_reminders()
            logger.warning(
                "The inference server at %s answers again, after %.0f s",
                self._server.config.base_url,
                self._reported_silence,
            )
        self._last_sign = now
        self._unanswered_since = None

    def _log_long_waits(self, started: float) -> None:
        """Log once a minute which requests of a live server wait how long.

        Args:
            started: of the request that asks. The oldest one's line is that of all.
        """
        now = self._clock()
        is_oldest = started == self._oldest_start
        if not is_oldest or now - started < LOG_INTERVAL or self.is_silent:
            return
        ages = [now - started for started in self._started.values()]
        longest = sorted((age for age in ages if age >= LOG_INTERVAL), reverse=True)
        shown = ", ".join(f"{age:.0f}" for age in longest[:8])
        logger.info(
            "%d of %d requests to %s wait for more than a minute: %s s%s; each ends at "
            "--openai.timeout, %g s",
            len(longest),
            len(ages),
            self._server.config.base_url,
            shown,
            ", …" if len(longest) > 8 else "",
            self._server.config.timeout,
            extra=throttled(self._server.config.base_url),
        )

    def _raise_at_timeout(self, started: float) -> None:
        age = self._clock() - started
        if age >= self._server.config.timeout:
            raise RequestTimeoutError(
                f"no reply from {self._server.config.base_url} after {age:.0f} s, its "
                "--openai.timeout"
            )
