"""The election of the replica that evaluates."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from ..util.files import LockFile

logger = logging.getLogger(__name__)


class LeaderElection:
    """Elects the replica that evaluates: it locks a file with the last evaluation's step.

    When it dies, `kill -9` included, the kernel frees the lock and another replica takes over.
    Replicas whose file system has no locks all evaluate.
    """

    def __init__(self, path: Path, *, every: int) -> None:
        self._lock = LockFile(path)
        self._every = every
        self._done: int | None = None  # None while another replica leads
        self._retry_at = 0.0

    def is_due(self, step: int) -> bool:
        """Return whether this replica leads, and an evaluation is or was due by a step."""
        if self._done is None and time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + 5.0
            try:
                if self._lock.acquire():
                    # An empty file, or one of an earlier run, counts from this step on.
                    last = self._lock.read()
                    self.record_done(
                        int(last) if last.isdecimal() and int(last) <= step else step
                    )
                    logger.info(
                        "This replica evaluates what is due after step %d", self._done
                    )
            except OSError as error:
                self._done = step
                message = (
                    "Could not lock %s (%s): this replica evaluates, and so may others"
                )
                logger.warning(message, self._lock.path, error)
        return (
            self._done is not None and step // self._every > self._done // self._every
        )

    def record_done(self, step: int) -> None:
        """Record that the evaluation due at a step is done."""
        self._done = step
        try:
            if self._lock.held:
                self._lock.write(str(step))
        except OSError as error:
            logger.warning("Could not write %s (%s)", self._lock.path, error)

    def close(self) -> None:
        """Leave the leadership to another replica."""
        self._lock.release()
