"""The clock of a worker's time limit: it stands still while the machine starves the process.

A process works, waits or is starved: ready to run, but without a processor. The kernel counts that
third time. Work and waiting count against a limit, so that no answer gains time by making its
verifier wait. Starvation does not, so that a busy machine ends nothing that an idle one finishes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

Result = TypeVar("Result")

FIRST_LOOK_SECONDS = 0.1
"""When a clock is read first: most work has ended by then, and costs no look at all."""

LOOK_SECONDS = 0.5
"""How often a clock is read then. A helper process that lives for less may starve unnoticed."""

WALL_FACTOR = 4
"""How many times longer a limit is on the wall, where the system counts no starvation."""

_TICKS = os.sysconf("SC_CLK_TCK")


def _counts_starvation() -> bool:
    """Return whether the kernel counts starvation: it writes zeros alone where it doesn't."""
    with contextlib.suppress(OSError):
        return Path("/proc/self/schedstat").read_text().split()[2] != "0"
    return False


COUNTS_STARVATION = _counts_starvation()


class Clock(Protocol):
    """Tells how long a process has worked or waited."""

    def restart(self) -> None:
        """Begin again at 0."""

    def elapsed(self) -> float:
        """Return the seconds since the last start."""


class _Usage(NamedTuple):
    """What the kernel counts of some processes.

    Attributes:
        worked: processor seconds of all their threads, and of processes that they reaped.
        starved: seconds by thread.
    """

    worked: float
    starved: dict[str, float]

    @classmethod
    def of(cls, pids: Iterable[int]) -> _Usage:
        ticks = 0
        starved = {}
        for pid in pids:
            with contextlib.suppress(OSError):  # it has just ended
                stat = Path(f"/proc/{pid}/stat").read_bytes()
                # after the name: utime, stime, cutime, cstime
                ticks += sum(map(int, stat.rpartition(b")")[2].split()[11:15]))
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    _, waited, _ = (thread / "schedstat").read_text().split()
                    starved[thread.name] = int(waited) / 1e9
        return cls(ticks / _TICKS, starved)


class WorkClock:
    """Measures what a process and its helpers work or wait.

    Threads that work at once count one by one; of those that starve at once, the most starved one
    counts: a crowd of threads gains no time.

    Args:
        members: returns the ids of the processes.
        is_new: whether the process has just started, and has worked for this clock alone.
    """

    def __init__(
        self, members: Callable[[], Iterable[int]], *, is_new: bool = False
    ) -> None:
        self._members = members
        self._starved = 0.0
        self._begin = self._looked_at = time.monotonic()
        self._first: _Usage | None = _Usage(0.0, {}) if is_new else None
        self._last = self._first

    def restart(self) -> None:
        """Begin again at 0. What has been used until then is known from the next look on."""
        self._starved = 0.0
        self._begin = self._looked_at = time.monotonic()
        self._first = self._last = None

    def elapsed(self) -> float:
        """Return the seconds since the last start, without those of starvation."""
        now = time.monotonic()
        if not COUNTS_STARVATION:
            return (now - self._begin) / WALL_FACTOR
        usage = _Usage.of(self._members())
        if self._first is None or self._last is None:
            self._first = self._last = usage
        since_last = [
            seconds - self._last.starved.get(thread, 0.0)
            for thread, seconds in usage.starved.items()
        ]
        self._starved += min(now - self._looked_at, max(since_last, default=0.0))
        self._looked_at = now
        self._last = usage
        worked = usage.worked - self._first.worked
        return max(worked, now - self._begin - self._starved)


class ProcessorClock:
    """Measures a process's own processor time, for a caller that may open no file.

    Linux alone has it; elsewhere it stands still.
    """

    def __init__(self, pid: int) -> None:
        # What clock_getcpuclockid(3) returns, which Python doesn't have.
        self._id = (~pid << 3) | 2
        self._begin = 0.0

    def _now(self) -> float:
        try:
            return time.clock_gettime(self._id)
        except OSError:  # it has ended
            return self._begin

    def restart(self) -> None:
        """Begin again at 0."""
        self._begin = self._now()

    def elapsed(self) -> float:
        """Return the processor seconds since the last start."""
        return self._now() - self._begin if COUNTS_STARVATION else 0.0


def children_of(pid: int) -> list[int]:
    """Return a process and its children; without the latter where the kernel lists none."""
    children = ""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [pid, *map(int, children.split())]


async def within_work_time(
    reply: Coroutine[Any, Any, Result], pid: int, timeout: float
) -> Result:
    """Await what a process does; raise asyncio.TimeoutError if it works or waits too long."""
    clock = WorkClock(lambda: (pid,))
    task = asyncio.ensure_future(reply)
    look = FIRST_LOOK_SECONDS
    try:
        while not (await asyncio.wait({task}, timeout=look))[0]:
            remaining = timeout - clock.elapsed()
            if remaining <= 0:
                raise asyncio.TimeoutError
            look = min(LOOK_SECONDS, remaining)
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
