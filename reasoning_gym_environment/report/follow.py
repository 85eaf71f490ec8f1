"""The stored rollouts of runs that still write: files are followed, texts stay on disk.

Each row is validated as it is read. Memory holds columns and places, so that 100,000 rollouts take
little; a text is read from its file when somebody asks for it.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import stat
import threading
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..errors import FixableError
from ..evaluation.store import PARTIAL, SAMPLES
from ..storage.dumps import distinct_files, holds_groups
from ..storage.rows import SCHEMA_VERSION, StoredGroup
from ..storage.runs import is_record, read_record
from ..util.text import shorten
from .data import TRAINING
from .health import RunHealth, seconds_of
from .index import GroupIndex, group_id, run_of

logger = logging.getLogger(__name__)

MAX_LINE = 64 * 2**20
"""Bytes of a line; a longer one is skipped."""

MAX_ROLLOUTS = 2_000_000
"""Rollouts in memory; later ones are left out."""

MAX_RUNS = 2000
"""Runs and evaluations; groups of later ones are left out."""

_CHUNK = 4 * 2**20
_FINGERPRINT = 64
_LOOK_SECONDS = 1.0
_NEW_RUN_SECONDS = 60.0
_SEARCHED_AT_ONCE = 64


class GoneError(Exception):
    """A group that is not in the index, or whose file was deleted or replaced."""


class Line(NamedTuple):
    """A line of a file, without its end."""

    offset: int
    data: bytes


class FollowedFile:
    """A file that grows, and may be replaced or cut; read line by line from where it stopped.

    Attributes:
        size: bytes at the last look.
        read: bytes read so far.
        has_more: whether it has changed since it was read to its end.
        restarts: how often it had to be read again from its beginning.
        skipped: lines that were too long, not JSON, or not groups.
        problem: why the first of them was skipped.
        unreadable: why it can't be read now; empty if it can.
        run: the run of its last group, in whose health the skipped lines are reported.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = self.read = self.restarts = self.skipped = 0
        self.has_more = False
        self.problem = self.unreadable = self.run = ""
        self._seen: tuple[int, ...] = ()
        self._identity = (0, 0)
        self._end = b""
        self._skips_rest = False

    def look(self) -> None:
        """Find out whether it has changed."""
        try:
            info = self.path.stat()
        except OSError as error:
            self._fail(error)
            return
        seen = (info.st_ino, info.st_size, info.st_mtime_ns)
        if stat.S_ISREG(info.st_mode) and seen != self._seen:
            self._seen, self.has_more = seen, True

    def next_lines(self) -> list[Line]:
        """Read whole lines, some megabytes of them.

        A last line without its end is torn, or is being written: it waits.
        """
        try:
            with open_regular(self.path) as file:
                self._detect_replacement(file)
                file.seek(self.read)
                data = file.read(_CHUNK)
                if b"\n" not in data and len(data) == _CHUNK:
                    data += file.read(MAX_LINE - _CHUNK)
        except OSError as error:
            self._fail(error)
            return []
        self.unreadable = ""
        return self._split(data)

    def _fail(self, error: OSError) -> None:
        """Wait for the next look; of a file that was deleted, what was read stays."""
        self.has_more, self._seen = False, ()
        deleted = isinstance(error, FileNotFoundError)
        self.unreadable = "" if deleted else error.strerror or str(error)

    def skip(self, why: str) -> None:
        """Count a line that holds no group."""
        self.skipped += 1
        if self.skipped == 1:
            self.problem = why
            logger.warning("%s: skipped a line: %s", self.path, why)

    def _split(self, data: bytes) -> list[Line]:
        whole = data.rfind(b"\n") + 1
        if not whole:
            self.has_more = len(data) == MAX_LINE
            if self.has_more:
                self._skips_rest = True
                self._advance(data)
            return []
        start, lines = self.read, []
        self._advance(data[:whole])
        self.has_more = self.read < self.size
        for line in data[: whole - 1].split(b"\n"):
            if self._skips_rest:
                self._skips_rest = False
                self.skip(f"it has more than {MAX_LINE} bytes")
            elif line:
                lines.append(Line(start, line))
            start += len(line) + 1
        return lines

    def _advance(self, data: bytes) -> None:
        self.read += len(data)
        self._end = (self._end + data)[-_FINGERPRINT:]

    def _detect_replacement(self, file: BinaryIO) -> None:
        """Start again where another file has the name, or the file another content."""
        info = os.fstat(file.fileno())
        self.size = info.st_size
        identity = (info.st_dev, info.st_ino)
        end = os.pread(file.fileno(), len(self._end), self.read - len(self._end))
        if identity != self._identity or end != self._end:
            self.restarts += self._identity != (0, 0)
            self._identity, self._end, self._skips_rest = identity, b"", False
            self.read = self.skipped = 0


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file; raises OSError for any other, such as a pipe, without waiting for it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a regular file")
    return os.fdopen(descriptor, "rb")


def parse_group(line: bytes, path: Path) -> StoredGroup:
    """Validate a line; raises ValueError with what is wrong with it."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is torn, or not JSON: {shorten(line[:50])}") from error
    if not isinstance(row, dict):
        raise ValueError(f"it must be a JSON object, got {shorten(row)}")
    if row.get("schema_version") != SCHEMA_VERSION:
        found = shorten(row.get("schema_version"))
        raise ValueError(f"schema_version must be {SCHEMA_VERSION}, got {found}")
    return StoredGroup.from_json(row, file=path)


class _Place(NamedTuple):
    """Where a row is: the number of the file, and the line without its end."""

    file: int
    offset: int
    length: int


class _Places:
    """The places of all groups, in three arrays."""

    def __init__(self) -> None:
        self._columns = (array("I"), array("Q"), array("I"))

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, number: int) -> _Place:
        return _Place(*(column[number] for column in self._columns))

    def __setitem__(self, number: int, place: _Place) -> None:
        for column, value in zip(self._columns, place, strict=True):
            column[number] = value

    def append(self, place: _Place) -> None:
        for column, value in zip(self._columns, place, strict=True):
            column.append(value)


class LiveIndex:
    """The index of the groups below some paths, which grows as they do.

    Its methods may be called from different threads.

    Args:
        paths: dumps, evaluation samples, and folders in which files may appear.
        since: leaves out files that were last written before it, in seconds since the epoch.

    Raises:
        FixableError: a path doesn't exist, or is given with its rescored form.
    """

    def __init__(self, paths: Sequence[Path], *, since: float = 0.0) -> None:
        for path in paths:
            if not path.exists():
                raise FixableError(f"{path} does not exist; name a folder or file that does")
        self._paths = [path.resolve() for path in distinct_files(paths)]
        self._since = since
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        """Forget everything."""
        self._generation = secrets.token_hex(4)
        self._looked = 0.0
        self._files: dict[Path, FollowedFile] = {}
        self._records: dict[Path, int] = {}
        self._index = GroupIndex()
        self._health: defaultdict[str, RunHealth] = defaultdict(RunHealth)
        self._numbers: dict[str, int] = {}
        self._places = _Places()
        self._read_from: list[Path] = []
        self._read_as: dict[tuple[Path, int], int] = {}
        self._rollouts = self._left_out = 0

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self._places)

    # Following the files.

    def update(self, seconds: float = 0.5) -> bool:
        """Read what is new until about `seconds` have passed; return whether more is left."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with self._lock:
                self._look()
                file = next((file for file in self._files.values() if file.has_more), None)
                if file is None:
                    return False
                self._read(file)
        return True

    def _look(self) -> None:
        """Find new files, and which ones have changed."""
        if time.monotonic() < self._looked + _LOOK_SECONDS:
            return
        for modified, path in sorted(self._found()):
            if is_record(path.name):
                self._read_record(path, modified)
            elif path not in self._files:
                self._files[path] = FollowedFile(path)
        for file in self._files.values():
            file.look()
        self._looked = time.monotonic()

    def _found(self) -> Iterator[tuple[int, Path]]:
        """Yield the files with rows and the records of runs, and when they were modified."""
        for given in self._paths:
            paths = [given]
            if given.is_dir():
                walked = os.walk(given)
                paths = [Path(at, name) for at, _, own in walked for name in own if _holds(name)]
            for path in paths:
                with suppress(OSError):
                    info = path.stat()
                    if stat.S_ISREG(info.st_mode) and info.st_mtime_ns >= self._since * 1e9:
                        yield info.st_mtime_ns, path

    def _read_record(self, path: Path, modified: int) -> None:
        """Read a run's record, if it has changed; a run that has just begun has no groups yet."""
        if self._records.get(path) == modified or (record := read_record(path)) is None:
            return
        self._records[path] = modified
        is_new = time.time() - (seconds_of(record.updated) or 0.0) < _NEW_RUN_SECONDS
        begins = is_new and not record.ended and len(self._index.runs) < MAX_RUNS
        if record.run in self._index.runs or begins:
            self._index.set_record(record, path.parent)

    def _read(self, file: FollowedFile) -> None:
        restarts, lines = file.restarts, file.next_lines()
        if file.restarts > restarts and file.path.name in (SAMPLES, PARTIAL):
            self._start()  # a resumed evaluation asks its unscored items again
            return
        number = self._read_as.setdefault((file.path, file.restarts), len(self._read_from))
        self._read_from += [file.path] if number == len(self._read_from) else []
        for line in lines:
            try:
                group = parse_group(line.data, file.path)
            except ValueError as error:
                file.skip(str(error))
            else:
                self._add(group, _Place(number, line.offset, len(line.data)))
                file.run, _ = run_of(group)

    def _add(self, group: StoredGroup, place: _Place) -> None:
        """Add a group, or note that it moved to another file, as finished evaluations do."""
        identifier = group_id(group)
        known = self._numbers.get(identifier)
        run, _ = run_of(group)
        if known is not None and self._places[known].file != place.file:
            self._places[known] = place
        elif self._has_room(run, len(group.rollouts)):
            self._rollouts += len(group.rollouts)
            unique = self._index.add(group, identifier=identifier)
            self._numbers[unique] = len(self._places)
            self._places.append(place)
            self._health[run].add(group)
        else:
            self._left_out += 1

    def _has_room(self, run: str, rollouts: int) -> bool:
        has_run = run in self._index.runs or len(self._index.runs) < MAX_RUNS
        return has_run and self._rollouts + rollouts <= MAX_ROLLOUTS

    # What the page asks for.

    def batch(self, cursor: str = "") -> dict[str, Any]:
        """Return what came since a cursor; everything where it is empty or of another index."""
        with self._lock:
            generation, _, since = cursor.partition("-")
            known = generation == self._generation and since.isdecimal() and len(since) < 9
            first = int(since) if known else 0
            if first > len(self):
                known, first = False, 0
            batch = self._index.batch(first)
            batch["groups"].pop("at")
            self._describe_runs(batch["runs"])
            return {
                **batch,
                "cursor": f"{self._generation}-{len(self)}",
                "restart": not known,
                "reading": self._share_read(),
                "notes": self._notes(),
            }

    def _describe_runs(self, entries: Sequence[dict[str, Any]]) -> None:
        """Add to each run how it goes."""
        now, skipped = time.time(), Counter[str]()
        for file in self._files.values():
            skipped[file.run] += file.skipped
        for entry, run in zip(entries, self._index.runs.values(), strict=True):
            health = self._health[run.key]
            ended = bool(entry["ended"])
            entry["health"] = health.lines(
                run.record,
                trains=run.kind == TRAINING,
                unreadable=skipped[run.key],
                ended=ended,
                now=now,
            )
            entry["header"] += [] if ended else health.pace(now)

    def _share_read(self) -> float:
        files = [file for file in self._files.values() if file.has_more]
        left = sum(max(0, file.size - file.read) for file in files)
        return 1 - left / max(1, sum(file.size for file in self._files.values()))

    def _notes(self) -> list[str]:
        files = [file for file in self._files.values() if file.problem and not file.run]
        notes = [f"{file.path}: no groups; a line was skipped: {file.problem}" for file in files]
        notes += [
            f"{file.path} can't be read ({file.unreadable}): new groups in it are not shown"
            for file in self._files.values()
            if file.unreadable
        ]
        if self._left_out:
            limits = f"{MAX_ROLLOUTS:,} rollouts or {MAX_RUNS:,} runs"
            notes.append(f"{self._left_out:,} groups beyond {limits} are left out")
        return notes

    def group(self, identifier: str) -> StoredGroup:
        """Read a group from its file; raises GoneError where it can't be."""
        with self._lock:
            if (number := self._numbers.get(identifier)) is None:
                raise GoneError(f"no such group: {shorten(identifier)}")
            place = self._places[number]
            path = self._read_from[place.file]
        try:
            with open_regular(path) as file:
                group = parse_group(os.pread(file.fileno(), place.length, place.offset), path)
        except (OSError, ValueError) as error:
            raise GoneError(f"{path} was deleted or replaced") from error
        if not identifier.startswith(group_id(group)):
            raise GoneError(f"{path} was replaced")
        return group

    def search(self, text: str, *, after: int = 0, seconds: float = 0.5) -> dict[str, Any]:
        """Search questions and completions for a text until about `seconds` have passed.

        Args:
            text: found in upper and lower case.
            after: groups that an earlier call has searched.

        Returns:
            `found`: the ids of groups whose question has the text, and ID.N for rollouts, from 1;
            `searched`: so many groups, `of` so many.
        """
        deadline = time.monotonic() + seconds
        found: list[str] = []
        while after < len(self) and time.monotonic() < deadline:
            with self._lock:
                numbers = range(after, min(after + _SEARCHED_AT_ONCE, len(self)))
                rows = [(self._index.identifier(n), self._places[n]) for n in numbers]
                paths = {place.file: self._read_from[place.file] for _, place in rows}
            for file, own in groupby(rows, lambda row: row[1].file):
                found += _matches(paths[file], own, text.lower())
            after += len(rows)
        return {"found": found, "searched": after, "of": len(self)}


def _holds(name: str) -> bool:
    return holds_groups(name) or name == PARTIAL or is_record(name)


def _matches(path: Path, rows: Iterable[tuple[str, _Place]], text: str) -> Iterator[str]:
    """Yield where a text in lower case is in some rows of a file; see `LiveIndex.search`."""
    escaped = json.dumps(text)[1:-1].encode()  # dumps are ASCII: most rows need no parsing
    with suppress(OSError), open_regular(path) as file:
        for identifier, place in rows:
            line = os.pread(file.fileno(), place.length, place.offset)
            if text.isascii() and escaped not in line.lower():
                continue
            with suppress(ValueError):  # the file was replaced
                group = parse_group(line, path)
                if any(text in m["content"].lower() for m in group.prompt if m["role"] != "system"):
                    yield identifier
                    continue
                for number, rollout in enumerate(group.rollouts, start=1):
                    if text in rollout.text.lower():
                        yield f"{identifier}.{number}"
