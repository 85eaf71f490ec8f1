"""Measuring tools of the benchmarks."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path


class LoopMonitor:
    """Samples how late the event loop runs a timer of 1 ms while the context is open."""

    interval = 0.001

    def __init__(self) -> None:
        self.lateness: list[float] = []
        self._task: asyncio.Task[None] | None = None

    async def _watch(self) -> None:
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(self.interval)
            self.lateness.append(time.perf_counter() - begin - self.interval)

    async def __aenter__(self) -> LoopMonitor:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()

    def report(self) -> str:
        ordered = sorted(self.lateness)
        p99 = ordered[int(0.99 * (len(ordered) - 1))]
        return f"longest stall {ordered[-1] * 1000:.0f} ms, 99th percentile {p99 * 1000:.1f} ms"


class ProcessorTime:
    """Takes the processor time of this process, and of the event loop's thread, while it is open.

    Attributes:
        process, loop: seconds; `process` is that of all its threads.
    """

    def __init__(self) -> None:
        self.process = self.loop = 0.0

    async def __aenter__(self) -> ProcessorTime:
        self._began = time.process_time(), time.thread_time()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.process = time.process_time() - self._began[0]
        self.loop = time.thread_time() - self._began[1]

    def report(self, groups: int) -> str:
        loop, process = (
            1000 * seconds / groups for seconds in (self.loop, self.process)
        )
        return f"event loop {loop:.1f} ms a group, with its threads {process:.1f} ms"


def memory_megabytes(own: int | None = None) -> str:
    """Measure the resident memory of a process, this one if none is named, and of all its
    descendants (Linux).
    """
    own = os.getpid() if own is None else own
    resident = family(own)
    children = [megabytes for pid, megabytes in resident.items() if pid != own]
    return f"parent {resident[own]:.0f} MB, {len(children)} children {sum(children):.0f} MB"


def family(own: int) -> dict[int, float]:
    """Return the resident megabytes of a process and all its descendants, by their ids (Linux)."""
    parents, resident = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(
                line.split(":", 1) for line in status.read_text().splitlines()
            )
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(fields["Pid"])
        parents[pid] = int(fields["PPid"])
        resident[pid] = int(fields.get("VmRSS", "0 kB").split()[0]) / 1024
    return {
        pid: megabytes
        for pid, megabytes in resident.items()
        if _descends(pid, own, parents)
    }


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor
