"""The index of runs that still write: their files are followed.

Each row is validated as it is read. Memory holds columns and places, so that 100,000 rollouts take
little; a text is read from its file when somebody asks for it.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
import threading
import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from ..errors import FixableError
from ..evaluation.store import PARTIAL_SAMPLES, SAMPLES
from ..storage.dumps import distinct_files, holds_groups
from ..storage.notes import write_note
from ..storage.rows import StoredGroup
from ..storage.run_record import is_record, read_record
from ..util.files import named_below, open_regular, stays_below
from ..util.values import describe_error, shorten
from .files import FollowedFile, Place, parse_group
from .health import RunHealth
from .identity import TRAINING, group_id, run_of
from .index import GroupIndex
from .pairs import compare_pair
from .reader_notes import ReaderNotes
from .search import matches
from .times import seconds_of

logger = logging.getLogger(__name__)

MAX_ROLLOUTS = 2_000_000
"""Rollouts in memory; later ones are left out."""

MAX_RUNS = 2000
"""Runs and evaluations; groups of later ones are left out."""

NEW_SECONDS = 60.0
"""A record that was updated within this time is of a run that has begun, perhaps without groups."""

SEARCH_STEP = 64
"""Groups that a search looks at before it checks its time."""


CURSOR_DIGITS = 8
"""Digits of the longest number in a cursor: more than MAX_ROLLOUTS has."""


class GoneError(Exception):
    """A group that is not in the index, or whose file was deleted or replaced."""


class LiveIndex:
    """The index of the groups below some paths, which grows as they do.

    Its methods may be called from different threads.

    Args:
        paths: dumps, evaluation samples, and folders in which files may appear.
        only_new: leaves out files until they change.

    Raises:
        FixableError: a path doesn't exist, or is given with its rescored form.
    """

    look_seconds = 1.0
    """Seconds between two looks for what is new."""

    ended = ""
    """What a page says when its server ends; then the page asks no more."""

    failure = ""
    """Why the last `update` failed, which only a bug can; empty if it did not."""

    def __init__(self, paths: Sequence[Path], *, only_new: bool = False) -> None:
        for path in paths:
            if not path.exists():
                raise FixableError(
                    f"{path} does not exist; name a folder or file that does"
                )
        self._paths = [path.resolve() for path in distinct_files(paths)]
        self._old: dict[Path, int] = {}
        self._old = (
            {path: modified for modified, path in self._found()} if only_new else {}
        )
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        """Forget everything."""
        self._generation = secrets.token_hex(4)
        self._looked = 0.0
        self._files: dict[Path, FollowedFile] = {}
        # Of a file's last group: in its health the skipped lines are reported.
        self._run_by_file: dict[Path, str] = {}
        self._records: dict[Path, int] = {}
        self._index = GroupIndex()
        self._health: defaultdict[str, RunHealth] = defaultdict(RunHealth)
        self._numbers: dict[str, int] = {}
        self._places = array("Q")  # three numbers a group: a `Place`
        self._read_from: list[Path] = []
        self._read_as: dict[tuple[Path, int], int] = {}
        self._rollouts = 0
        self._left_out = 0
        self._reader_notes = ReaderNotes()

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self._places) // 3

    def _place(self, number: int) -> Place:
        return Place(*self._places[3 * number : 3 * number + 3])

    def update(self, seconds: float = 0.5) -> bool:
        """Read what is new until about `seconds` have passed; return whether more is left."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with self._lock:
                self._look()
                file = next(
                    (file for file in self._files.values() if file.has_more), None
                )
                if file is None:
                    return False
                self._read(file)
        return True

    def _look(self) -> None:
        """Find new files, and which ones have changed."""
        if time.monotonic() < self._looked + self.look_seconds:
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
        for root in self._paths:
            for path in _files_below(root):
                with suppress(OSError):
                    info = path.stat()
                    if stat.S_ISREG(info.st_mode) and info.st_mtime_ns != self._old.get(
                        path
                    ):
                        yield info.st_mtime_ns, path

    def _read_record(self, path: Path, modified: int) -> None:
        """Read a run's record, if it has changed; a run that has just begun has no groups yet."""
        if self._records.get(path) == modified:
            return
        record = read_record(path)
        if record is None:
            return
        self._records[path] = modified
        is_new = time.time() - (seconds_of(record.updated) or 0.0) < NEW_SECONDS
        begins = is_new and not record.ended and len(self._index.runs) < MAX_RUNS
        if record.run in self._index.runs or begins:
            self._index.set_record(record, path.parent)

    def _read(self, file: FollowedFile) -> None:
        restarts = file.restarts
        lines = file.next_lines()
        if file.restarts > restarts and file.path.name in (SAMPLES, PARTIAL_SAMPLES):
            self._reset()  # a resumed evaluation asks its unscored items again
            return
        number = self._read_as.setdefault(
            (file.path, file.restarts), len(self._read_from)
        )
        if number == len(self._read_from):
            self._read_from.append(file.path)
        for offset, line in lines:
            try:
                group = parse_group(line, file.path)
                self._add(group, Place(number, offset, len(line)))
            except ValueError as error:
                file.skip(str(error))
            except Exception as error:  # noqa: BLE001 - whatever a row holds, it ends no page
                file.skip(f"it can't be indexed ({describe_error(error)})")
            else:
                self._run_by_file[file.path], _ = run_of(group)

    def _add(self, group: StoredGroup, place: Place) -> None:
        """Add a group, or note that it moved to another file, as finished evaluations do."""
        identifier = group_id(group)
        number = self._numbers.get(identifier)
        run, _ = run_of(group)
        if number is not None and self._place(number).file != place.file:
            self._places[3 * number : 3 * number + 3] = array("Q", place)
        elif self._has_room(run, len(group.rollouts)):
            self._health[run].add(group)
            unique = self._index.add(group, identifier=identifier)
            self._rollouts += len(group.rollouts)
            self._numbers[unique] = len(self)
            self._places.extend(place)
        else:
            self._left_out += 1

    def _has_room(self, run: str, rollouts: int) -> bool:
        runs = self._index.runs
        fits = self._rollouts + rollouts <= MAX_ROLLOUTS
        return fits and (run in runs or len(runs) < MAX_RUNS)

    def batch(self, cursor: str = "") -> dict[str, Any]:
        """Return what came since a cursor; everything where it is empty or of another index."""
        with self._lock:
            place = self._place_after(cursor)
            first_number, note_changes = place or (0, 0)
            batch = self._index.batch(first_number)
            batch["groups"].pop("at")
            for entry, run in zip(
                batch["runs"], self._index.runs.values(), strict=True
            ):
                self._reader_notes.look(run)
                entry["notes"] = self._reader_notes.since(run.key, note_changes)
            self._add_health(batch["runs"], time.time())
            files = self._files.values()
            unread = sum(
                max(0, file.size - file.read) for file in files if file.has_more
            )
            return {
                **batch,
                "cursor": f"{self._generation}-{len(self)}-{self._reader_notes.changes}",
                "restart": place is None,
                "reading": 1 - unread / max(1, sum(file.size for file in files)),
                "notes": self._notes(),
                "ended": self.ended,
            }

    def _place_after(self, cursor: str) -> tuple[int, int] | None:
        """Return the groups and the changes of notes before a cursor; None for another index's."""
        generation, *counts = cursor.split("-")
        are_counts = all(
            count.isdecimal() and len(count) <= CURSOR_DIGITS for count in counts
        )
        if generation != self._generation or not are_counts or len(counts) != 2:
            return None
        groups, note_changes = map(int, counts)
        if groups > len(self) or note_changes > self._reader_notes.changes:
            return None
        return groups, note_changes

    def _add_health(self, entries: Sequence[dict[str, Any]], now: float) -> None:
        """Add to each run's entry what its health and its pace are."""
        skipped = Counter[str]()
        for path, run_key in self._run_by_file.items():
            skipped[run_key] += self._files[path].skipped
        for entry, run in zip(entries, self._index.runs.values(), strict=True):
            health = self._health[run.key]
            trains = run.kind == TRAINING
            entry["health"] = health.lines(
                run.record,
                trains=trains,
                unreadable=skipped[run.key],
                ended=entry["ended"],
                now=now,
            )
            if entry["health"][0]["level"] != "past":
                entry["header"] += health.pace(now)

    def _notes(self) -> list[str]:
        """Return what is not shown, and why."""
        files = self._files.values()
        notes = [
            f"{file.path}: no groups; a line was skipped: {file.problem}"
            for file in files
            if file.problem and file.path not in self._run_by_file
        ]
        notes += [
            f"{file.path} can't be read ({file.unreadable}): new groups in it are not shown"
            for file in files
            if file.unreadable
        ]
        if self.failure:
            notes.append(
                f"New groups can't be read ({self.failure}): it is tried again"
            )
        if self._left_out:
            limits = f"{MAX_ROLLOUTS:,} rollouts or {MAX_RUNS:,} runs"
            notes.append(f"{self._left_out:,} groups beyond {limits} are left out")
        return notes

    def group(self, identifier: str) -> StoredGroup:
        """Read a group from its file; raises GoneError where it can't be."""
        with self._lock:
            number = self._numbers.get(identifier)
            if number is None:
                raise GoneError(f"no such group: {shorten(identifier)}")
            place = self._place(number)
            path = self._read_from[place.file]
        try:
            with open_regular(path) as file:
                group = parse_group(
                    os.pread(file.fileno(), place.length, place.offset), path
                )
        except (OSError, ValueError) as error:
            raise GoneError(f"{path} was deleted or replaced") from error
        if not identifier.startswith(group_id(group)):
            raise GoneError(f"{path} was replaced")
        return group

    def compare(self, before: str, after: str) -> dict[str, Any]:
        """Return the comparison of two evaluations; raises GoneError for an unknown one."""
        with self._lock:
            for run in (before, after):
                if run not in self._index.runs:
                    raise GoneError(f"no such evaluation: {shorten(run)}")
            return compare_pair(self._index, before, after)

    def note(self, run: str, about: str, text: str) -> None:
        """Store a reader's note beside the run's files.

        Raises:
            GoneError: the run or the rollout is not in the index, or the run has no folder.
            ValueError: another name, thing or text.
            OSError: the disk is full, or the folder can't be written.
        """
        identifier, is_rollout, place = about.rpartition(".")
        with self._lock:
            entry = self._index.runs.get(run)
            if entry is None or entry.folder is None:
                raise GoneError(f"no such run: {shorten(run)}")
            number = self._numbers.get(identifier)
            rollouts = 0 if number is None else self._index.rollouts_of(run, number)
        is_place = place.isdecimal() and len(place) <= CURSOR_DIGITS
        if is_rollout and not (is_place and 1 <= int(place) <= rollouts):
            raise GoneError(f"no such rollout in this run: {shorten(about)}")
        write_note(entry.folder, entry.notes_name, about, text)

    def search(
        self, text: str, *, after: int = 0, seconds: float = 0.5
    ) -> dict[str, Any]:
        """Search questions and completions for a text until about `seconds` have passed.

        Args:
            text: found in upper and lower case.
            after: groups that an earlier call has searched.

        Returns:
            `found`: the ids of groups whose question has the text, and ID.N for rollouts, from 1;
            `searched`: so many groups, `of` so many.
        """
        deadline = time.monotonic() + seconds
        identifiers: list[str] = []
        while after < len(self) and time.monotonic() < deadline:
            with self._lock:
                numbers = range(after, min(after + SEARCH_STEP, len(self)))
                rows = [(self._index.identifier(n), self._place(n)) for n in numbers]
                paths = {place.file: self._read_from[place.file] for _, place in rows}
            for file, rows_of_file in groupby(rows, lambda row: row[1].file):
                identifiers += matches(paths[file], rows_of_file, text.lower())
            after += len(rows)
        return {"found": identifiers, "searched": after, "of": len(self)}


def _files_below(path: Path) -> list[Path]:
    """Return the files with rows and the records of runs in a folder; a file is itself."""
    if not path.is_dir():
        return [path]
    return [file for file in named_below(path, _is_read) if stays_below(file, path)]


def _is_read(name: str) -> bool:
    return holds_groups(name) or name == PARTIAL_SAMPLES or is_record(name)
