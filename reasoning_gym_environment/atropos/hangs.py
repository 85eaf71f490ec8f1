"""Notices an inference server from which nothing comes any more, and a request that it forgot.

A long completion is silent too. So a server that is quiet for seconds is asked whether it is there.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import FixableError
from ..util.outages import FailingRequests

_QUIET_SECONDS = 4.0
"""So long nothing comes before a server is asked whether it is there; it has 4 s to answer."""
_TIMES_THE_LONGEST = 10
_REPLIES_THAT_TELL = 32
"""From so many replies it is known how long the longest takes."""

T = TypeVar("T")


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
