"""Which inference server is asked, and what happens where it fails.

Atropos's clients probe their server every second and wait for ever while the probe fails, without
a word of why. Here the requests themselves are the probe: one that fails goes to the next server.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from ..errors import FixableError
from ..util.outages import LOG_INTERVAL, FailingRequests, UnreachableError
from .errors import heals, sentence

logger = logging.getLogger(__name__)

_ATTEMPTS = 3
_LONGEST_PAUSE = 10.0
_REST_SECONDS = 30.0

T = TypeVar("T")


class Failover:
    """Asks the least busy server, and the next one where that fails; then, after a pause, again.

    A server that has failed comes last for a while; then one request tries it again.

    Args:
        servers: Atropos's clients, each with its `config`.
        clock: gives the time in seconds.

    Attributes:
        patience: seconds of nothing but failures after which requests to a server that is silent
            fail as well, and none is asked again.
        watches: of each server, what waits for its replies.
    """

    def __init__(self, servers: Sequence[Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.patience = math.inf
        self.watches = [Watch(server, clock) for server in servers]
        self._servers = servers
        self._clock = clock
        self._busy: Counter[int] = Counter()
        self._failed_at: dict[int, float] = {}
        self._said_at: dict[int, float] = {}
        self._failing_since: float | None = None
        self._failed_with = ""
        for server in servers:
            server.config.health_check = False

    async def ask(
        self, request: Callable[[Any], Coroutine[Any, Any, T]], *, persistence: float = 0.0
    ) -> T:
        """What the first server gives that doesn't fail.

        Where all fail and that may heal, they are asked three times, with pauses that grow.

        Args:
            request: sends it to a server.
            persistence: seconds for which they are asked more often than that, of this request or
                of nothing but failures.

        Raises:
            Exception: whatever it raised at the last server; one that may heal wins.
        """

        begun, tries = self._clock(), 0
        while True:
            tries += 1
            try:
                return await self._ask_all(request)
            except Exception as error:
                seconds = max(self._clock() - begun, self._failing_seconds())
                enough = tries >= _ATTEMPTS or isinstance(error, HangingError)
                is_last = enough and seconds >= min(persistence, self.patience)
                if is_last or isinstance(error, UnreachableError) or not heals(error):
                    raise
            await asyncio.sleep(random.uniform(0, min(_LONGEST_PAUSE, 2 ** (tries - 1))))

    async def _ask_all(self, request: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        failures: list[Exception] = []
        for number in self._order():
            try:
                answer = await self._ask_one(number, request)
            except Exception as error:  # noqa: BLE001 - raised below where no server answers
                self._note_failure(number, error)
                failures.append(error)
            else:
                self._failed_at.pop(number, None)
                self._failing_since = None
                return answer
        worst = next(filter(heals, reversed(failures)), failures[-1])
        if self._failing_since is None:
            self._failing_since, self._failed_with = self._clock(), sentence(worst)
        raise worst

    def _order(self) -> list[int]:
        """All servers, the one to ask first in front; a server whose rest is over gets a try."""
        now = self._clock()
        resting = {n for n, at in self._failed_at.items() if now - at < _REST_SECONDS}
        order = sorted(range(len(self._servers)), key=lambda n: (n in resting, self._busy[n]))
        if order[0] in self._failed_at:
            self._failed_at[order[0]] = now  # the others wait for what becomes of this one
        return order

    async def _ask_one(self, number: int, request: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        asked = asyncio.ensure_future(request(self._servers[number]))
        self._busy[number] += 1
        watch = self.watches[number]
        try:
            return await watch.reply(asked, lambda: self._check_patience(watch))
        finally:
            self._busy[number] -= 1

    def _failing_seconds(self) -> float:
        """Since when nothing but failures has come."""
        return 0.0 if self._failing_since is None else self._clock() - self._failing_since

    def _check_patience(self, watch: Watch) -> None:
        """Raises UnreachableError where all have failed for too long and the server is silent."""
        if watch.quiet and self._failing_seconds() > self.patience:
            raise UnreachableError(
                f"no server has answered for {self.patience:g} s: {self._failed_with}"
            )

    def _note_failure(self, number: int, error: Exception) -> None:
        """Say of each server once a minute why it fails."""
        now = self._failed_at[number] = self._clock()
        if now - self._said_at.get(number, -math.inf) >= LOG_INTERVAL:
            self._said_at[number] = now
            others = ", others are asked" if len(self._servers) > 1 else ""
            url = self._servers[number].config.base_url
            logger.warning("The inference server at %s fails%s: %s", url, others, sentence(error))


_QUIET_SECONDS = 4.0
"""So long nothing comes before a server is asked whether it is there; it has 4 s to answer."""
_TIMES_THE_LONGEST = 10
_REPLIES_THAT_TELL = 32
"""From so many replies it is known how long the longest takes."""


class HangingError(FixableError):
    """A request was given up, since no reply is to be expected."""


class Watch:
    """Waits for the replies of one server.

    Args:
        server: Atropos's client; `is_there` says whether anything answers.
        clock: gives the time in seconds.

    Attributes:
        check_seconds: how often a request that waits is looked at.
        bears: seconds of silence after which requests are given up. One that takes longer than
            this, and ten times as long as any before, is given up as well, and the next such one
            after twice its time. Of a server that has replied less than 32 times, the longest
            counts as at least this.
    """

    check_seconds = 1.0

    def __init__(self, server: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self.bears = 60.0
        self._server = server
        self._clock = clock
        self._begun: dict[object, float] = {}
        self._heard = self._asked = -math.inf
        self._longest = self._least = 0.0
        self._replies = 0
        name = f"The inference server at {server.config.base_url}"
        self._outage = FailingRequests(name, clock, lost="requests given up")

    async def reply(self, request: asyncio.Future[T], check: Callable[[], None]) -> T:
        """The reply to a request.

        Args:
            check: called as often; what it raises ends the waiting.

        Raises:
            HangingError: no reply is to be expected.
            Exception: what the request has raised.
        """
        self._begun[request] = self._clock()
        limit = max(self.bears, self._least)  # as it is now, for all that are forgotten together
        try:
            while not (await asyncio.wait({request}, timeout=self.check_seconds))[0]:
                await self._look()
                if request.done():
                    break
                check()
                self._require_hope(self._clock() - self._begun[request], limit)
            answer = request.result()
        finally:
            begun = self._begun.pop(request)
            request.cancel()
        self._heard = self._clock()
        self._longest = max(self._longest, self._heard - begun)
        self._replies += 1
        self._outage.answered(self)
        return answer

    @property
    def quiet(self) -> bool:
        """Whether nothing has come for seconds, not even a sign of life when asked."""
        return self._silent() >= _QUIET_SECONDS

    def _silent(self) -> float:
        """For how many seconds requests have waited without a sign of life."""
        return self._clock() - max(self._heard, min(self._begun.values()))

    async def _look(self) -> None:
        """Ask a quiet server whether it is there, and say it where it isn't."""
        if not self.quiet or self._clock() - self._asked < _QUIET_SECONDS:
            return
        self._asked = self._clock()
        if await self._server.is_there():
            self._heard = self._clock()
            self._outage.answered(self)
        else:
            silent = self._silent()
            why = f"{len(self._begun)} requests are under way, nothing has come for {silent:.0f} s"
            self._outage.fails(self, why, already=silent)

    def _require_hope(self, age: float, limit: float) -> None:
        """Raises HangingError."""
        at = self._server.config.base_url
        if min(age, self._silent()) >= self.bears:
            self._outage.dropped(self, lost=1)
            raise HangingError(f"the inference server at {at} was silent for {self.bears:g} s")
        longest = self._longest
        if self._replies < _REPLIES_THAT_TELL:
            longest = max(longest, self.bears)
        if age >= max(limit, _TIMES_THE_LONGEST * longest):
            self._least = 2 * age
            raise HangingError(
                f"no reply from {at} after {age:.0f} s; the longest before took "
                f"{self._longest:.1f} s"
            )
