"""Files of rows that still grow, read line by line, and the places of their rows."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..storage.rows import StoredGroup
from ..util.files import open_regular

logger = logging.getLogger(__name__)

MAX_LINE = 64 * 2**20
"""Bytes of a line; a longer one is skipped."""

READ_SIZE = MAX_LINE // 16
"""Bytes read at once, unless a line is longer."""

END_SIZE = 64
"""Bytes before the place of reading, by which a file that was replaced is told."""


class Place(NamedTuple):
    """Where a row is: the number of the file, and the line without its end."""

    file: int
    offset: int
    length: int


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
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.read = 0
        self.restarts = 0
        self.skipped = 0
        self.has_more = False
        self.problem = ""
        self.unreadable = ""
        self._last_look: tuple[int, ...] = ()
        self._identity = (0, 0)  # device and inode
        self._end = b""
        self._skips_rest = False  # of a line that is too long

    def look(self) -> None:
        """Find out whether it has changed."""
        try:
            info = self.path.stat()
        except OSError as error:
            self._fail(error)
            return
        look = (info.st_ino, info.st_size, info.st_mtime_ns)
        if stat.S_ISREG(info.st_mode) and look != self._last_look:
            self._last_look = look
            self.has_more = True

    def next_lines(self) -> list[tuple[int, bytes]]:
        """Read whole lines, some megabytes of them; return each with its offset, without its end.

        A last line without its end is torn, or is being written: it waits.
        """
        try:
            with open_regular(self.path) as file:
                self._detect_replacement(file)
                file.seek(self.read)
                data = file.read(READ_SIZE)
                if b"\n" not in data and len(data) == READ_SIZE:
                    data += file.read(MAX_LINE - len(data))
        except OSError as error:
            self._fail(error)
            return []
        self.unreadable = ""
        return self._split(data)

    def _fail(self, error: OSError) -> None:
        """Wait for the next look; of a file that was deleted, what was read stays."""
        self.has_more = False
        self._last_look = ()
        is_deleted = isinstance(error, FileNotFoundError)
        self.unreadable = "" if is_deleted else error.strerror or str(error)

    def skip(self, why: str) -> None:
        """Count a line that holds no group."""
        self.skipped += 1
        # One line of the log is enough: a file of another kind has no groups at all.
        if self.skipped == 1:
            self.problem = why
            logger.warning("%s: skipped a line: %s", self.path, why)

    def _split(self, data: bytes) -> list[tuple[int, bytes]]:
        whole = data.rfind(b"\n") + 1
        if not whole:
            self.has_more = len(data) == MAX_LINE
            if self.has_more:
                self._skips_rest = True
                self._advance(data)
            return []
        start = self.read
        lines = []
        self._advance(data[:whole])
        self.has_more = self.read < self.size
        for line in data[: whole - 1].split(b"\n"):
            if self._skips_rest:
                self._skips_rest = False
                self.skip(f"it has more than {MAX_LINE} bytes")
            elif line:
                lines.append((start, line))
            start += len(line) + 1
        return lines

    def _advance(self, data: bytes) -> None:
        self.read += len(data)
        self._end = (self._end + data)[-END_SIZE:]

    def _detect_replacement(self, file: BinaryIO) -> None:
        """Start again where another file has the name, or the file another content."""
        info = os.fstat(file.fileno())
        self.size = info.st_size
        identity = (info.st_dev, info.st_ino)
        # An inode may be used again, and a file may be written anew in its place.
        end = os.pread(file.fileno(), len(self._end), self.read - len(self._end))
        if identity == self._identity and end == self._end:
            return
        is_first_read = self._identity == (0, 0)
        if not is_first_read:
            self.restarts += 1
        self._identity = identity
        self._end = b""
        self._skips_rest = False
        self.read = 0
        self.skipped = 0


def parse_group(line: bytes, path: Path) -> StoredGroup:
    """Validate a line; raises ValueError with what is wrong with it."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        # It is not quoted: whose line it is isn't known.
        raise ValueError("it is torn, or not JSON") from error
    return StoredGroup.from_json(row, file=path)
