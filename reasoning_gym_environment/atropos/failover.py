"""Which inference server is asked, and what happens where it fails.

Atropos's clients probe their server every second and wait for ever while the probe fails, without
a word of why. Here the requests themselves are the probe: one that fails goes to the next server.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from atroposlib.envs.server_handling.server_baseline import APIServer
from atroposlib.envs.server_handling.server_manager import ServerManager
from tenacity import retry_if_exception

from ..util.reachability import UnreachableError
from .failures import heals, sentence

logger = logging.getLogger(__name__)

_REST_SECONDS = 30.0
_CHECK_SECONDS = 1.0
_RETRIED = (
    "chat_completion",
    "_chat_comp",
    "_chat_eval",
    "_tokens_and_logprobs_comp",
    "_tokens_and_logprobs_comp_eval",
)

T = TypeVar("T")


class Failover:
    """Asks the least busy server, and the next one where that fails.

    A server that has failed comes last for a while; then one request tries it again.

    Args:
        clock: gives the time in seconds.

    Attributes:
        patience: seconds of nothing but failures after which requests fail at once.
    """

    def __init__(self, manager: ServerManager, clock: Callable[[], float] = time.monotonic) -> None:
        self.patience = math.inf
        self._manager = manager
        self._clock = clock
        self._busy: Counter[int] = Counter()
        self._failed_at: dict[int, float] = {}
        self._failing_since: float | None = None
        self._failed_with = ""
        for server in manager.servers:
            if hasattr(server, "config"):
                server.config.health_check = False
        _refuse_only_once()

    async def ask(self, request: Callable[[ServerManager], Coroutine[Any, Any, T]]) -> T:
        """What the first server gives that doesn't fail.

        Args:
            request: sends it to a manager of a single server.

        Raises:
            Exception: whatever it raised at the last server; one that may heal wins.
        """
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
        numbers = range(len(self._manager.servers))
        order = sorted(numbers, key=lambda n: (n in resting, self._busy[n]))
        if order[0] in self._failed_at:
            self._failed_at[order[0]] = now  # the others wait for what becomes of this one
        return order

    async def _ask_one(
        self, number: int, request: Callable[[ServerManager], Coroutine[Any, Any, T]]
    ) -> T:
        alone = copy.copy(self._manager)
        alone.servers = [self._manager.servers[number]]
        asked = asyncio.ensure_future(request(alone))
        self._busy[number] += 1
        try:
            while not asked.done():
                await asyncio.wait({asked}, timeout=_CHECK_SECONDS)
                self._check_patience()
            return asked.result()
        finally:
            self._busy[number] -= 1
            asked.cancel()

    def _check_patience(self) -> None:
        """Raises UnreachableError when all requests have failed for too long."""
        since = self._failing_since
        if since is not None and self._clock() - since > self.patience:
            raise UnreachableError(
                f"no server has answered for {self.patience:g} s: {self._failed_with}"
            )

    def _note_failure(self, number: int, error: Exception) -> None:
        if number not in self._failed_at and len(self._manager.servers) > 1:
            logger.warning("An inference server fails, others are asked: %s", sentence(error))
        self._failed_at[number] = self._clock()


def _refuse_only_once() -> None:
    """Have Atropos's clients take a refusal for final; they would ask nine times."""

    def may_heal(error: BaseException) -> bool:
        return isinstance(error, Exception) and heals(error)

    for name in _RETRIED:
        getattr(APIServer, name).retry.retry = retry_if_exception(may_heal)
