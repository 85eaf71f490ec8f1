"""Dump files and evaluation samples, read to be used again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import FixableError
from .dumps import SCHEMA_VERSION, DumpContent, read_dump
from .stored import require_group

RESCORED = ".rescored.jsonl"
"""How the names of rescored files end; `NAME.jsonl` becomes `NAME.rescored.jsonl`."""


def read_groups(path: Path) -> DumpContent:
    """The groups of a file, all of the schema that this version writes.

    Raises:
        FixableError: the file can't be read, or holds nothing or something else.
    """
    try:
        content = read_dump(path)
    except OSError as error:
        raise FixableError(f"{path} can't be read: {error.strerror}") from error
    if not content.rows:
        raise FixableError(f"{path} holds no groups; leave it out")
    for number, row in enumerate(content.rows, start=1):
        version = row.get("schema_version")
        if version != SCHEMA_VERSION:
            found = f"schema version {version}" if version else "no schema version"
            raise FixableError(
                f"{path}: row {number} has {found}, this program reads {SCHEMA_VERSION}; give "
                "dumps or evaluation samples (samples.jsonl) of this version"
            )
        try:
            require_group(row)
        except ValueError as error:
            raise FixableError(
                f"{path}: row {number} is no group of rollouts: {error}; give dumps or evaluation "
                "samples that this program wrote"
            ) from error
    return content


def rescored_path(path: Path) -> Path:
    """Where the rescored rows of a file go: beside it."""
    return path.with_name(path.name.removesuffix(".jsonl") + RESCORED)


def distinct_files(paths: Sequence[Path]) -> list[Path]:
    """Each file once, by its first name.

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
