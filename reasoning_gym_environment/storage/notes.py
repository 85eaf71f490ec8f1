"""Notes that readers write on rollouts and steps of a run, in a file beside its dumps.

A note is one JSON object on one line. The last one on the same thing counts; an empty one removes
it. Readers who write at the same time lose nothing of each other's.
"""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

from msgspec import Struct, structs

from ..util.files import append_whole, read_regular
from ..util.values import convert
from .rows import utc_now

MOST_BYTES = 2**22
"""Of a file of notes; a larger one is neither written nor read."""

MOST_CHARACTERS = 2000
"""Of a note."""

ABOUT = r"[0-9a-f]{10}(?:-\d{1,9})?\.\d{1,9}|step \d{1,12}"
"""What a note is on: a rollout by its identifier, or a step of the trainer."""


class Note(Struct, frozen=True, kw_only=True):
    """A note with its time in UTC as ISO 8601."""

    time: str
    about: str
    text: str

    def __post_init__(self) -> None:
        if not re.fullmatch(ABOUT, self.about, re.ASCII):
            raise ValueError(f"about must be a rollout or a step, got {self.about!r}")
        if len(self.text) > MOST_CHARACTERS:
            raise ValueError(
                f"text must have at most {MOST_CHARACTERS} characters, got {len(self.text)}"
            )


def notes_path(folder: Path, run: str) -> Path | None:
    """Return the file of a run's notes; None if it is a link, or the run's name is not one.

    Args:
        run: empty for an evaluation, whose folder is its own.
    """
    if not re.fullmatch(r"[\w-]{0,80}", run, re.ASCII):
        return None
    path = folder / f"reasoning_gym_environment_notes_{run or 'evaluation'}.jsonl"
    # Whoever made the folder may have put a link to any file there, its dumps included.
    return None if path.is_symlink() else path


def read_notes(folder: Path, run: str) -> dict[str, str]:
    """Return the texts of a run's notes by what they are on; skip lines that are not notes."""
    path = notes_path(folder, run)
    if path is None:
        return {}
    try:
        lines = read_regular(path, max_bytes=MOST_BYTES).splitlines()
    except OSError:
        return {}  # no note was written yet, or a file that isn't ours
    notes = {}
    for line in lines:
        try:
            note = convert(json.loads(line), Note)
        except (ValueError, RecursionError):
            continue
        notes[note.about] = note.text
    return {about: text for about, text in notes.items() if text}


def write_note(folder: Path, run: str, about: str, text: str) -> None:
    """Append a note; raises ValueError for another name, thing or text, OSError from the disk."""
    path = notes_path(folder, run)
    if path is None:
        raise ValueError(f"no notes can be stored for a run of this name: {run!r}")
    note = Note(time=utc_now(), about=about, text=text)
    line = (json.dumps(structs.asdict(note)) + "\n").encode("ascii")
    stored = 0
    if path.exists():
        info = path.stat()
        if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
            raise ValueError(
                f"{path.name} has another name too, or is no file: move it away"
            )
        stored = info.st_size
    if stored + len(line) > MOST_BYTES:
        raise ValueError(
            f"{path.name} is full, with {MOST_BYTES} bytes: move it away to begin another"
        )
    append_whole(path, line)
