"""Checkpoints of one replica's training stream: written atomically, validated when read."""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import FixableError
from ..util.concurrency import DaemonWriter
from ..util.files import LockFile, UnwritableError, read_regular, write_whole
from ..util.retries import Retry, RetryPolicy
from ..util.values import convert

logger = logging.getLogger(__name__)

MOST_BYTES = 2**28
"""Of a checkpoint; one of all tasks with a full memory has some megabytes."""

VERSION = 1
STREAM = "stream_state"
MODULES = "task_modules"


class Checkpoints:
    """The checkpoints of one replica in its folder, `step-N.json`.

    All of one training have the `lineage` of its step 0, since a folder may hold those of an
    earlier one. A failed save is logged and counted, and training continues.

    Args:
        counts: counters "checkpoints/saved" and "checkpoints/failed".
        modules: the digest of each module with own tasks, by name.

    Attributes:
        folder: of this replica.
    """

    def __init__(
        self,
        folder: Path,
        counts: Counter[str],
        modules: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._counts = counts
        self._modules = dict(modules or {})
        self._highest = -1
        self._lineage: str = ""
        self._lock = LockFile(folder.with_name(f"{folder.name}.lock"))
        self._disk = DaemonWriter(folder)
        self._waiting: set[asyncio.Task[None]] = set()

    async def claim(self, *, patience: float = 30.0) -> str:
        """Lock the replica's name for as long as this process lives; return the last note.

        Raises:
            FixableError: another process has not released it after `patience` seconds.
        """
        retry = Retry(RetryPolicy(seconds=patience, first_pause=0.5))
        try:
            while not self._lock.acquire():
                if not await retry.wait():
                    raise FixableError(
                        f"{self._lock.path} is held by {self._lock.holder}: "
                        f"another process is replica {self.folder.name!r}; stop it, or name this "
                        "replica with --env.replica"
                    )
            note = self._lock.read().partition("\n")[2]
            self._lock.sign()  # the note is used up
        except OSError as error:
            logger.warning("%s can't be locked (%s)", self._lock.path, error)
            return ""
        return note

    def leave_note(self, note: str) -> bool:
        """Leave a note to the next process of this name; return False where that is impossible."""
        try:
            if self._lock.held:
                self._lock.sign(note)
        except OSError as error:
            logger.warning("%s can't be written (%s)", self._lock.path, error)
            return False
        return self._lock.held

    def require_writable(self) -> None:
        """Create the folder; raises FixableError where no checkpoint can be written to it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            raise UnwritableError(
                f"checkpoints can't be written to {self.folder} ({error.strerror}): make "
                "it writable, or give the trainer another checkpoint folder"
            ) from error

    def submit(self, step: int, content: Mapping[str, Any]) -> None:
        """Save as `save`, in the background and in order; `close` waits for it.

        Raises:
            TypeError: the content is not JSON.
        """
        text = json.dumps(content)  # now, since what it holds changes
        saved = self._disk.submit(lambda: self.save(step, json.loads(text)))
        waiting = asyncio.create_task(self._disk.wait(saved))  # logs a disk that hangs
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)

    def save(self, step: int, content: Mapping[str, Any]) -> None:
        """Write a checkpoint atomically, unless this run has saved a later step.

        A run saves its states in order, so an earlier step would get a later state.
        """
        path = self._path(step)
        if step < self._highest:
            self.failed(
                step, f"this run has saved step {self._highest}: the trainer went back"
            )
            return
        self._lineage = (
            self._lineage or (step and _lineage(self._path(0))) or uuid.uuid4().hex
        )
        try:
            modules = {MODULES: self._modules} if self._modules else {}
            about = {
                "schema_version": VERSION,
                "lineage": self._lineage,
                **modules,
                **content,
            }
            write_whole(path, json.dumps(about), synced=True)
        except OSError as error:
            self.failed(step, str(error))
            return
        self._highest = step
        self._counts["checkpoints/saved"] += 1

    def failed(self, step: int, reason: str) -> None:
        """Log and count a step whose checkpoint was not saved."""
        self._counts["checkpoints/failed"] += 1
        logger.error(
            "The checkpoint of step %d was not saved: %s; training continues, and a restart at "
            "this step would continue an earlier checkpoint",
            step,
            reason,
        )

    def close(self) -> None:
        """Wait for pending saves for a while, then release the replica's name; idempotent."""
        lost = self._disk.close()
        if lost:
            self._counts["checkpoints/failed"] += lost
            logger.error(
                "The disk of %s does not respond: %d checkpoints lost",
                self.folder,
                lost,
            )
        self._lock.release()

    def newest(self, step: int) -> Path | None:
        """Return the newest checkpoint up to a step, of the lineage of step 0; None without one."""
        first_lineage = _lineage(self._path(0))
        paths = [
            path for path in self.folder.glob("step-*.json") if 0 <= _step(path) <= step
        ]
        for path in sorted(paths, key=_step, reverse=True):
            # A damaged one has no lineage; whoever reads it reports that.
            if not first_lineage or _lineage(path) in (first_lineage, None):
                return path
        return None

    def read(self, path: Path, *, accept_changed: bool) -> dict[str, Any]:
        """Return a checkpoint's stream state, for its owner to validate, and what else was saved.

        Raises ValueError if it is not a checkpoint, or a module has changed since.
        """
        content = _read(path)
        content.pop("lineage", None)
        version = content.pop("schema_version", None)
        if version != VERSION:
            raise ValueError(
                f"schema_version is {version!r:.50}, this program reads {VERSION}"
            )
        if STREAM not in content:
            raise ValueError(f"{STREAM} is missing: it is not a checkpoint")
        for name, digest in convert(content.pop(MODULES, {}), dict[str, str]).items():
            now = self._modules.get(name, digest)
            if now != digest and not accept_changed:
                raise ValueError(
                    f"its module {name} has changed, from {digest:.40} to {now}, and with it its "
                    "tasks; set --env.accept_changed_modules true to continue nevertheless"
                )
        return content

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step}.json"


def _step(path: Path) -> int:
    """Return the step in a file's name; -1 without one."""
    number = path.stem.removeprefix("step-")
    return int(number) if number.isdecimal() and number.isascii() else -1


def _lineage(path: Path) -> Any:
    """Return a checkpoint's lineage; None if there is none, or no checkpoint."""
    try:
        return _read(path).get("lineage")
    except ValueError:
        return None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_regular(path, max_bytes=MOST_BYTES))
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"it is not valid JSON: {error}") from error
    return convert(content, dict[str, Any])
