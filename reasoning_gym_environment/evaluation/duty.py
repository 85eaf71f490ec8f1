"""Which of a run's replicas evaluates, and at which of the trainer's steps."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from ..util.files import LockFile

logger = logging.getLogger(__name__)

_BETWEEN_LOOKS = 5.0


class EvaluationDuty:
    """Gives one replica the duty to evaluate, for as long as it lives, and then another.

    The file holds the last step whose evaluation is done, so the replica that takes over makes up
    for what its predecessor didn't finish. Replicas that can't share the file all evaluate.

    Args:
        path: the file that replicas with the same evaluation share.
        every: an evaluation is due at each multiple of so many steps; at 0 or less none is.
        clock: gives the time in seconds.
    """

    def __init__(
        self, path: Path, *, every: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lock = LockFile(path)
        self._every = every
        self._clock = clock
        self._look_at = 0.0
        self._done: int | None = None

    def due(self, step: int) -> bool:
        """Whether this replica has the duty, and an evaluation is due at a step or was before."""
        if self._every <= 0 or not self._has_duty(step):
            return False
        assert self._done is not None
        return step // self._every > self._done // self._every

    def done(self, step: int) -> None:
        """Note that the evaluation due at a step is done."""
        self._done = step
        if self._lock.held:
            try:
                self._lock.write(str(step))
            except OSError as error:
                logger.warning("%s can't be written (%s)", self._lock.path, error)

    def close(self) -> None:
        """Leave the duty to another replica."""
        self._lock.release()

    def _has_duty(self, step: int) -> bool:
        if self._done is not None:
            return True
        if self._clock() < self._look_at:
            return False
        self._look_at = self._clock() + _BETWEEN_LOOKS
        try:
            if not self._lock.acquire():
                return False
        except OSError as error:
            logger.warning(
                "%s can't be locked (%s): this replica evaluates, whatever others do",
                self._lock.path,
                error,
            )
            self._done = step
            return True
        self._take_over(step)
        return True

    def _take_over(self, step: int) -> None:
        """Go on from the file's step; a later one than the trainer's is of an earlier run."""
        left = self._lock.read()
        if left.isdecimal() and int(left) <= step:
            self._done = int(left)
        else:
            self.done(step)
        logger.info("This replica evaluates; the last evaluation was due at step %d", self._done)
