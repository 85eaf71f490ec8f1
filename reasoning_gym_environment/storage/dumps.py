"""Writes dumps of groups as JSONL and loses none; reads dumps and evaluation samples.

A group is one JSON object on one line, on disk before the group counts as done. After
`kill -9` every finished group is there; a torn last line is skipped and counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import FixableError
from ..util.files import append_whole
from .rows import StoredGroup
from .schema import SCHEMA_VERSION

logger = logging.getLogger(__name__)

PROGRESS_EVERY = 10

RESCORED = ".rescored.jsonl"
"""How the names of rescored files end; `NAME.jsonl` becomes `NAME.rescored.jsonl`."""


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

    A disk that can't be written to is reported loudly once and counted from then on; training
    goes on.

    Args:
        folder: created when the first group comes.
        run_id: part of every file name.
        counts: where "dumps/<kind>" and "dumps/lost" are counted.
    """

    def __init__(self, folder: Path, run_id: str, counts: Counter[str]) -> None:
        self._folder = folder
        self._run_id = run_id
        self._counts = counts
        self._written: Counter[DumpKind] = Counter()
        self._broken = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dumps")

    def path(self, kind: DumpKind, number: int) -> Path:
        """Name the file of the group of that number, from 0."""
        batch = number // kind.groups_per_file
        name = f"reasoning_gym_environment_{kind.name}_{self._run_id}_{batch:04d}.jsonl"
        return self._folder / name

    async def write(self, kind: DumpKind, row: Mapping[str, Any]) -> None:
        """Return when the row is on disk, or counted as lost; cancelling does not stop it."""
        loop = asyncio.get_running_loop()
        await asyncio.shield(loop.run_in_executor(self._thread, self._write, kind, row))

    def _write(self, kind: DumpKind, row: Mapping[str, Any]) -> None:
        line = (json.dumps(row) + "\n").encode()  # ASCII: safe for any model text
        path = self.path(kind, self._written[kind])
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            append_whole(path, line)
        except OSError as error:
            self._counts["dumps/lost"] += 1
            if not self._broken:
                logger.error(
                    "Dumps can't be written to %s (%s): groups are lost to disk from here on, "
                    "training goes on; free space or change data_dumps_dir",
                    self._folder,
                    error,
                )
            self._broken = True
            return
        self._broken = False
        self._written[kind] += 1
        self._counts[f"dumps/{kind.name}"] += 1
        self._log_progress(kind, path)

    def _log_progress(self, kind: DumpKind, path: Path) -> None:
        done = self._written[kind] % kind.groups_per_file
        if done == 0:
            logger.info("Dump file complete: %s (%d groups)", path, kind.groups_per_file)
        elif done % PROGRESS_EVERY == 0:
            logger.info("%s: %d of %d groups in %s", kind.name, done, kind.groups_per_file, path)

    def close(self) -> None:
        """Wait for writes under way. May be called again."""
        self._thread.shutdown(wait=True)


class DumpContent(NamedTuple):
    """The groups of a file, and how many lines could not be read."""

    rows: list[dict[str, Any]]
    torn: int


def read_dump(path: Path) -> DumpContent:
    """Read a dump file; a line that is no JSON object is skipped and counted.

    Raises:
        OSError: the file can't be read.
    """
    rows, torn = [], 0
    for line in path.read_bytes().splitlines():
        try:
            rows.append(_parse(line))
        except (ValueError, RecursionError):
            torn += 1
    if torn:
        logger.warning("%s: skipped %d torn lines", path, torn)
    return DumpContent(rows, torn)


def _parse(line: bytes) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    return row


class GroupFile(NamedTuple):
    """The groups of a file as records, and how many lines could not be read."""

    groups: list[StoredGroup]
    torn: int


def read_rows(path: Path) -> DumpContent:
    """Read a dump file as `read_dump`; raises FixableError where it can't be read."""
    try:
        return read_dump(path)
    except OSError as error:
        raise FixableError(f"{path} can't be read: {error.strerror}") from error


def read_groups(path: Path) -> GroupFile:
    """Read the groups of a file and check that they are of the schema that this version writes.

    Raises:
        FixableError: the file can't be read, or holds nothing or something else.
    """
    content = read_rows(path)
    if not content.rows:
        raise FixableError(f"{path} holds no groups; leave it out")
    groups = []
    for number, row in enumerate(content.rows, start=1):
        version = row.get("schema_version")
        if version != SCHEMA_VERSION:
            found = f"schema version {version}" if version else "no schema version"
            raise FixableError(
                f"{path}: row {number} has {found}, this program reads {SCHEMA_VERSION}; give "
                "dumps or evaluation samples (samples.jsonl) of this version"
            )
        try:
            groups.append(StoredGroup.from_json(row, file=path))
        except ValueError as error:
            raise FixableError(
                f"{path}: row {number} is no group of rollouts: {error}; give dumps or evaluation "
                "samples that this program wrote"
            ) from error
    return GroupFile(groups, content.torn)


def rescored_path(path: Path) -> Path:
    """Name the file of a file's rescored rows, beside it."""
    return path.with_name(path.name.removesuffix(".jsonl") + RESCORED)


def distinct_files(paths: Sequence[Path]) -> list[Path]:
    """Keep each file once, by its first name.

    Raises:
        FixableError: a file and its rescored form are both given.
    """
    files: dict[Path, Path] = {}
    for path in paths:
        files.setdefault(path.resolve(), path)
    for path in files:
        if rescored_path(path) in files:
            raise FixableError(
                f"{path} and {rescored_path(path).name} hold the same rollouts: give one of them"
            )
    return list(files.values())
