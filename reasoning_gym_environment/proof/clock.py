"""Seconds of processor time that tasks at work have used, for a limit that a busy machine keeps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

WAITING = 10
"""Seconds of the wall clock that count as one: what sleeps uses no processor."""

REFRESH_SECONDS = 0.5
"""How long a reading is used: it takes a millisecond."""


def processor_seconds() -> float | None:
    """Return the processor time of this process and all below it; None if it can't be read."""
    own_pid = os.getpid()
    if not Path(f"/proc/{own_pid}/task/{own_pid}/children").exists():
        return None
    ticks = 0
    ahead = [own_pid]
    while ahead:
        folder = Path("/proc", str(ahead.pop()))
        try:
            # The name, in parentheses, may hold anything.
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2]
            children = [file.read_text() for file in folder.glob("task/*/children")]
        except OSError:  # it has ended
            continue
        # Its own time, and that of its children that have ended.
        ticks += sum(map(int, fields.split()[11:15]))
        ahead += map(int, " ".join(children).split())
    return ticks / os.sysconf("SC_CLK_TCK")


class ProcessorClock:
    """A clock that advances with the processor time of this process and those below it.

    Where that can't be read, which is so outside of Linux, it is the wall clock.

    Args:
        used: returns the processor time so far, or None.
        wall: returns the time of the wall clock.

    Attributes:
        at_work: how many tasks share the time.
    """

    def __init__(
        self,
        *,
        used: Callable[[], float | None] = processor_seconds,
        wall: Callable[[], float] = time.monotonic,
    ) -> None:
        self.at_work = 0
        self._read_used = used
        self._read_wall = wall
        self._now = 0.0
        self._used = used()
        self._wall = wall()

    def now(self) -> float:
        """Return the seconds so far, of each task at work."""
        wall = self._read_wall()
        if wall < self._wall + REFRESH_SECONDS:
            return self._now
        used = self._read_used()
        passed = wall - self._wall
        if used is None or self._used is None:
            self._now += passed
        else:
            share = (used - self._used) / max(1, self.at_work)
            self._now += max(share, passed / WAITING)
        self._wall = wall
        self._used = used
        return self._now
