"""When a serving environment evaluates: at steps that are due, on one replica of all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ..evaluation.election import LeaderElection


class EvaluationSchedule:
    """Starts the evaluations of a training, one at a time.

    Args:
        every: the trainer's steps between evaluations; none at 0 or less.
        lock: the path that replicas with equal evaluations share.
    """

    def __init__(self, every: int, lock: Path) -> None:
        self._election = LeaderElection(lock, every=every) if every > 0 else None

    def start_if_due(
        self,
        step: int,
        running: asyncio.Task[None] | None,
        evaluate: Callable[[], Coroutine[Any, Any, None]],
    ) -> asyncio.Task[None] | None:
        """Return the task of an evaluation that is due at a step and begins; None for none.

        Args:
            evaluate: logs its failures.
        """
        election = self._election
        if election is None or (running is not None and not running.done()):
            return None
        if not election.is_due(step):
            return None

        def record(evaluation: asyncio.Task[None]) -> None:
            if not evaluation.cancelled():
                evaluation.exception()  # `evaluate` logs it
                election.record_done(step)

        task = asyncio.create_task(evaluate())
        task.add_done_callback(record)
        return task

    def close(self) -> None:
        """Leave the leadership to another replica."""
        if self._election is not None:
            self._election.close()
