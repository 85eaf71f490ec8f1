"""Failover: which server gets a request, and when a request is given up.

A request that fails goes to the next server. One that all refuse because of their rate limits
waits for its turn. A server at work on long completions sends nothing either, so after seconds
without a reply it is asked for a sign of life. docs/reliability.md has the whole policy.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ..util.log_throttle import LOG_INTERVAL, THROTTLE, throttled
from ..util.outages import Outage, UnreachableError
from ..util.retries import Retry, RetryPolicy
from .errors import HangingError, RequestTimeoutError, describe, is_transient
from .rate_limit import is_rate_limited
from .servers import ServerClient

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)

T = TypeVar("T")

ROUNDS = RetryPolicy(
    attempts=3, first_pause=1.0, growth=2.0, longest_pause=10.0, jitter=True
)
"""How often a request is sent to all servers: three rounds bridge a failure of seconds."""

COOLING_SECONDS = 30.0
"""How long a server that has failed comes last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FailoverPolicy:
    """When a request is given up that all servers fail.

    Attributes:
        rounds: how often and for how long it is sent to all of them. Its seconds count from the
            request's start, or from the first of nothing but failures.
        outage_timeout: seconds of nothing but failures after which a request also no longer waits
            for a silent server.
    """

    rounds: RetryPolicy = ROUNDS
    outage_timeout: float = math.inf

    @classmethod
    def retrying_for(
        cls, seconds: float, *, outage_timeout: float = math.inf
    ) -> FailoverPolicy:
        """Return the policy of further rounds until so many seconds have passed."""
        return cls(
            rounds=replace(ROUNDS, seconds=seconds), outage_timeout=outage_timeout
        )


THREE_ROUNDS = FailoverPolicy()
"""The policy unless the caller gives another."""


class HangDetector:
    """Awaits the replies of one server and abandons requests that will not get one.

    A request is abandoned at the server's `timeout`, or when the server has shown no sign of life
    for `silence_timeout`. Nothing else ends it: how long others took says nothing about it.

    Attributes:
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
        self._server = server
        self._clock = clock
        self._started: dict[object, float] = {}
        self._last_sign = -math.inf
        self._last_check = -math.inf
        name = f"The inference server at {server.config.base_url}"
        self._outage = Outage(clock, server=name, unit="requests given up")

    async def reply(self, request: asyncio.Future[T], check: Callable[[], None]) -> T:
        """Await the reply to a request; raise HangingError if it is abandoned.

        `check` is called while waiting; what it raises ends the wait.
        """
        started = self._clock()
        self._started[request] = started
        try:
            while not (await asyncio.wait({request}, timeout=self.check_seconds))[0]:
                await self._check_alive()
                if request.done():
                    break
                check()
                age = self._clock() - started
                self._log_long_waits(started)
                self._raise_if_hanging(age)
            answer = request.result()
        finally:
            del self._started[request]
            request.cancel()
        self._last_sign = self._clock()
        self._outage.end()
        return answer

    @property
    def is_silent(self) -> bool:
        """Whether the server has shown no sign of life for seconds."""
        return self._silence() >= self.quiet_seconds

    def _silence(self) -> float:
        """Return the seconds since the last sign of life, or since the oldest waiting request."""
        return self._clock() - max(self._last_sign, min(self._started.values()))

    def _log_long_waits(self, started: float) -> None:
        """Log once a minute which requests of a live server wait how long.

        Args:
            started: of the request that asks. The oldest one's line is that of all.
        """
        now = self._clock()
        is_oldest = started == min(self._started.values())
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

    async def _check_alive(self) -> None:
        """Ask a silent server for a sign of life; log if there is none."""
        if not self.is_silent or self._clock() - self._last_check < self.quiet_seconds:
            return
        self._last_check = self._clock()
        if await self._server.is_alive():
            self._last_sign = self._clock()
            self._outage.end()
        else:
            silence = self._silence()
            why = (
                f"{len(self._started)} requests in flight, no data for {silence:.0f} s"
            )
            self._outage.record_failure(why, losses=0, already=silence)

    def _raise_if_hanging(self, age: float) -> None:
        at = self._server.config.base_url
        if min(age, self._silence()) >= self.silence_timeout:
            self._outage.add_losses(1)
            raise HangingError(
                f"the inference server at {at} was silent for {self.silence_timeout:g} s"
            )
        if age >= self._server.config.timeout:
            raise RequestTimeoutError(
                f"no reply from {at} after {age:.0f} s, its --openai.timeout"
            )


class Backend:
    """One server with what is known of it: its requests in flight and its failures.

    Attributes:
        detector: awaits its replies.
        in_flight: the number of requests that were sent or wait for a place.
    """

    def __init__(self, server: ServerClient, clock: Callable[[], float]) -> None:
        self.server = server
        self.detector = HangDetector(server, clock)
        self.in_flight = 0
        self._clock = clock
        self._failed_at: float | None = None

    @property
    def is_cooling(self) -> bool:
        """Whether it failed within the last COOLING_SECONDS."""
        failed_at = self._failed_at
        return failed_at is not None and self._clock() - failed_at < COOLING_SECONDS

    def claim_trial(self) -> None:
        """Let others wait for the result of the request that tries a failed server again."""
        if self._failed_at is not None:
            self._failed_at = self._clock()

    def record_success(self) -> None:
        self._failed_at = None

    def record_failure(self, error: Exception, *, others: bool) -> None:
        """Begin to cool; log the failure, once a minute.

        Args:
            others: whether there are other servers to try.
        """
        self._failed_at = self._clock()
        logger.warning(
            "The inference server at %s fails%s: %s",
            self.server.config.base_url,
            ", trying others" if others else "",
            describe(error),
            extra=throttled(self.server.config.base_url),
        )

    async def send(
        self,
        request: Callable[[ServerClient], Coroutine[None, None, T]],
        split: str,
        check: Callable[[], None],
    ) -> T:
        """Wait for a place and for the rate limit, then return the reply; see `HangDetector`."""
        server = self.server
        self.in_flight += 1
        try:
            # before the detector's clock starts: waiting for either is not the server's time
            async with server.admit(split), server.rate_limit.turn():
                return await self.detector.reply(
                    asyncio.ensure_future(request(server)), check
                )
        finally:
            self.in_flight -= 1


class Failover:
    """Sends requests to the least busy server, then to the next if it fails.

    A server that failed comes last for a while; then a single request tries it again.

    Attributes:
        backends: one per server.
    """

    def __init__(
        self,
        servers: Sequence[ServerClient],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.backends = [Backend(server, clock) for server in servers]
        self._clock = clock
        self._outage = Outage(clock)
        self._first_failure = ""

    async def send(
        self,
        request: Callable[[ServerClient], Coroutine[None, None, T]],
        split: str = "train",
        policy: FailoverPolicy = THREE_ROUNDS,
    ) -> T:
        """Return the result of the first server that does not fail.

        Each round tries all servers. Waiting for a rate limit is no round.

        Raises:
            Exception: what the last server raised; a transient error takes precedence.
        """
        retry = Retry(policy.rounds, clock=self._clock)
        while True:
            try:
                return await self._try_all(request, split, policy)
            except Exception as error:
                if is_rate_limited(error):
                    continue  # the next round waits for its turn
                if isinstance(error, UnreachableError) or not is_transient(error):
                    raise
                if isinstance(error, HangingError):
                    # The servers had a minute of silence to recover, or the request its whole
                    # timeout: longer than the pauses of three rounds.
                    retry.use_up_attempts()
                pause = retry.next_pause(failing_for=self._outage.seconds)
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    async def _try_all(
        self,
        request: Callable[[ServerClient], Coroutine[None, None, T]],
        split: str,
        policy: FailoverPolicy,
    ) -> T:
        """Return the first server's result, or raise the most telling of their errors.

        That is a rate limit, whose end the request can wait for, else the last transient one.
        """
        failures: list[Exception] = []
        for backend in self._claim_order():
            check = functools.partial(
                self._check_outage, backend, policy.outage_timeout
            )
            try:
                answer = await backend.send(request, split, check)
            except RequestTimeoutError:
                raise  # the server is alive; another one would have to start anew
            except Exception as error:  # noqa: BLE001 - raised below if no server answers
                failures.append(error)
                if not is_rate_limited(error):
                    backend.record_failure(error, others=len(self.backends) > 1)
            else:
                backend.record_success()
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

    def _claim_order(self) -> list[Backend]:
        """Return all servers, the one to try first in front."""
        order = sorted(
            self.backends,
            key=lambda backend: (
                backend.is_cooling,
                backend.server.rate_limit.pause,
                backend.in_flight,
            ),
        )
        order[0].claim_trial()
        return order

    def _check_outage(self, backend: Backend, outage_timeout: float) -> None:
        """Raise UnreachableError if all have failed for too long and the server is silent."""
        if backend.detector.is_silent and self._outage.seconds > outage_timeout:
            raise UnreachableError(
                f"no server has answered for {outage_timeout:g} s: {self._first_failure}"
            )

    @property
    def waiting(self) -> str:
        """What requests wait for; empty unless all servers pause for their rate limits."""
        pauses = [str(backend.server.rate_limit) for backend in self.backends]
        return "; ".join(pauses) if all(pauses) else ""
