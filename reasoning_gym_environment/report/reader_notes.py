"""The notes that readers have written on runs, and which of them are new to a page."""

from __future__ import annotations

from collections import defaultdict

from ..storage.notes import notes_path, read_notes
from .runs import RunEntry

Look = tuple[int, int, int]
"""Inode, size and time of a file: another one after each change."""


class ReaderNotes:
    """The notes of runs as their files had them at the last look; each change has a number from 1.

    Attributes:
        changes: so many.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._looks: dict[str, Look | None] = {}
        self._texts: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._numbers: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def look(self, run: RunEntry) -> None:
        """Read a run's notes if their file has changed."""
        look = _look_at(run)
        if look == self._looks.get(run.key):
            return
        self._looks[run.key] = look
        before = self._texts[run.key]
        now = notes_of(run)
        for about in before.keys() | now.keys():
            if before.get(about) != now.get(about):
                self.changes += 1
                self._numbers[run.key][about] = self.changes
        self._texts[run.key] = now

    def since(self, run: str, changes: int) -> dict[str, str]:
        """Return what came after so many changes; a note that was removed is empty."""
        texts = self._texts[run]
        return {
            about: texts.get(about, "")
            for about, number in self._numbers[run].items()
            if number > changes
        }


def notes_of(run: RunEntry) -> dict[str, str]:
    """Return the texts of a run's notes by what they are on."""
    return read_notes(run.folder, run.notes_name) if run.folder else {}


def _look_at(run: RunEntry) -> Look | None:
    """Look at a run's file of notes; None without one."""
    path = notes_path(run.folder, run.notes_name) if run.folder else None
    try:
        info = path.stat() if path else None
    except OSError:
        return None
    return (info.st_ino, info.st_size, info.st_mtime_ns) if info else None
