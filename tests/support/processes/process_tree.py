"""The processes of this machine, read from /proc: only Linux has it."""

import asyncio
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

PROC = Path("/proc")
by_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root sees what a protected process has"
)
in_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="finds processes in /proc"
)


def _state_and_parent(pid: int) -> tuple[str, int] | None:
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]
    return state, int(parent)


def is_alive(pid: int) -> bool:
    """A zombie is dead: whether it is reaped is up to whoever inherited it."""
    found = _state_and_parent(pid)
    return found is not None and found[0] not in "ZX"


def _families() -> dict[int, set[int]]:
    """Return the children of every process; reading all of them is slow on a busy machine."""
    families: defaultdict[int, set[int]] = defaultdict(set)
    for pid in (int(path.name) for path in PROC.iterdir() if path.name.isdigit()):
        if found := _state_and_parent(pid):
            families[found[1]].add(pid)
    return families


def children(pid: int) -> set[int]:
    return _families().get(pid, set())


def descendants(pid: int) -> set[int]:
    families, found, parents = _families(), set[int](), {pid}
    while (
        parents := set().union(*(families.get(parent, set()) for parent in parents))
        - found
    ):
        found |= parents
    return found


async def survivors(pids: Iterable[int], *, patience: float = 120.0) -> set[int]:
    """Those of the processes that are still alive when patience runs out."""
    alive, give_up = set(pids), time.monotonic() + patience
    while alive and time.monotonic() < give_up:
        await asyncio.sleep(0.05)
        alive = {pid for pid in alive if is_alive(pid)}
    return alive
