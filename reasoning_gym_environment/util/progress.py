"""Progress bars and progress lines for many jobs, with their rate and the time left."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tqdm import tqdm

from .concurrency import gather_or_cancel

logger = logging.getLogger(__name__)

T = TypeVar("T")


class AboveBars(logging.StreamHandler):  # type: ignore[type-arg]  # no parameter before 3.11
    """A handler that writes above a terminal's bars, and the last message of `live` below."""

    def __init__(self, live: str) -> None:
        super().__init__()
        self._live = live
        self._line: tqdm[Any] | None = None
        # Each is shown once, and its count at the end.
        self._warnings: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if record.name == self._live:
                # tqdm cuts at the edge what has a bar, here an empty one.
                if self._line is None:
                    self._line = tqdm(
                        bar_format="{desc}{bar}", leave=False, dynamic_ncols=True
                    )
                self._line.set_description_str(record.getMessage())
                return
            line = self.format(record)
            if record.levelno == logging.WARNING:
                warning = line.partition(record.levelname)[2]
                self._warnings[warning] += 1
                if self._warnings[warning] > 1:
                    return
            if record.levelno >= logging.WARNING and "NO_COLOR" not in os.environ:
                line = f"\x1b[33m{line}\x1b[0m"  # yellow
            tqdm.write(line, file=self.stream)
        except (OSError, ValueError):
            self.handleError(record)

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
        for warning, times in self._warnings.items():
            if times > 1:
                tqdm.write(f"{times} times:{warning}", file=self.stream)
        super().close()


class Progress:
    """A bar on a terminal, elsewhere a repeated log line.

    Args:
        done: jobs of the total that are already done.
        log_every: seconds between log lines.
        note: returns what to add to the line; may be empty.
    """

    def __init__(
        self,
        description: str,
        *,
        total: int,
        done: int = 0,
        log_every: float = 30.0,
        note: Callable[[], str] = str,
    ) -> None:
        self._description = description
        self._total = total
        self._before = self._done = done
        self._log_every = log_every
        self._note = note
        self._begin = time.monotonic()
        self.bar = tqdm(
            None,
            description,
            total,
            initial=done,
            disable=None,
            dynamic_ncols=True,
        )

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Show progress during the block."""
        with self.bar:
            repeating = asyncio.ensure_future(self._repeat())
            try:
                yield
            finally:
                repeating.cancel()

    def advance(self, jobs: int = 1) -> None:
        """Count more jobs as done."""
        self.bar.update(jobs)
        self._done += jobs

    async def _repeat(self) -> None:
        """Log the line, or refresh the bar, even while no job ends."""
        while True:
            await asyncio.sleep(self._log_every if self.bar.disable else 1.0)
            if self.bar.disable:
                logger.info("%s", self._line(time.monotonic() - self._begin))
            else:
                self.bar.set_postfix_str(self._note())

    def _line(self, elapsed: float) -> str:
        """Return the jobs done, their rate, the time left and the note as plain text."""
        return tqdm.format_meter(
            self._done,
            self._total,
            elapsed,
            ncols=0,
            prefix=self._description,
            initial=self._before,
            postfix=self._note(),
        )


async def with_progress(
    jobs: Sequence[Coroutine[Any, Any, T]],
    description: str,
    *,
    done: int = 0,
    note: Callable[[], str] = str,
) -> list[T]:
    """Await all jobs and show `Progress`; the first failure cancels the others."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    progress = Progress(
        description,
        total=done + len(tasks),
        done=done,
        note=note,
    )
    async with progress.shown():
        for task in tasks:
            task.add_done_callback(lambda job: progress.advance(not job.cancelled()))
        return await gather_or_cancel(tasks)
