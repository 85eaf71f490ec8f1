"""Atomic writes of files and folders, checks of where they go, and a lock file."""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..errors import FixableError

logger = logging.getLogger(__name__)


class UnwritableError(FixableError, OSError):
    """A file or folder that can't be written."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file; raises OSError for any other, such as a pipe, without waiting for it."""
    # Without O_NONBLOCK, opening a pipe waits for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a regular file")
    return os.fdopen(descriptor, "rb")


MOST_DEPTH = 100
"""Folders within folders; `os.walk` of Python 3.11 fails some hundreds deeper."""

MOST_BYTES = 2**26
"""Of a file that is read whole; the largest that the package writes has some megabytes."""


def read_regular(path: Path, *, max_bytes: int = MOST_BYTES) -> bytes:
    """Return a regular file of at most `max_bytes` bytes as bytes; raises OSError for others."""
    with open_regular(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(0, f"it has more than {max_bytes:,} bytes")
    return content


def stays_below(path: Path, folder: Path) -> bool:
    """Return whether a path is a regular file that no link leads out of a folder.

    Whoever made a folder may have put links to any file of its reader's machine into it.
    """
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):  # it leads nowhere, or in a circle
        return False
    return real.is_file() and real.is_relative_to(folder.resolve())


def named_below(folder: Path, wanted: Callable[[str], bool]) -> list[Path]:
    """Return the paths with wanted names in a folder and MOST_DEPTH subfolders, of any kind."""
    paths = []
    for place, folders, names in os.walk(folder):
        paths += [Path(place, name) for name in names if wanted(name)]
        if len(Path(place).relative_to(folder).parts) == MOST_DEPTH:
            folders.clear()
    return paths


def files_below(folder: Path, wanted: Callable[[str], bool]) -> list[Path]:
    """Return a folder's files with wanted names, sorted; links out of it are not followed."""
    named = named_below(folder, wanted)
    files = [path for path in sorted(named) if stays_below(path, folder)]
    skipped = len(named) - len(files)
    if skipped:
        logger.warning(
            "%s: skipped %d files that are no regular files of this folder",
            folder,
            skipped,
        )
    return files


def require_free(path: Path, *, force: bool) -> None:
    """Raise FixableError if the path exists, unless `force` allows replacing it."""
    if path.exists() and not force:
        raise FixableError(f"{path} exists; --force replaces it")


def require_not_read(output: Path, inputs: Sequence[Path]) -> None:
    """Raise FixableError if the output would overwrite an input."""
    for path in map(Path.resolve, inputs):
        if output.resolve() in (path, *path.parents):
            raise FixableError(
                f"{output} would overwrite the input {path}; choose another output"
            )


def require_place(folder: Path, setting: str) -> None:
    """Raise UnwritableError, which names the setting, unless a folder can be written or made."""
    try:
        nearest = next(path for path in (folder, *folder.parents) if path.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(0, f"{nearest} is a file")
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise UnwritableError(
            f"{setting}: {folder} is not writable ({error.strerror}); choose another folder"
        ) from error


def write_whole(path: Path, text: str, *, synced: bool = False) -> None:
    """Replace a file atomically, with fsync if `synced`; raises UnwritableError."""
    with replacing(path) as partial, partial.open("x", encoding="utf-8") as file:
        file.write(text)
        if synced:
            file.flush()
            os.fsync(file.fileno())
    if synced:
        sync_folder(path.parent)


def append_whole(path: Path, data: bytes, *, synced: bool = False) -> None:
    """Append all of the data, with fsync if `synced`; after an OSError, nothing of it is there."""
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
    """fsync a folder, and so the names of its files; raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path whose file or folder replaces `path` if the block succeeds.

    A file replaces a file, and a folder a folder. Raises UnwritableError.
    """
    # No link can be put in the place of a name that nobody can predict.
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            _put_in_place(partial, path)
        finally:
            _remove(partial)
    except OSError as error:
        raise UnwritableError(
            f"{path} can't be written: {error.strerror or error}"
        ) from error


def _put_in_place(partial: Path, path: Path) -> None:
    """Replace a file in one step; restore an old folder if the new one can't replace it."""
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
    """A file with a short text that one process at a time can lock, also between machines.

    The kernel releases the lock when its holder exits, `kill -9` included.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def acquire(self) -> bool:
        """Lock the file unless another process holds it; return whether it is held now.

        Raises:
            OSError: the file can't be created or is a link, or its file system has no locks.
        """
        if self._descriptor is not None:
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Signing it would overwrite the file that a link leads to.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(self.path, flags, 0o644)
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:
            os.close(descriptor)
            raise OSError(0, "not a regular file with one name")
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

    @property
    def holder(self) -> str:
        """The process that has signed the file; empty if none has."""
        text = self.path.read_text(encoding="ascii", errors="replace")
        return text.partition("\n")[0].strip()

    def sign(self, note: str = "") -> None:
        """Write which process holds the lock, and a note to its next holder; raises OSError."""
        self.write(f"process {os.getpid()} on {socket.gethostname()[:30]}\n{note}")

    def read(self) -> str:
        """Return the text of the last holder; empty if there is none."""
        assert self._descriptor is not None
        return (
            os.pread(self._descriptor, 256, 0).decode("ascii", errors="replace").strip()
        )

    def write(self, text: str) -> None:
        """Write a text of at most 255 characters at once; raises OSError."""
        assert self._descriptor is not None
        os.pwrite(self._descriptor, f"{text:<255}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
