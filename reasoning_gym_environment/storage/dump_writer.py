"""Writes dumps of groups as JSONL and loses none.

A group is one JSON object on one line, on disk before the group counts as done, unless the disk
stalls. After `kill -9` every finished group is there; a torn last line is skipped and counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..util.concurrency import DaemonWriter
from ..util.files import append_whole
from ..util.outages import Outage

logger = logging.getLogger(__name__)

PROGRESS_EVERY = 10

QUEUE_ROWS = 256
"""So many groups may wait in memory for a disk that stalls: some 64 MB of long ones."""

STALL_SECONDS = 5.0
"""A disk stalls when it has taken nothing for so long."""

CLOSE_SECONDS = 10.0
"""So long is waited for it at the end."""

_LOOK_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class DumpKind:
    """One series of files: `reasoning_gym_environment_{name}_{run}_{batch:04d}.jsonl`."""

    name: str
    groups_per_file: int


SUCCESSFUL = DumpKind(name="rollouts", groups_per_file=100)
FAILED = DumpKind(name="FAILED_rollouts", groups_per_file=50)
PARTIAL = DumpKind(name="PARTIAL_rollouts", groups_per_file=100)


def dump_kind(
    rewards: Iterable[float],
    *,
    threshold: float,
    successful: bool,
    failed: bool,
    everything: bool = False,
) -> DumpKind | None:
    """Choose a group's kind: successful with any reward above the threshold, failed with all 0.

    Args:
        successful, failed: whether that kind is dumped at all.
        everything: whether all kinds are, what lies between them as well.
    """
    best = max(rewards)
    if best > threshold:
        return SUCCESSFUL if successful or everything else None
    if best == 0.0:
        return FAILED if failed or everything else None
    return PARTIAL if everything else None


class DumpWriter:
    """Appends groups to numbered files, one write a group, off the event loop.

    A disk that can't be written to, and one that takes nothing, are told of at once and then once
    a minute, and so is their end; training goes on. What can't be written is counted as lost.
    What isn't taken waits in memory, and training waits with it when QUEUE_ROWS groups do.

    Args:
        folder: created when the first group comes.
        run_id: part of every file name.
        counts: where "dumps/<kind>" and "dumps/lost" are counted.
        synced: whether a group is done only when it would outlive a power cut.
    """

    def __init__(
        self, folder: Path, run_id: str, counts: Counter[str], *, synced: bool = False
    ) -> None:
        self._folder = folder
        self._run_id = run_id
        self._counts = counts
        self._synced = synced
        self._written: Counter[DumpKind] = Counter()
        self._failing = Outage()
        self._thread = DaemonWriter("dumps")
        self._queued: set[asyncio.Future[None]] = set()
        self._stall = Outage()
        self._stalled_at = 0.0
        self._said_to_wait = False
        self._taken_at = 0.0

    def path(self, kind: DumpKind, number: int) -> Path:
        """Name the file of the group of that number, from 0."""
        batch = number // kind.groups_per_file
        name = f"reasoning_gym_environment_{kind.name}_{self._run_id}_{batch:04d}.jsonl"
        return self._folder / name

    async def write(self, kind: DumpKind, row: Mapping[str, Any]) -> None:
        """Return when the row is on disk, or counted as lost; cancelling does not stop it.

        While the disk stalls, rows that needn't be synced return at once for which there is room.
        """
        if not self._queued:
            self._taken_at = time.monotonic()
        queued = self._thread.submit(lambda: self._write(kind, row))
        self._queued.add(queued)
        queued.add_done_callback(self._taken)
        while queued in self._queued and (not self._stalls() or self._must_wait()):
            await asyncio.wait([queued], timeout=_LOOK_SECONDS)
        if queued.done():
            queued.result()

    def _must_wait(self) -> bool:
        return self._synced or len(self._queued) > QUEUE_ROWS

    def _stalls(self) -> bool:
        """Whether the disk has taken nothing for a while, which is said."""
        seconds = time.monotonic() - self._taken_at
        stalls, waits = seconds >= STALL_SECONDS, self._must_wait()
        if stalls and not self._stall:
            self._stalled_at, self._said_to_wait = self._taken_at, False
        if stalls and (self._stall.failed() or (waits and not self._said_to_wait)):
            self._said_to_wait = waits
            logger.warning(
                "The disk of %s has taken no group for %.0f s: %d wait in memory, training %s",
                self._folder,
                seconds,
                len(self._queued),
                "waits for it" if waits else f"goes on until {QUEUE_ROWS} do",
            )
        return stalls

    def _taken(self, queued: asyncio.Future[None]) -> None:
        self._queued.discard(queued)
        self._taken_at = time.monotonic()
        if not self._queued and self._stall.over() is not None:
            seconds = self._taken_at - self._stalled_at
            logger.warning("The disk of %s is back after %.0f s", self._folder, seconds)

    def _write(self, kind: DumpKind, row: Mapping[str, Any]) -> None:
        line = (json.dumps(row) + "\n").encode()  # ASCII: safe for any model text
        path = self.path(kind, self._written[kind])
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            append_whole(path, line, synced=self._synced)
        except OSError as error:
            self._lose(error)
            return
        self._written[kind] += 1
        self._counts[f"dumps/{kind.name}"] += 1
        self._log_progress(kind, path)
        if (seconds := self._failing.over()) is not None:
            logger.warning(
                "Dumps are written to %s again after %.0f s; %s of that time %s lost to disk",
                self._folder,
                seconds,
                *counted(self._failing.lost),
            )

    def _lose(self, error: OSError) -> None:
        self._counts["dumps/lost"] += 1
        if self._failing.failed():
            logger.error(
                "Dumps can't be written to %s (%s): %s %s lost to disk so far, training goes on; "
                "free space or change data_dumps_dir",
                self._folder,
                error,
                *counted(self._failing.lost),
            )

    def _log_progress(self, kind: DumpKind, path: Path) -> None:
        done = self._written[kind] % kind.groups_per_file
        if done == 0:
            logger.info("Dump file complete: %s (%d groups)", path, kind.groups_per_file)
        elif done % PROGRESS_EVERY == 0:
            logger.info("%s: %d of %d groups in %s", kind.name, done, kind.groups_per_file, path)

    def close(self) -> None:
        """Wait a while for writes under way; what isn't on disk then is lost, and said.

        May be called again.
        """
        if self._thread.close(patience=CLOSE_SECONDS) or not self._queued:
            return
        lost = len(self._queued)
        self._queued.clear()
        self._counts["dumps/lost"] += lost
        logger.error(
            "The disk of %s does not answer: %s %s lost to disk", self._folder, *counted(lost)
        )


def counted(groups: int) -> tuple[str, str]:
    """Write a number of groups, and the verb that goes with it.

    Example:
        >>> counted(1), counted(2)
        (('1 group', 'is'), ('2 groups', 'are'))
    """
    return ("1 group", "is") if groups == 1 else (f"{groups} groups", "are")
