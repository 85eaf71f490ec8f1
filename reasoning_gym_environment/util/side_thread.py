"""A thread for what a stalled disk may hold up: neither the event loop nor the end waits for it."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple


class _Job(NamedTuple):
    work: Callable[[], None]
    done: Future[None]


class SideThread:
    """Does its jobs one after another, in the order in which they are given.

    A thread of an executor would hold the program up at its end; this one does not.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self._closed = False

    def submit(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Give it a job, which nothing stops any more; the result is there when it is done.

        Raises:
            RuntimeError: it is closed.
        """
        if self._closed:
            raise RuntimeError(f"{self._thread.name} is closed")
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # from here on it can't be cancelled
        self._jobs.put(_Job(work, done))
        return asyncio.wrap_future(done)

    def close(self, *, patience: float) -> bool:
        """Let it finish its jobs for so many seconds; whether it did. May be called again."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.work()
            except BaseException as error:  # noqa: BLE001 - it is the caller's, as in an executor
                job.done.set_exception(error)
            else:
                job.done.set_result(None)
