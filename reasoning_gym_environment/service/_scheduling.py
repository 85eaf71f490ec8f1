"""Fair scheduling: which client's batch is scored next, so that slow ones starve nobody."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from ..records import Score, Status

MAX_BATCH = 16
"""Completions of one batch: if all of them hang, they still fit into the batch's time limit."""

SMALL_BATCH = 4
"""Completions of one batch of a flow that is slow, or whose speed is unknown."""

SLOW_SECONDS = 1.0
"""Mean time of a batch's completions in their verifier from which its flow is slow."""

PENALTY_SECONDS = 300.0
"""Time for which a flow stays slow after a slow batch."""

QUIET_SECONDS = 10.0
"""Time without requests of other flows after which slow ones may take all slots."""

MAX_FLOWS = 4096
"""Flows whose speed is known, the latest ones."""

NO_VERDICT = {Status.UNSCORED, Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.CRASHED}
"""Statuses that say nothing about the answer: this machine may be slow."""


class Flow(NamedTuple):
    """Batches that wait in one line: those of a client and a task."""

    client: str
    task: str


class FairScheduler:
    """Slots that flows take in turn.

    While other flows ask, all slow ones together have a quarter of the slots, and one whose speed
    is unknown has one slot.

    Args:
        slots: batches scored at once, two per verifier host.
        clock: returns the time in seconds.
    """

    def __init__(self, slots: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._free = slots
        self._slow_free = max(1, slots // 4)
        self._has_one_host = slots < 4
        self._clock = clock
        self._waiting: OrderedDict[Flow, deque[asyncio.Future[bool]]] = OrderedDict()
        self._running: Counter[Flow] = Counter()
        self._slow_until: OrderedDict[Flow, float] = OrderedDict()  # of flows whose speed is known
        self._others_asked = -math.inf

    def batch_size(self, flow: Flow) -> int:
        """Return how many completions of a flow may be scored at once."""
        is_quick = flow in self._slow_until and not self._is_slow(flow)
        return MAX_BATCH if is_quick else SMALL_BATCH

    def _is_slow(self, flow: Flow) -> bool:
        until = self._slow_until.get(flow, 0.0)
        if not until:
            return False
        if until <= self._clock():
            del self._slow_until[flow]  # its speed is unknown again
            return False
        return True

    def record(self, flow: Flow, scores: Sequence[Score]) -> None:
        """Learn the speed of a flow from the scores of a batch."""
        hung = any(score.status in NO_VERDICT for score in scores)
        seconds = sum(score.seconds for score in scores)
        if hung or seconds > SLOW_SECONDS * len(scores):
            self._slow_until[flow] = self._clock() + PENALTY_SECONDS
        else:
            self._slow_until.setdefault(flow, 0.0)
        self._slow_until.move_to_end(flow)
        if len(self._slow_until) > MAX_FLOWS:
            self._slow_until.popitem(last=False)

    @asynccontextmanager
    async def slot(self, flow: Flow, *, patience: float) -> AsyncIterator[None]:
        """Hold a slot while the context is open; TimeoutError if none is free in time."""
        slow = await self._acquire(flow, patience)
        begin = self._clock()
        try:
            yield
        finally:
            self._release(flow, slow=slow, seconds=self._clock() - begin)

    async def _acquire(self, flow: Flow, patience: float) -> bool:
        """Wait for a slot; return whether it is one for slow flows."""
        if not self._is_slow(flow):
            self._others_asked = self._clock()
        if self._free and self._may_run(flow):  # then no other flow that may run waits
            return self._take(flow)
        granted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(flow, deque()).append(granted)
        try:
            await asyncio.wait([granted], timeout=patience)
        except asyncio.CancelledError:
            if not self._withdraw(flow, granted):
                self._release(flow, slow=granted.result(), seconds=0.0)
            raise
        if self._withdraw(flow, granted):
            raise TimeoutError
        return granted.result()

    def _withdraw(self, flow: Flow, granted: asyncio.Future[bool]) -> bool:
        """Leave the line; return False if the slot has been granted."""
        if granted.done():
            return False
        self._waiting[flow].remove(granted)
        if not self._waiting[flow]:
            del self._waiting[flow]
        return True

    def _grant(self) -> None:
        """Give free slots to waiting flows in turn."""
        while self._free:
            flow = next((each for each in self._waiting if self._may_run(each)), None)
            if flow is None:
                return
            line = self._waiting.pop(flow)
            granted = line.popleft()
            if line:
                self._waiting[flow] = line
            granted.set_result(self._take(flow))

    def _take(self, flow: Flow) -> bool:
        """Take a slot; return whether it is one for slow flows."""
        slow = self._is_slow(flow)
        self._free -= 1
        self._slow_free -= slow
        self._running[flow] += 1
        if not slow:
            self._others_asked = self._clock()
        return slow

    def _may_run(self, flow: Flow) -> bool:
        if self._is_slow(flow):
            quiet = self._clock() - self._others_asked > QUIET_SECONDS
            return quiet or self._slow_free > 0
        return flow in self._slow_until or not self._running[flow]

    def _release(self, flow: Flow, *, slow: bool, seconds: float) -> None:
        self._free += 1
        self._running[flow] -= 1
        if not self._running[flow]:
            del self._running[flow]
        if slow:
            # A slow batch that had the only host leaves it to others for as long again.
            pause = seconds if self._has_one_host else 0.0
            asyncio.get_running_loop().call_later(pause, self._end_slow)
        if self._waiting:
            self._grant()

    def _end_slow(self) -> None:
        self._slow_free += 1
        self._grant()
