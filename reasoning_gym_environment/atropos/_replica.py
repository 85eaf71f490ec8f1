"""One replica of a run: its checkpoints, and the election of the replica that evaluates."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..storage.checkpoints import Checkpoints, read_checkpoint, unusable
from ..util.files import LockFile

logger = logging.getLogger(__name__)

_BETWEEN_ELECTIONS = 5.0


class Replica:
    """One replica of a run.

    Args:
        folder: checkpoint folder of the trainer.
        run: name that the replicas of the run share.
        name: the replica's own.
        counts: event counts of the checkpoints.
    """

    def __init__(self, folder: Path, *, run: str, name: str, counts: Counter[str]) -> None:
        self._folder = folder / "env_checkpoints"
        self._run = run
        self._name = name
        self.checkpoints = Checkpoints(self._folder / name, counts)
        self._election: LeaderElection | None = None

    async def claim(self, *, saves: bool, is_named: bool) -> None:
        """Claim the replica's name if it saves checkpoints or a user named it.

        Raises:
            FixableError: another process has the name, or checkpoints can't be written.
        """
        if saves:
            self.checkpoints.require_writable()
        if saves or is_named:
            await self.checkpoints.claim()

    def resume(self, step: int, load: Callable[[Any], None]) -> None:
        """Load the newest checkpoint up to the trainer's step, if there is one.

        Raises:
            FixableError: the checkpoint is invalid, or `load` raises a ValueError.
        """
        path = self.checkpoints.newest(step)
        if path is None:
            logger.warning(
                "No checkpoint for step %s of %s below %r: starting the training stream from the "
                "beginning",
                step,
                self._name,
                str(self._folder.parent),
            )
            return
        try:
            load(read_checkpoint(path))
        except ValueError as error:
            raise unusable(path, error) from error
        logger.info("Continued %s at the trainer's step %d", path, step)

    def should_evaluate(self, step: int, *, every: int, key: Callable[[], str]) -> bool:
        """Return whether an evaluation is due and this replica is the one to run it.

        Args:
            every: steps between evaluations; 0 or less for none.
            key: names the evaluation; replicas with equal keys get equal results.
        """
        if every <= 0:
            return False
        if self._election is None:
            path = self._folder / f"{self._run}.evaluation-{key()}"
            self._election = LeaderElection(path, every=every)
        return self._election.is_due(step)

    def evaluated(self, step: int) -> None:
        """Record that the evaluation due at a step is done."""
        assert self._election is not None
        self._election.record_done(step)

    def close(self) -> None:
        """Release the name and the leadership."""
        self.checkpoints.close()
        if self._election is not None:
            self._election.close()


class LeaderElection:
    """Elects one of a run's replicas to evaluate; when it exits, another takes over.

    The leader holds a lock on a file with the step of the last finished evaluation, so that its
    successor catches up. Replicas whose file system has no locks all evaluate.

    Args:
        path: file that replicas with the same evaluation share.
        every: steps between evaluations, at least 1.
        clock: gives the time in seconds.
    """

    def __init__(
        self, path: Path, *, every: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lock = LockFile(path)
        self._every = every
        self._clock = clock
        self._next_election = 0.0
        self._done: int | None = None

    def is_due(self, step: int) -> bool:
        """Return whether this replica leads, and an evaluation is or was due by a step."""
        if self._done is None and not self._is_elected(step):
            return False
        assert self._done is not None
        return step // self._every > self._done // self._every

    def record_done(self, step: int) -> None:
        """Record that the evaluation due at a step is done."""
        self._done = step
        if self._lock.held:
            try:
                self._lock.write(str(step))
            except OSError as error:
                logger.warning("Could not write %s (%s)", self._lock.path, error)

    def close(self) -> None:
        """Leave the leadership to another replica."""
        self._lock.release()

    def _is_elected(self, step: int) -> bool:
        if self._clock() < self._next_election:
            return False
        self._next_election = self._clock() + _BETWEEN_ELECTIONS
        try:
            if not self._lock.acquire():
                return False
        except OSError as error:
            logger.warning(
                "Could not lock %s (%s): this replica evaluates, and so may others",
                self._lock.path,
                error,
            )
            self._done = step
            return True
        last = self._lock.read()
        if last.isdecimal() and int(last) <= step:
            self._done = int(last)
        else:  # empty, or of an earlier run
            self.record_done(step)
        logger.info("This replica evaluates; the last evaluation was due at step %d", self._done)
        return True
