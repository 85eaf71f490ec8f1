"""Failover: which server gets a request, and when a request is given up.

A request that fails goes to the next server. One that all refuse because of their rate limits
waits for its turn. A server at work on long completions sends nothing either, so after seconds
without a reply it is asked for a sign of life.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TypeVar

from ..util.outages import LogThrottle, Outage, UnreachableError, backoff
from .errors import HangingError, describe, is_transient
from .rate_limit import is_rate_limited
from .servers import ServerClient

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE = 10
"""A request is abandoned after this many times the seconds of the slowest of the last replies."""

LEAST_SECONDS = 60.0
STALLED_SECONDS = 10.0
"""It waits at least so long, and so long where no request gets a reply."""

COOLING_SECONDS = 30.0
"""How long a server that has failed comes last."""


class HangDetector:
    """Awaits the replies of one server and abandons requests that will hardly get one.

    A server that shows no sign of life is silent. A server may also forget a request while it is
    alive. So a request is abandoned after ten times the seconds of the slowest of the last 256
    replies: at least after 60 s, or after 10 s while no request gets a reply. Until the first
    reply, the server's own `timeout` applies, which always is the most.

    Attributes:
        compares: whether requests are abandoned before `timeout`, by the time that others took.
        check_seconds: interval between two checks of a waiting request.
        silence_timeout: seconds without a sign of life after which requests are abandoned.
    """

    check_seconds = 1.0
    quiet_seconds = 4.0
    """Seconds without a reply after which a server is asked for a sign of life, for up to 4 s."""

    def __init__(
        self, server: ServerClient, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.silence_timeout = 60.0
        self.compares = True
        self._server = server
        self._clock = clock
        self._started: dict[object, float] = {}
        self._last_sign = self._last_check = self._last_reply = -math.inf
        self._recent: deque[float] = deque(maxlen=256)
        name = f"The inference server at {server.config.base_url}"
        self._outage = Outage(clock, server=name, unit="requests given up")
        self._wait = Outage(clock)

    async def reply(self, request: asyncio.Future[T], check: Callable[[], None]) -> T:
        """Await the reply to a request; raise HangingError if it is abandoned.

        `check` is called while waiting; what it raises ends the wait.
        """
        self._started[request] = self._clock()
        try:
            while not (await asyncio.wait({request}, timeout=self.check_seconds))[0]:
                await self._check_alive()
                if request.done():
                    break
                check()
                self._log_wait()
                self._raise_if_hanging(self._clock() - self._started[request])
            answer = request.result()
        finally:
            started = self._started.pop(request)
            request.cancel()
        self._last_sign = self._last_reply = self._clock()
        self._recent.append(self._last_reply - started)
        self._outage.end()
        self._wait.end()
        return answer

    @property
    def is_silent(self) -> bool:
        """Whether the server has shown no sign of life for seconds."""
        return self._since(self._last_sign) >= self.quiet_seconds

    def _since(self, event: float) -> float:
        """Return the seconds since an event, or since the oldest waiting request if it is later."""
        return self._clock() - max(event, min(self._started.values()))

    def _log_wait(self) -> None:
        """Log once a minute that a live server lets all requests wait longer than usual."""
        seconds = self._since(self._last_reply)
        if (
            not self._recent
            or seconds < max(8.0, 2 * max(self._recent))
            or self.is_silent
        ):
            return
        self._wait.record_failure(already=seconds)
        if self._wait.should_log:
            logger.warning(
                "No reply from %s for %.0f s: %d requests wait; the longest of the last replies "
                "took %.1f s",
                self._server.config.base_url,
                seconds,
                len(self._started),
                max(self._recent),
            )

    async def _check_alive(self) -> None:
        """Ask a silent server for a sign of life; log if there is none."""
        if not self.is_silent or self._clock() - self._last_check < self.quiet_seconds:
            return
        self._last_check = self._clock()
        if await self._server.is_alive():
            self._last_sign = self._clock()
            self._outage.end()
        else:
            silence = self._since(self._last_sign)
            why = (
                f"{len(self._started)} requests in flight, no data for {silence:.0f} s"
            )
            self._outage.record_failure(why, lost=0, already=silence)

    def _raise_if_hanging(self, age: float) -> None:
        at = self._server.config.base_url
        silence = self.silence_timeout
        if min(age, self._since(self._last_sign)) >= silence:
            self._outage.lost += 1
            raise HangingError(
                f"the inference server at {at} was silent for {silence:g} s"
            )
        limit = self._server.config.timeout
        if self.compares and self._recent:
            usual = PATIENCE * max(self._recent)
            stalled = self._since(self._last_reply) >= max(usual, STALLED_SECONDS)
            least = STALLED_SECONDS if stalled else LEAST_SECONDS
            limit = min(limit, max(usual, least))
        if age >= limit:
            self._outage.lost += 1
            longest = max(self._recent, default=0.0)
            raise HangingError(
                f"no reply from {at} after {age:.0f} s; the longest before took {longest:.1f} s"
            )


class Failover:
    """Sends requests to the least busy server, then to the next if it fails.

    A server that failed comes last for a while; then a single request tries it again.

    Attributes:
        outage_timeout: seconds of nothing but failures after which requests to a silent server
            fail as well, and retries end.
        detectors: one per server.
    """

    def __init__(
        self,
        servers: Sequence[ServerClient],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.outage_timeout = math.inf
        self.detectors = [HangDetector(server, clock) for server in servers]
        self._servers = servers
        self._clock = clock
        self._in_flight: Counter[int] = Counter()
        self._failed_at: dict[int, float] = {}
        self._throttles = defaultdict[int, LogThrottle](lambda: LogThrottle(clock))
        self._outage = Outage(clock)
        self._first_failure = ""

    async def send(
        self,
        request: Callable[[ServerClient], Coroutine[None, None, T]],
        split: str = "train",
        *,
        retry_seconds: float = 0.0,
    ) -> T:
        """Return the result of the first server that does not fail.

        If all fail with transient errors, they are tried three times with growing pauses. Waiting
        for a rate limit is not a try.

        Args:
            retry_seconds: how long to try more often than that, counted from this request's start
                or from the first of nothing but failures.

        Raises:
            Exception: what the last server raised; a transient error takes precedence.
        """
        started = self._clock()
        attempts = 0
        pauses = backoff()
        while True:
            try:
                return await self._try_all(request, split)
            except Exception as error:
                if is_rate_limited(error):
                    continue  # the next attempt waits for its turn
                attempts += 1
                seconds = max(self._clock() - started, self._outage.seconds)
                enough = attempts >= 3 or isinstance(error, HangingError)
                is_last = enough and seconds >= min(retry_seconds, self.outage_timeout)
                if (
                    is_last
                    or isinstance(error, UnreachableError)
                    or not is_transient(error)
                ):
                    raise
            await asyncio.sleep(next(pauses))

    async def _try_all(
        self, request: Callable[[ServerClient], Coroutine[None, None, T]], split: str
    ) -> T:
        failures: list[Exception] = []
        for number in self._claim_order():
            try:
                answer = await self._try_one(number, request, split)
            except Exception as error:  # noqa: BLE001 - raised below if no server answers
                failures.append(error)
                if is_rate_limited(error):
                    continue
                self._failed_at[number] = self._clock()
                self._throttles[number].record_failure()
                if self._throttles[number].should_log:  # once a minute for each
                    others = ", trying others" if len(self._servers) > 1 else ""
                    url = self._servers[number].config.base_url
                    why = describe(error)
                    logger.warning(
                        "The inference server at %s fails%s: %s", url, others, why
                    )
            else:
                self._failed_at.pop(number, None)
                self._outage.end()
                return answer
        limited = next(filter(is_rate_limited, failures), None)
        if limited:
            raise limited
        worst = next(filter(is_transient, reversed(failures)), failures[-1])
        if not self._outage:
            self._first_failure = describe(worst)
        self._outage.record_failure()
        raise worst

    def _claim_order(self) -> list[int]:
        """Return all servers' numbers, the one to try first in front."""
        now = self._clock()
        cooling = {n for n, at in self._failed_at.items() if now - at < COOLING_SECONDS}
        pauses = [server.rate_limit.pause for server in self._servers]
        order = sorted(
            range(len(self._servers)),
            key=lambda n: (n in cooling, pauses[n], self._in_flight[n]),
        )
        if order[0] in self._failed_at:
            self._failed_at[order[0]] = now  # others wait for this request's result
        return order

    async def _try_one(
        self,
        number: int,
        request: Callable[[ServerClient], Coroutine[None, None, T]],
        split: str,
    ) -> T:
        server = self._servers[number]
        detector = self.detectors[number]

        def check_outage() -> None:
            """Raise UnreachableError if all have failed for too long and the server is silent."""
            if detector.is_silent and self._outage.seconds > self.outage_timeout:
                raise UnreachableError(
                    f"no server has answered for {self.outage_timeout:g} s: {self._first_failure}"
                )

        self._in_flight[number] += 1
        try:
            # before the detector's clock starts: waiting for either is not the server's time
            async with server.admit(split), server.rate_limit.turn():
                return await detector.reply(
                    asyncio.ensure_future(request(server)), check_outage
                )
        finally:
            self._in_flight[number] -= 1

    @property
    def waiting(self) -> str:
        """What requests wait for; empty unless all servers pause for their rate limits."""
        pauses = [str(server.rate_limit) for server in self._servers]
        return "; ".join(pauses) if all(pauses) else ""
