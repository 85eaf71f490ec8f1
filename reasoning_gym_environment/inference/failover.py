"""Failover: which server gets a request, and when a request is given up.

A request that fails goes to the next server. One that all refuse because of their rate limits
waits for its turn. One that waits at a silent server is asked once more beside it.
docs/reliability.md has the whole policy.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from statistics import fmean
from typing import Any, TypeVar

from ..util.log_throttle import THROTTLE, throttled
from ..util.outages import Outage
from ..util.retries import Retry, RetryPolicy
from .errors import RequestTimeoutError, describe, is_transient
from .liveness import Liveness
from .rate_limit import is_rate_limited
from .servers import ServerClient

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)

T = TypeVar("T")

THREE_ROUNDS = RetryPolicy(
    attempts=3, first_pause=1.0, growth=2.0, longest_pause=10.0, jitter=True
)
"""How often a request is sent to all servers: three rounds bridge a failure of seconds."""

TIMED_REPLIES = 100
"""Replies of a server over which their seconds are averaged."""

COOLING_SECONDS = 30.0
"""How long a server that has failed comes last."""


class Backend:
    """One server with what is known of it: its requests in flight and its failures.

    Args:
        has_others: whether there are other servers to try.

    Attributes:
        liveness: awaits its replies.
        in_flight: the number of requests that were sent or wait for a place.
    """

    def __init__(
        self, server: ServerClient, clock: Callable[[], float], *, has_others: bool
    ) -> None:
        self.server = server
        self.liveness = Liveness(server, clock)
        self.in_flight = 0
        self._seconds: deque[float] = deque(maxlen=TIMED_REPLIES)
        self._replies = 0
        self._clock = clock
        self._has_others = has_others
        self._failed_at: float | None = None

    @property
    def is_cooling(self) -> bool:
        """Whether it failed within the last COOLING_SECONDS."""
        failed_at = self._failed_at
        return failed_at is not None and self._clock() - failed_at < COOLING_SECONDS

    @property
    def is_available(self) -> bool:
        """Whether a request sent now may be answered soon, as far as is known."""
        is_held_back = bool(self.server.rate_limit.pause) or self.liveness.is_silent
        return not is_held_back and not self.is_cooling

    def state(self) -> dict[str, Any]:
        """Return how the server answers: what the record of a run has of it."""
        asked = self.liveness.asked
        return {
            "url": str(self.server.config.base_url),
            "in_flight": asked,
            "waiting": self.in_flight - asked,
            "replies": self._replies,
            "seconds": fmean(self._seconds) if self._seconds else None,
            "is_available": self.is_available,
        }

    def cool(self) -> None:
        """Come last for COOLING_SECONDS."""
        self._failed_at = self._clock()

    def claim_trial(self) -> None:
        """Let others wait for the result of the request that tries a failed server again."""
        if self._failed_at is not None:
            self.cool()

    def start(
        self,
        request: Callable[[ServerClient], Coroutine[None, None, T]],
        split: str,
        *,
        has_place: bool = False,
    ) -> asyncio.Task[T]:
        """Return a task that sends a request and returns its reply; record how it ends.

        Args:
            has_place: whether the request shares the place of one that this server may have lost,
                since such requests may hold all places.
        """
        # at once, since the next request goes to the least busy server
        self.in_flight += 1
        place = nullcontext() if has_place else self.server.admit(split)
        task = asyncio.create_task(self._send(request, place))
        task.add_done_callback(self._end_request)
        return task

    def _end_request(self, _: object) -> None:
        self.in_flight -= 1

    async def _send(
        self,
        request: Callable[[ServerClient], Coroutine[None, None, T]],
        place: AbstractAsyncContextManager[Any],
    ) -> T:
        server = self.server
        try:
            # before the request's clock starts: waiting for either is not the server's time
            async with place, server.rate_limit.turn():
                began = self._clock()
                sent = asyncio.ensure_future(request(server))
                answer = await self.liveness.reply(sent)
                self._seconds.append(self._clock() - began)
                self._replies += 1
        except RequestTimeoutError:
            raise  # the server may answer others
        except Exception as error:
            if not is_rate_limited(error):
                self._record_failure(error)
            raise
        self._failed_at = None
        return answer

    def _record_failure(self, error: Exception) -> None:
        """Begin to cool; log the failure, once a minute."""
        self.cool()
        logger.warning(
            "The inference server at %s fails%s: %s",
            self.server.config.base_url,
            ", trying others" if self._has_others else "",
            describe(error),
            extra=throttled(self.server.config.base_url),
        )


class Failover:
    """Sends requests to the least busy server, then to the next if it fails.

    A server that failed or is silent comes last; after a while a single request tries it again.

    Attributes:
        backends: one per server.
    """

    def __init__(
        self,
        servers: Sequence[ServerClient],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        has_others = len(servers) > 1
        self.backends = [
            Backend(server, clock, has_others=has_others) for server in servers
        ]
        self._clock = clock
        self._outage = Outage(clock)

    async def send(
        self,
        request: Callable[[ServerClient], Coroutine[None, None, T]],
        split: str = "train",
        rounds: RetryPolicy = THREE_ROUNDS,
    ) -> T:
        """Return the result of the first server that does not fail.

        Each round tries all servers. Waiting for a rate limit is no round.

        Args:
            rounds: how often and for how long the request is sent to all servers. Its seconds
                count from the request's start, or from the first of nothing but failures.

        Raises:
            Exception: what the last server raised; a transient error takes precedence.
        """
        retry = Retry(rounds, clock=self._clock)
        while True:
            try:
                return await self._try_all(request, split)
            except Exception as error:
                if is_rate_limited(error):
                    continue  # the next round waits for its turn
                if not is_transient(error):
                    raise
                if isinstance(error, RequestTimeoutError):
                    retry.use_up_attempts()  # it had more time than three rounds take
                pause = retry.next_pause(failing_for=self._outage.seconds)
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    async def _try_all(
        self, request: Callable[[ServerClient], Coroutine[None, None, T]], split: str
    ) -> T:
        """Return the first server's result, or raise the most telling of their errors.

        That is a rate limit, whose end the request can wait for, else the last transient one.
        """
        failures: list[Exception] = []
        own_pauses: list[float] = []
        for backend in self._claim_order():
            try:
                answer = await self._ask(backend, request, split)
            except RequestTimeoutError:
                raise  # another server would have to start anew
            except Exception as error:  # noqa: BLE001 - raised below if no server answers
                failures.append(error)
                if is_rate_limited(error):
                    own_pauses.append(backend.server.rate_limit.own_pause(error))
            else:
                self._outage.end()
                return answer
        limited = next(filter(is_rate_limited, failures), None)
        if limited:
            await asyncio.sleep(min(filter(None, own_pauses), default=0.0))
            raise limited
        self._outage.record_failure()
        raise next(filter(is_transient, reversed(failures)), failures[-1])

    async def _ask(
        self,
        backend: Backend,
        request: Callable[[ServerClient], Coroutine[None, None, T]],
        split: str,
    ) -> T:
        """Return a server's reply, or that of a second request beside it, which may come first.

        A silent server may be at work, or it has lost the request. Nobody can tell, so the first
        request goes on.

        Raises:
            Exception: what the last of the two raised.
        """
        began = self._clock()
        first = backend.start(request, split)
        waiting = {first}
        try:
            while True:
                ended, waiting = await asyncio.wait(
                    waiting,
                    timeout=backend.liveness.check_seconds,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                replies = [reply for reply in ended if reply.exception() is None]
                if replies:
                    return replies[0].result()
                if not waiting:
                    return ended.pop().result()  # raises
                if ended or len(waiting) > 1:
                    continue
                other = self._other_server(backend, began)
                if other is not None:
                    is_same = other is backend
                    waiting.add(other.start(request, split, has_place=is_same))
        finally:
            if first in waiting and backend.liveness.is_silent:
                backend.cool()  # others wait for the result of a single trial
            for reply in waiting:
                reply.cancel()

    def _other_server(self, backend: Backend, began: float) -> Backend | None:
        """Return the server to ask beside one that may have lost a request; None if none is.

        It may be the same one, once it answers again.
        """
        if not backend.liveness.may_have_lost(began):
            return None
        answering = [
            other
            for other in self.backends
            if other.liveness.is_steady and not other.is_cooling
        ]
        return min(answering, key=lambda other: other.in_flight, default=None)

    def _claim_order(self) -> list[Backend]:
        """Return all servers, the one to try first in front."""
        order = sorted(
            self.backends,
            key=lambda backend: (
                backend.is_cooling or backend.liveness.is_silent,
                backend.server.rate_limit.pause,
                backend.in_flight,
            ),
        )
        order[0].claim_trial()
        return order

    @property
    def unavailable(self) -> list[str]:
        """The servers' addresses if all fail, are silent or pause for rate limits; else empty."""
        if any(backend.is_available for backend in self.backends):
            return []
        return [str(backend.server.config.base_url) for backend in self.backends]

    @property
    def waiting(self) -> str:
        """What requests wait for: rate limits of all servers, and silent servers; else empty."""
        pauses = [str(backend.server.rate_limit) for backend in self.backends]
        silences = [backend.liveness.waiting for backend in self.backends]
        reasons = [*(pauses if all(pauses) else []), *filter(None, silences)]
        return "; ".join(reasons)
