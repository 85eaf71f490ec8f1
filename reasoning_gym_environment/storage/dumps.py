"""What a run writes into its folder: dumps of its groups as JSONL, and a record of itself.

A group is one JSON object on one line, on disk before the group counts as done unless the disk
stalls. After `kill -9` every finished group is there; a torn last line is skipped and counted. The
record has the run's settings and how it goes: one small file, replaced every few seconds off the
event loop, which `watch` and `report` read.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, structs

from ..errors import FixableError
from ..util.concurrency import DaemonWriter
from ..util.files import append_whole, write_whole
from ..util.logs import SecretRedactor
from ..util.outages import LogThrottle, Outage
from ..util.values import escape_control_characters, validate
from .rows import StoredGroup, utc_now

logger = logging.getLogger(__name__)

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
            if self._failure.should_log:
                logger.error(
                    "Dumps can't be written to %s (%s): %s lost to disk so far, training "
                    "continues; free space or change data_dumps_dir",
                    *(self._folder, error, counted(self._failure.lost)),
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
            logger.info(
                "Dump file complete: %s (%d groups)", path, kind.groups_per_file
            )
        elif done % 10 == 0:
            logger.info(
                "%s: %d of %d groups in %s", kind.name, done, kind.groups_per_file, path
            )
        self._delete_oldest()
        seconds = self._failure.end()
        if seconds is not None:
            logger.warning(
                "Dumps are written to %s again after %.0f s, with %s lost to disk",
                *(self._folder, seconds, counted(self._failure.lost)),
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
                    *(self._max_bytes / 1e9, oldest),
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
    for line in Path(path).read_bytes().splitlines():
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


def stored_files(paths: Sequence[Path], *, also: str = "") -> list[Path]:
    """Replace each folder by the dumps and evaluation samples below it, and keep a file once.

    Args:
        also: the name of other files in the folders, which come last.
    """
    files: list[Path] = []
    for path in paths:
        own = [path]
        if path.is_dir():  # without rescored files
            own = sorted(
                file for file in path.rglob("*.jsonl") if holds_groups(file.name)
            )
        if not own:
            raise FixableError(
                f"{path} holds no dumps and no evaluation samples; give another folder or files"
            )
        files += own
    if also:
        files += [
            file for path in paths if path.is_dir() for file in sorted(path.rglob(also))
        ]
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


RECORD_SECONDS = 5.0
"""Interval between two writes of a run's record."""


class LoggedWarning(Struct, frozen=True):
    """A warning or error of the run's log, on one line, with its time in UTC as ISO 8601."""

    time: str
    level: str
    text: str


class RunRecord(Struct, frozen=True, kw_only=True):
    """What a run says about itself.

    Attributes:
        ended: empty before, and after `kill -9`.
        settings: who the run is: command, model, sampling settings, seed and so on.
        waiting: what requests wait for; empty if nothing holds them back.
        failures: groups lost in a row, now.
        lost: groups lost to disk.
        deleted: dump files deleted at their limit.
    """

    run: str
    started: str
    updated: str
    ended: str = ""
    settings: dict[str, Any] = {}
    waiting: str = ""
    failures: int = 0
    lost: int = 0
    deleted: int = 0
    warnings: list[LoggedWarning] = []


def record_path(folder: Path, run: str) -> Path:
    """Return the file of a run's record."""
    return folder / f"reasoning_gym_environment_run_{run}.json"


def is_record(name: str) -> bool:
    """Return whether a file of that name is a run's record."""
    return bool(re.fullmatch(r"reasoning_gym_environment_run_[\w-]{1,80}\.json", name))


def read_record(path: Path) -> RunRecord | None:
    """Read a record; None if it can't be read, since its dumps need nothing of it."""
    try:
        with path.open("rb") as file:
            return validate(json.loads(file.read(2**20)), RunRecord)
    except (OSError, ValueError, RecursionError):
        return None


def read_run(folder: Path, run: str) -> RunRecord | None:
    """Read the record of a run, whose name may come from a row; None without one."""
    path = record_path(folder, run)
    mine = is_record(path.name) and path.parent == folder and path.is_file()
    return read_record(path) if mine else None


class _WarningCollector(logging.Handler):
    """Keeps the last warnings of the package's log, without API keys."""

    def __init__(self, redactor: SecretRedactor) -> None:
        super().__init__(logging.WARNING)
        self.kept: deque[LoggedWarning] = deque(maxlen=8)
        self._redactor = redactor

    def emit(self, record: logging.LogRecord) -> None:
        text = self._redactor.clean(record.getMessage()).partition("\n")[0]
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(
            timespec="seconds"
        )
        text = escape_control_characters(text)[:300]
        self.kept.append(LoggedWarning(time=time, level=record.levelname, text=text))


class RunRecorder:
    """Writes a run's record until it is closed. A disk that fails or hangs disturbs nothing.

    Args:
        redactor: has the API keys, which the log may name.
        state: returns the record's changing fields: `waiting`, `failures`, `lost`, `deleted`.
    """

    def __init__(
        self,
        folder: Path,
        run: str,
        *,
        disk: DaemonWriter,
        redactor: SecretRedactor,
        state: Callable[[], dict[str, Any]],
    ) -> None:
        self._path = record_path(folder, run)
        self._record: dict[str, Any] = {"run": run, "started": utc_now()}
        self._state = state
        self._warnings = _WarningCollector(redactor)
        self._throttle = LogThrottle()
        self._disk = disk
        self._pending: asyncio.Future[None] | None = None
        self._repeating: asyncio.Task[None] | None = None

    def start(self, settings: Mapping[str, Any]) -> None:
        """Begin to write; later calls do nothing."""
        if self._repeating is None:
            self._record["settings"] = dict(settings)
            logging.getLogger(__package__.partition(".")[0]).addHandler(self._warnings)
            self._repeating = asyncio.create_task(self._repeat())

    async def _repeat(self) -> None:
        while True:
            if self._pending is None or self._pending.done():
                self._submit()
            await asyncio.sleep(RECORD_SECONDS)

    def _submit(self, **more: str) -> None:
        warnings = [structs.asdict(warning) for warning in list(self._warnings.kept)]
        record = {
            **self._record,
            "updated": utc_now(),
            **self._state(),
            "warnings": warnings,
        }
        text = json.dumps({**record, **more}) + "\n"
        self._pending = self._disk.submit(lambda: self._write(text))

    def _write(self, text: str) -> None:
        try:
            write_whole(self._path, text)
        except OSError as error:
            self._throttle.record_failure()
            if self._throttle.should_log:
                logger.warning("The run's record can't be written: %s", error)
        else:
            self._throttle.record_success()

    def close(self) -> None:
        """Submit the end, which the disk's `close` waits for. Idempotent."""
        if self._repeating is not None:
            self._repeating.cancel()
            self._repeating = None
            logging.getLogger(__package__.partition(".")[0]).removeHandler(
                self._warnings
            )
            self._submit(ended=utc_now())
