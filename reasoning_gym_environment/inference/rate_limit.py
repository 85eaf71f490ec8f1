"""The rate limit of a server: requests wait their turn, and fewer go out at once."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TypeVar

import aiohttp

from ..util.log_throttle import THROTTLE, throttled
from ..util.outages import UnreachableError
from .errors import describe, is_transient

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)


T = TypeVar("T")


def is_rate_limited(error: BaseException) -> bool:
    """Return whether a server gets too many requests: 429 (no quota aside), or 503 with a time."""
    if not isinstance(error, aiohttp.ClientResponseError) or not is_transient(error):
        return False
    return error.status == HTTPStatus.TOO_MANY_REQUESTS or (
        error.status == HTTPStatus.SERVICE_UNAVAILABLE
        and retry_after(error) is not None
    )


def retry_after(error: aiohttp.ClientResponseError) -> float | None:
    """Return the seconds that a refusal's Retry-After asks for; None without a valid one.

    A date counts from the reply's own Date if it has one, since clocks differ.
    """

    def date(name: str) -> datetime | None:
        try:
            date = parsedate_to_datetime(headers.get(name, ""))
        except ValueError:
            return None
        return date if date.tzinfo else date.replace(tzinfo=timezone.utc)

    headers: Mapping[str, str] = error.headers or {}
    value = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    until = date("Retry-After")
    if until is None:
        return None
    return max(
        0.0, (until - (date("Date") or datetime.now(timezone.utc))).total_seconds()
    )


class RateLimit:
    """The pauses and the concurrency of the requests to one server.

    A refusal halves the concurrency, and pauses all requests for as long as the server asks, at
    most ten minutes. If it does not say, the pause doubles with each round of refusals. Each round
    of successes adds one to the concurrency, which is unlimited before the first refusal.

    Args:
        url: the server's, for messages.
        first_pause: seconds after a refusal that names no time; the least after any.
        patience: seconds of nothing but refusals after which waiting requests fail.
    """

    def __init__(
        self,
        url: str,
        *,
        first_pause: float = 1.0,
        patience: float = 1800.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._first_pause = self._next_pause = first_pause
        self._patience = patience
        self._clock = clock
        self._concurrency = math.inf
        self._in_flight = 0
        self._lowered_at = self._resume_at = -math.inf
        self._refused_since = math.inf
        self._refusal = ""
        self._queue = asyncio.Lock()
        self._changed = asyncio.Event()

    @contextmanager
    def waiting_at_most(self, seconds: float) -> Iterator[None]:
        """Let requests fail after so many seconds of refusals if that is less than usual."""
        usual = self._patience
        self._patience = min(usual, seconds)
        try:
            yield
        finally:
            self._patience = usual

    async def until_answered(self, request: Callable[[], Awaitable[T]]) -> T:
        """Send a request again while it is refused; raises UnreachableError, and what it raises."""
        while True:
            try:
                async with self.turn():
                    return await request()
            except aiohttp.ClientResponseError as error:
                if not is_rate_limited(error):
                    raise

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait in line until a request may be sent and hold its place; raises UnreachableError."""
        async with self._queue:
            await self._wait()
        self._in_flight += 1
        sent = self._clock()
        try:
            yield
            self._next_pause = self._first_pause
            self._refused_since = math.inf
            self._concurrency += 1 / self._concurrency
        except aiohttp.ClientResponseError as error:
            if is_rate_limited(error):
                self._record_refusal(error, sent)
            raise
        finally:
            self._in_flight -= 1
            self._changed.set()

    async def _wait(self) -> None:
        if not self._in_flight and self._clock() > self._resume_at + 60.0:
            self._refused_since = math.inf  # nothing was asked since the pause
        while self.pause > 0 or self._in_flight + 1 > self._concurrency:
            seconds_left = self._refused_since + self._patience - self._clock()
            if seconds_left <= 0:
                raise UnreachableError(
                    f"the inference server at {self._url} has refused all requests for "
                    f"{self._patience / 60:g} min because of its rate limit: {self._refusal}"
                )
            self._changed.clear()
            seconds = min(seconds_left, self.pause or math.inf)
            waiting = asyncio.create_task(self._changed.wait())
            try:  # `wait_for` of Python 3.11 may swallow a cancellation
                await asyncio.wait(
                    {waiting}, timeout=None if math.isinf(seconds) else seconds
                )
            finally:
                waiting.cancel()

    @property
    def pause(self) -> float:
        """Seconds until a request may be sent; 0 without a pause."""
        return max(0.0, self._resume_at - self._clock())

    def __str__(self) -> str:
        """Describe the pause; empty without one."""
        if not self.pause:
            return ""
        until = time.strftime("%H:%M:%S", time.localtime(time.time() + self.pause))
        return f"waiting until {until} for the rate limit of {self._url}"

    def _record_refusal(self, error: aiohttp.ClientResponseError, sent: float) -> None:
        now = self._clock()
        wanted_pause = retry_after(error) or 0.0
        longest = 600.0
        self._refusal = describe(error)
        self._refused_since = min(self._refused_since, now)
        pause = self._first_pause
        if sent >= self._lowered_at:  # the first refusal of a round
            self._lowered_at = now
            self._concurrency = max(1.0, min(self._concurrency, self._in_flight) // 2)
            pause = self._next_pause
            self._next_pause = 2 * self._next_pause
        if wanted_pause >= self._first_pause:
            pause = wanted_pause
        pause = min(pause, longest) * random.uniform(1.0, 1.1)  # replicas share a limit
        self._resume_at = max(self._resume_at, now + pause)
        logger.warning(
            "Rate limit: %s; %spausing for %.0f s, then %d at a time at most",
            self._refusal,
            f"it asks for {wanted_pause:g} s; " if wanted_pause > longest else "",
            pause,
            self._concurrency,
            extra=throttled(self._url),
        )
