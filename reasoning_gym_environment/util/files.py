"""Files and folders that are written whole or not at all, and only where they may be."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import FixableError


class UnwritableError(FixableError, OSError):
    """A place can't be written to."""


def require_free(path: Path, *, force: bool) -> None:
    """Refuse a path where something is that must not be replaced; raises FixableError."""
    if path.exists() and not force:
        raise FixableError(f"{path} exists; --force replaces it")


def require_not_read(output: Path, inputs: Sequence[Path]) -> None:
    """Refuse an output that would replace what it is made from; raises FixableError."""
    for path in map(Path.resolve, inputs):
        if output.resolve() in (path, *path.parents):
            raise FixableError(f"writing {output} would destroy {path}, which is read; rename it")


def require_writable(folder: Path) -> None:
    """Refuse a folder where no file can be made, before work is put into one.

    Raises:
        UnwritableError: none can.
    """
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UnwritableError(f"{folder} can't be written to: {error.strerror}") from error


def require_place(folder: Path, setting: str) -> None:
    """Refuse a folder that can neither be made nor written to; none is made here.

    Args:
        setting: names it in the message.

    Raises:
        UnwritableError: files can't go there.
    """
    try:
        nearest = next(path for path in (folder, *folder.parents) if path.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(0, f"{nearest} is a file")
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise UnwritableError(
            f"{setting}: nothing can be written to {folder} ({error.strerror}); give another folder"
        ) from error


def write_whole(path: Path, text: str, *, synced: bool = False) -> None:
    """Replace a file; what it held stays where that fails.

    Args:
        synced: whether the text shall be on the disk itself, not in the system's memory, before
            it takes the file's place.

    Raises:
        UnwritableError: it can't be written.
    """
    with replacing(path) as partial, partial.open("w") as file:
        file.write(text)
        if synced:
            file.flush()
            os.fsync(file.fileno())
    if synced:
        sync_folder(path.parent)


def append_whole(path: Path, data: bytes, *, synced: bool = False) -> None:
    """Append all of the data or none of it.

    Args:
        synced: whether it shall be on the disk itself, not in the system's memory.

    Raises:
        OSError: it could not be written; the file ends where it did before.
    """
    new = synced and not path.exists()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        end = os.fstat(descriptor).st_size
        try:
            if new:
                sync_folder(path.parent)
            written = 0
            while written < len(data):
                written += os.write(descriptor, data[written:])
            if synced:
                os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, end)
            raise
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Have the names of a folder's files on the disk itself; raises OSError where that fails."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path to write to; what is there takes the place of `path` when all went well.

    Files replace files, and folders folders.

    Raises:
        UnwritableError: it can't be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            _put_in_place(partial, path)
        finally:
            _remove(partial)
    except OSError as error:
        raise UnwritableError(f"{path} can't be written: {error.strerror or error}") from error


def _put_in_place(partial: Path, path: Path) -> None:
    """Replace a file in one step; an old folder comes back where the new one can't go."""
    if not (path.is_dir() and partial.is_dir()):
        partial.replace(path)
        return
    aside = partial.with_suffix(".old")
    path.replace(aside)
    try:
        partial.replace(path)
    except OSError:
        aside.replace(path)
        raise
    _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class LockFile:
    """A file that one process at a time holds, with a short text in it.

    The kernel frees it when its holder is gone, `kill -9` included. It works between machines
    where their shared file system knows `flock`; where it does not, `acquire` raises.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def acquire(self) -> bool:
        """Take it unless another process has it; whether it is held now.

        Raises:
            OSError: the file can't be made, or its file system knows no locks.
        """
        if self._descriptor is not None:
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def read(self) -> str:
        """Read the text that its last holder left; empty where there is none."""
        assert self._descriptor is not None
        return os.pread(self._descriptor, 64, 0).decode("ascii", errors="replace").strip()

    def write(self, text: str) -> None:
        """Leave a text of at most 63 characters, in one write; raises OSError."""
        assert self._descriptor is not None
        os.pwrite(self._descriptor, f"{text:<63}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Let go of it. May be called again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
