"""What a run does, in one line every few seconds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable

from ..records import GroupResult, Signal, Status
from ..scoring.rewards import signal
from .metrics import Mean

logger = logging.getLogger(__name__)


class Summary:
    """Counts groups between two lines.

    Args:
        clock: gives the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all = 0
        self._begin()

    def _begin(self) -> None:
        self._since = self._clock()
        self._groups = 0
        self._solved, self._truncated, self._unanswered = Mean(), Mean(), Mean()
        self._mixed, self._level = Mean(), Mean()

    def add(self, group: GroupResult) -> None:
        """Count a group; what is unscored is no share of anything but truncation."""
        self._groups += 1
        self._all += 1
        kind = signal([attempt.verdict for attempt in group.attempts])
        if kind is not None:
            self._mixed.add(float(kind is Signal.MIXED))
        if group.problem.recipe.level is not None:
            self._level.add(group.problem.recipe.level)
        for attempt in group.attempts:
            self._truncated.add(float(attempt.completion.truncated))
        for attempt in group.scored:
            self._solved.add(float(attempt.verdict.status is Status.SOLVED))
            self._unanswered.add(float(attempt.verdict.status is Status.NO_ANSWER))

    def line(self) -> str:
        """Say what came since the last line, and begin anew."""
        seconds = max(self._clock() - self._since, 1e-9)
        said = [f"{self._all} groups, {self._groups / seconds:.1f}/s"]
        for what, mean in (
            ("solved", self._solved),
            ("with signal", self._mixed),
            ("truncated", self._truncated),
            ("no answer", self._unanswered),
        ):
            if mean.count:
                said.append(f"{mean.value:.0%} {what}")
        if self._level.count:
            said.append(f"mean level {self._level.value:.1f}")
        self._begin()
        return ", ".join(said)

    async def log(self, seconds: float) -> None:
        """Log a line every so many seconds once groups come, for ever."""
        while True:
            await asyncio.sleep(seconds)
            if self._all:
                logger.info("%s", self.line())
            else:
                self._begin()


@contextlib.asynccontextmanager
async def summarizing(summary: Summary, seconds: float) -> AsyncIterator[None]:
    """Log the summary's lines while the body runs."""
    task = asyncio.ensure_future(summary.log(seconds))
    try:
        yield
    finally:
        task.cancel()
