"""Files and folders that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..core.errors import FixableError


def require_free(path: Path, *, force: bool) -> None:
    """Raises FixableError where something is there that must not be replaced."""
    if path.exists() and not force:
        raise FixableError(f"{path} exists; --force replaces it")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write a file or a folder to; it takes the place of `path` when all went well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        if path.is_dir() or partial.is_dir():  # a file takes the place of a file at once
            _remove(path)
        partial.replace(path)
    finally:
        _remove(partial)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
