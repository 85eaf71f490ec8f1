"""Locks between processes that end with their holder, however that ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


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
