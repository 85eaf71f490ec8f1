"""The rate limit of a server: requests wait their turn, and fewer go out at once."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from itertools import groupby
from operator import attrgetter
from typing import TypeGuard, TypeVar

import aiohttp

from ..util.log_throttle import THROTTLE, throttled
from ..util.outages import UnreachableError
from .errors import describe, is_transient

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)


T = TypeVar("T")

RUN_LENGTH = 5
"""Refusals in a row that show a limit: a server that refuses 15 % of requests at random refuses so
many in a row once in 15,000 requests."""

RECENT_REQUESTS = 64
"""Requests that show how many at once a server refuses: as many later, more at once are tried."""

LONGEST_PAUSE = 600.0
"""Seconds: the longest pause after a refusal, whatever it asks for."""


def is_rate_limited(error: BaseException) -> TypeGuard[aiohttp.ClientResponseError]:
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


@dataclass(eq=False, slots=True)
class _Request:
    """A request that was sent.

    Attributes:
        in_flight: how many there were, this one included.
    """

    in_flight: int
    sent: float
    is_refused: bool = False


class RateLimit:
    """The pauses and the concurrency of the requests to one server.

    A refused request waits, and the others go on, since a server may refuse some at random. There
    are two limits that it may have instead:

    - Most of the requests beyond so many in flight are refused: no more are sent at once.
    - RUN_LENGTH requests in a row are refused: the concurrency is halved, and all requests pause
      for as long as the server asks. If it does not say, the pause doubles with each round.

    The concurrency is unlimited at first. Each round of successes adds one to it, unless the server
    has lately refused as many. No pause is above LONGEST_PAUSE.

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
        self._recent = deque[_Request](maxlen=RECENT_REQUESTS)  # as they were sent
        self._has_accepted = False
        self._lowered_at = self._paused_at = self._resume_at = -math.inf
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
                await asyncio.sleep(self.own_pause(error))

    def own_pause(self, error: aiohttp.ClientResponseError) -> float:
        """Return the seconds that a refused request waits by itself; 0 while all requests wait."""
        return 0.0 if self.pause else self._pause_of(error)

    def _pause_of(self, error: aiohttp.ClientResponseError) -> float:
        pause = max(self._first_pause, retry_after(error) or 0.0)
        # replicas share a limit
        return min(pause, LONGEST_PAUSE) * random.uniform(1.0, 1.1)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait in line until a request may be sent and hold its place; raises UnreachableError."""
        async with self._queue:
            await self._wait()
        self._in_flight += 1
        request = _Request(self._in_flight, self._clock())
        self._recent.append(request)
        try:
            yield
            self._record_acceptance()
        except aiohttp.ClientResponseError as error:
            if is_rate_limited(error):
                self._record_refusal(error, request)
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

    def _record_acceptance(self) -> None:
        self._has_accepted = True
        self._next_pause = self._first_pause
        self._refused_since = math.inf
        if not self._refuses_above(self._concurrency):
            self._concurrency += 1 / self._concurrency

    def _record_refusal(
        self, error: aiohttp.ClientResponseError, request: _Request
    ) -> None:
        now = self._clock()
        request.is_refused = True
        self._refusal = describe(error)
        self._refused_since = min(self._refused_since, now)
        is_in_run = self._is_in_run(request)
        if is_in_run:
            if request.sent >= self._lowered_at:  # the first of a round
                self._lowered_at = now
                most = min(self._concurrency, self._in_flight)
                self._concurrency = max(1.0, most // 2)
        elif self._refuses_above(request.in_flight - 1):
            most = min(self._concurrency, request.in_flight - 1)
            self._concurrency = max(1.0, most)
        if is_in_run or not self._has_accepted:
            self._pause_all(error, request)
            return
        logger.warning(
            "Rate limit: %s; refused requests wait, others go on%s",
            self._refusal,
            self._at_most,
            extra=throttled(f"single refusals of {self._url}"),
        )

    def _refuses_above(self, concurrency: float) -> bool:
        """Return whether most of the recent requests beyond so many in flight were refused."""
        beyond = [r.is_refused for r in self._recent if r.in_flight > concurrency]
        least = 3  # fewer may be chance
        return sum(beyond) >= least and 2 * sum(beyond) > len(beyond)

    def _is_in_run(self, request: _Request) -> bool:
        """Return whether a refused request is one of RUN_LENGTH in a row."""
        for is_refused, run in groupby(self._recent, attrgetter("is_refused")):
            requests = list(run)
            if request in requests:
                return is_refused and len(requests) >= RUN_LENGTH
        return False

    def _pause_all(self, error: aiohttp.ClientResponseError, request: _Request) -> None:
        now = self._clock()
        pause = self._pause_of(error)
        wanted_pause = retry_after(error) or 0.0
        if request.sent >= self._paused_at:  # the first pause of a round
            self._paused_at = now
            if wanted_pause < self._first_pause:
                pause *= self._next_pause / self._first_pause
            self._next_pause = min(2 * self._next_pause, LONGEST_PAUSE)
        self._resume_at = max(self._resume_at, now + pause)
        logger.warning(
            "Rate limit: %s; %spausing for %.0f s%s",
            self._refusal,
            f"it asks for {wanted_pause:g} s; " if wanted_pause > LONGEST_PAUSE else "",
            pause,
            self._at_most,
            extra=throttled(self._url),
        )

    @property
    def _at_most(self) -> str:
        if math.isinf(self._concurrency):
            return ""
        return f", then {self._concurrency:.0f} at a time at most"
