"""The search for a text in stored groups: their questions, then their completions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ..storage.rows import StoredGroup
from ..util.files import open_regular
from .files import Place, parse_group
from .filter import is_in_question


def matches(path: Path, rows: Iterable[tuple[str, Place]], text: str) -> Iterator[str]:
    """Yield where a text in lower case is in some rows of a file; see `LiveIndex.search`."""
    escaped = json.dumps(text)[1:-1].encode()
    with suppress(OSError), open_regular(path) as file:
        for identifier, place in rows:
            line = os.pread(file.fileno(), place.length, place.offset)
            # Dumps are ASCII with escapes, so most rows need no parsing. Letters beyond ASCII have
            # escapes that differ between upper and lower case.
            if text.isascii() and escaped not in line.lower():
                continue
            with suppress(ValueError):  # the file was replaced
                group = parse_group(line, path)
                yield from _matches_of(identifier, group, text)


def _matches_of(identifier: str, group: StoredGroup, text: str) -> Iterator[str]:
    """Yield the group if its question has the text, else its rollouts that have it."""
    if is_in_question(text, group):
        yield identifier
        return
    for number, rollout in enumerate(group.rollouts, start=1):
        if text in rollout.text.lower():
            yield f"{identifier}.{number}"
