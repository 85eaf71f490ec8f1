"""Checkpoints of one replica's training stream: written whole, read with suspicion."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import FixableError
from ..util.concurrency import DaemonWriter
from ..util.files import LockFile, UnwritableError, require_writable, write_whole
from .dump_writer import CLOSE_SECONDS, STALL_SECONDS

logger = logging.getLogger(__name__)

VERSION = 1
STREAM = "stream_state"

CLAIM_SECONDS = 30.0


class Checkpoints:
    """Saves and finds the checkpoints of one replica in its folder, `step-N.json`.

    A failed save is said and counted, and the run goes on.

    Args:
        counts: where "checkpoints/saved" and "checkpoints/failed" are counted.
    """

    def __init__(self, folder: Path, counts: Counter[str]) -> None:
        self._folder = folder
        self._counts = counts
        self._highest = -1
        self._lock = LockFile(folder.with_name(f"{folder.name}.lock"))
        self._thread = DaemonWriter("checkpoints")
        self._saving: asyncio.Future[None] | None = None

    async def claim(self, *, patience: float = CLAIM_SECONDS) -> None:
        """Keep the replica's name from other processes, for as long as this one lives.

        Args:
            patience: so many seconds are given to one that has it and may be about to end.

        Raises:
            FixableError: another process has it.
        """
        deadline = time.monotonic() + patience
        try:
            while not self._lock.acquire():
                if time.monotonic() >= deadline:
                    raise FixableError(
                        f"{self._lock.path} is held by {self._lock.path.read_text().strip()}: "
                        f"another process is replica {self._folder.name!r}; end it, or give this "
                        "one a name of its own with --env.replica"
                    )
                await asyncio.sleep(0.5)
            self._lock.write(f"process {os.getpid()} on {socket.gethostname()[:30]}")
        except OSError as error:
            logger.warning("%s can't be locked (%s)", self._lock.path, error)

    def require_writable(self) -> None:
        """Make the folder; raises FixableError where no checkpoint can be written to it."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            require_writable(self._folder)
        except OSError as error:
            raise UnwritableError(
                f"checkpoints can't be written to {self._folder} ({error.strerror or error}): make "
                "it writable, or give the trainer another checkpoint folder"
            ) from error

    def save(self, step: int, content: Mapping[str, Any]) -> None:
        """Write a checkpoint, whole or not at all; none replaces one of a later state.

        The states of one run come in the order of their saving. A step below one that this run
        has saved would therefore put a later state under an earlier step.
        """
        path = self._path(step)
        if step < self._highest:
            self.failed(step, f"this run has saved step {self._highest}: the trainer went back")
            return
        try:
            text = json.dumps({"schema_version": VERSION, **content})
            write_whole(path, text, synced=True)
        except OSError as error:
            self.failed(step, str(error))
            return
        self._highest = step
        self._counts["checkpoints/saved"] += 1

    async def save_aside(self, step: int, content: Mapping[str, Any]) -> None:
        """Save as `save`, but wait for a disk that stalls no longer than a few seconds."""
        if self._saving is not None and not self._saving.done():
            self.failed(step, "its disk holds up the one before")
            return
        self._saving = self._thread.submit(lambda: self.save(step, content))
        await asyncio.wait([self._saving], timeout=STALL_SECONDS)
        if self._saving.done():
            self._saving.result()
        else:
            logger.warning("The disk holds up the checkpoint of step %d: training goes on", step)

    def failed(self, step: int, reason: str) -> None:
        """Say and count that a step's checkpoint was not saved."""
        self._counts["checkpoints/failed"] += 1
        logger.error(
            "The checkpoint of step %d was not saved: %s; training goes on, and a restart at this "
            "step would continue an earlier checkpoint",
            step,
            reason,
        )

    def close(self) -> None:
        """Wait a while for a save under way, then let go of the replica's name."""
        if not self._thread.close(patience=CLOSE_SECONDS):
            self._counts["checkpoints/failed"] += 1
            logger.error("The disk of %s does not answer: a checkpoint is lost", self._folder)
        self._lock.release()

    def newest(self, step: int) -> Path | None:
        """Find a step's checkpoint, or the newest before it; None where there is none.

        What is older than that of step 0 was left by an earlier run in the same folder.
        """
        if self._path(step).exists():
            return self._path(step)
        began = self._path(0)
        since = began.stat().st_mtime_ns if began.exists() else 0
        found = [path for path in self._folder.glob("step-*.json") if 0 <= _step(path) < step]
        of_this_run = [path for path in found if path.stat().st_mtime_ns >= since]
        return max(of_this_run, key=_step, default=None)

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step}.json"


def _step(path: Path) -> int:
    """Read the step in a file's name; -1 where it has none."""
    number = path.stem.removeprefix("step-")
    return int(number) if number.isdecimal() and number.isascii() else -1


def read_checkpoint(path: Path) -> Any:
    """Read the stream's state in a checkpoint, for its owner to check.

    Raises:
        ValueError: the file can't be read, or holds none; the message says why.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    version = content.get("schema_version", VERSION)
    if version != VERSION:
        raise ValueError(f"its schema version is {version!r:.50}, this program reads {VERSION}")
    if STREAM not in content:
        raise ValueError(f"it lacks {STREAM}")
    return content[STREAM]


def unusable(path: Path, reason: object) -> FixableError:
    """Say which checkpoint can't be continued, why, and the way out."""
    return FixableError(
        f"the checkpoint {path} can't be continued: {reason}; delete it to continue the one before "
        "it or, where there is none, to begin the training stream anew"
    )
