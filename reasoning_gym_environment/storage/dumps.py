"""Dumps of a run's groups as JSONL, and how they are read.

A group is one JSON object on one line, on disk before the group counts as done unless the disk
stalls. After `kill -9` every finished group is there; a torn last line is skipped and counted.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import FixableError
from ..util.concurrency import DaemonWriter
from ..util.files import append_whole, files_below, open_regular
from ..util.log_throttle import THROTTLE, throttled
from ..util.outages import Outage
from .rows import StoredGroup

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)


RESCORED = ".rescored.jsonl"
"""Suffix of rescored files: `NAME.jsonl` becomes `NAME.rescored.jsonl`."""


class DumpKind(NamedTuple):
    """One series of files: `reasoning_gym_environment_{name}_{run}_{batch:04d}.jsonl`."""

    name: str
    groups_per_file: int


SUCCESSFUL = DumpKind("rollouts", 100)


FAILED = DumpKind("FAILED_rollouts", 50)


PARTIAL = DumpKind("PARTIAL_rollouts", 100)


def dump_kind(rewards: Iterable[float], *, threshold: float) -> DumpKind:
    """Return a group's kind: successful with any reward above the threshold, failed with all 0."""
    best = max(rewards)
    if best > threshold:
        return SUCCESSFUL
    return FAILED if best == 0.0 else PARTIAL


class DumpWriter:
    """Appends groups to numbered files, one write a group, off the event loop.

    Training continues while the disk fails: groups that can't be written are logged and counted as
    lost. `DaemonWriter` says what happens while the disk hangs.

    Args:
        folder: created for the first group.
        counts: counters "dumps/<kind>", "dumps/lost" and "dumps/deleted_files".
        synced: fsync each group.
        max_bytes: of all files together; beyond it, the oldest are deleted.

    Attributes:
        written: groups by kind.
    """

    def __init__(
        self,
        folder: Path,
        run_id: str,
        counts: Counter[str],
        *,
        synced: bool = False,
        max_bytes: float = math.inf,
    ) -> None:
        self.disk = DaemonWriter(folder)
        self._folder = folder
        self._run_id = run_id
        self._counts = counts
        self._synced = synced
        self._max_bytes = max_bytes
        self._sizes: dict[Path, int] = {}  # the file that was written last comes last
        self._bytes = 0
        self._given = self._ended = 0  # groups
        self.written: Counter[DumpKind] = Counter()
        self._failure = Outage()

    def path(self, kind: DumpKind, number: int) -> Path:
        """Return the file of the group with that number, from 0."""
        batch = number // kind.groups_per_file
        name = f"reasoning_gym_environment_{kind.name}_{self._run_id}_{batch:04d}.jsonl"
        return self._folder / name

    async def write(self, kind: DumpKind, row: Mapping[str, Any]) -> None:
        """Return when the row is on disk or counted as lost; see `DaemonWriter.write`."""
        self._given += 1
        await self.disk.write(lambda: self._write(kind, row), must_end=self._synced)

    def _write(self, kind: DumpKind, row: Mapping[str, Any]) -> None:
        line = (json.dumps(row) + "\n").encode()  # ASCII: safe for any model text
        path = self.path(kind, self.written[kind])
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            append_whole(path, line, synced=self._synced)
        except OSError as error:
            self._counts["dumps/lost"] += 1
            self._failure.record_failure()
            logger.error(
                "Dumps can't be written to %s (%s): %s lost to disk so far, training "
                "continues; free space or change data_dumps_dir",
                self._folder,
                error,
                counted(self._failure.losses),
                extra=throttled(self._failure.episode),
            )
        else:
            self._sizes[path] = self._sizes.pop(path, 0) + len(line)
            self._bytes += len(line)
            self._record_written(kind, path)
        self._ended += 1

    def _record_written(self, kind: DumpKind, path: Path) -> None:
        self.written[kind] += 1
        self._counts[f"dumps/{kind.name}"] += 1
        done = self.written[kind] % kind.groups_per_file
        if done == 0:
            logger.debug(
                "Dump file complete: %s (%d groups)", path, kind.groups_per_file
            )
        elif done % 10 == 0:
            logger.debug(
                "%s: %d of %d groups in %s", kind.name, done, kind.groups_per_file, path
            )
        self._delete_oldest()
        seconds = self._failure.end()
        if seconds is not None:
            logger.warning(
                "Dumps are written to %s again after %.0f s, with %s lost to disk",
                self._folder,
                seconds,
                counted(self._failure.losses),
            )

    def _delete_oldest(self) -> None:
        """Delete the files that were not written for longest, until the limit holds."""
        while self._bytes > self._max_bytes and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            self._bytes -= self._sizes.pop(oldest)
            try:
                oldest.unlink(missing_ok=True)
            except OSError as error:
                logger.error("The old dump %s can't be deleted: %s", oldest, error)
                continue
            self._counts["dumps/deleted_files"] += 1
            if self._counts["dumps/deleted_files"] == 1:
                logger.warning(
                    "The dumps of this run reach %g GB: from now on its oldest files are deleted, "
                    "%s first; --env.max_dump_gb sets the limit",
                    self._max_bytes / 1e9,
                    oldest,
                )

    def close(self) -> None:
        """Wait for pending writes for a while, then log and count the rest as lost; idempotent."""
        if self.disk.close() and (lost := self._given - self._ended):
            self._counts["dumps/lost"] += lost
            logger.error(
                "The disk of %s does not respond: %s lost to disk",
                self._folder,
                counted(lost),
            )


def counted(groups: int) -> str:
    """Return a number of groups in words.

    Example:
        >>> counted(1), counted(2)
        ('1 group', '2 groups')
    """
    return "1 group" if groups == 1 else f"{groups} groups"


class DumpContent(NamedTuple):
    """The rows of a file, and the number of lines that could not be read."""

    rows: list[dict[str, Any]]
    torn: int


def read_dump(path: Path | str) -> DumpContent:
    """Read a dump file; skip and count lines that hold no JSON object."""
    rows = []
    torn = 0
    with open_regular(Path(path)) as file:
        lines = file.read().splitlines()
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            torn += 1
    if torn:
        logger.warning("%s: skipped %d torn lines", path, torn)
    return DumpContent(rows, torn)


def read_rows(path: Path) -> DumpContent:
    """Read a dump file as `read_dump`; raises FixableError where it can't be read."""
    try:
        return read_dump(path)
    except OSError as error:
        raise FixableError(f"{path} can't be read: {error.strerror}") from error


def read_groups(path: Path) -> tuple[list[StoredGroup], int]:
    """Read the groups of a file, and the number of lines that could not be read."""
    rows, torn = read_rows(path)
    if not rows:
        raise FixableError(f"{path} holds no groups; leave it out")
    groups = []
    for number, row in enumerate(rows, start=1):
        try:
            groups.append(StoredGroup.from_json(row, file=path))
        except ValueError as error:
            raise FixableError(
                f"{path}: row {number} is not a group of rollouts: {error}; give dumps or "
                "evaluation samples (samples.jsonl) that this version wrote"
            ) from error
    return groups, torn


def rescored_path(path: Path) -> Path:
    """Return the path of a file's rescored rows, beside it."""
    return path.with_name(path.name.removesuffix(".jsonl") + RESCORED)


def holds_groups(name: str) -> bool:
    """Return whether a file of that name holds groups or samples that a run has written."""
    written = (
        r"(samples|reasoning_gym_environment_\w*rollouts_.*(?<!\.rescored))\.jsonl$"
    )
    return bool(re.match(written, name))


def require_no_rescored(folder: Path, files: Sequence[Path]) -> None:
    """Raise FixableError if a folder also holds other scores of its files' rollouts."""
    copies = [rescored_path(file) for file in files if rescored_path(file).exists()]
    if copies:
        raise FixableError(
            f"{folder} holds rescored copies of {len(copies)} of its {len(files)} files, such as "
            f"{copies[0].name}: name the files to read, the copies or the others"
        )


def stored_files(
    paths: Sequence[Path], *, also: str = "", with_rescored: bool = False
) -> list[Path]:
    """Replace each folder by the dumps and evaluation samples below it, and keep a file once.

    Args:
        also: the name of other files in the folders, which come last.
        with_rescored: accept folders that hold rescored copies, and leave those out.

    Raises:
        FixableError: a folder holds no rows, or other scores of its rows as well.
    """
    files: list[Path] = []
    for path in paths:
        row_files = [path]
        if path.is_dir():
            row_files = files_below(path, holds_groups)
            if not with_rescored:
                require_no_rescored(path, row_files)
        if not row_files:
            raise FixableError(
                f"{path} holds no dumps and no evaluation samples; give another folder or files"
            )
        files += row_files
    if also:
        for folder in filter(Path.is_dir, paths):
            files += files_below(folder, also.__eq__)
    return distinct_files(files)


def coverage(groups: Sequence[StoredGroup]) -> str:
    """Say which part of their runs' groups these groups of training are, by their numbers."""
    last: dict[str, int] = {}
    for group in groups:
        last[group.run] = max(last.get(group.run, 0), group.number)
    total = sum(last.values())
    whose = "the run" if len(last) == 1 else f"{len(last)} runs"
    if len(groups) >= total:
        return f"all groups of {whose}"
    return f"a selection: {len(groups):,} of the {total:,} groups of {whose}"


def distinct_files(paths: Sequence[Path]) -> list[Path]:
    """Keep each file once, by its first name; FixableError for a file and its rescored form."""
    files: dict[Path, Path] = {}
    for path in paths:
        files.setdefault(path.resolve(), path)
    for path in files:
        if rescored_path(path) in files:
            raise FixableError(
                f"{path} and {rescored_path(path).name} hold the same rollouts: give one of them"
            )
    return list(files.values())
