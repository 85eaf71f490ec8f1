"""Reads dumps and evaluation samples; what a crash has left of a last line is no obstacle."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import FixableError
from .rows import StoredGroup
from .schema import SCHEMA_VERSION

logger = logging.getLogger(__name__)

RESCORED = ".rescored.jsonl"
"""How the names of rescored files end; `NAME.jsonl` becomes `NAME.rescored.jsonl`."""


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
