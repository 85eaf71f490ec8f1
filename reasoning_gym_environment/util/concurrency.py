"""Threads, gathering, admission and shutdown for an event loop that must not stall."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeVar

T = TypeVar("T")

LARGE = 16_000
"""Tokens from which work runs in the thread; fewer take milliseconds."""

SWITCH_SECONDS = 0.001
"""Interpreter switch interval that the commands set (Python's default is 0.005): the longest that
the event loop waits for a computing thread each time it resumes."""


def _start_text_thread() -> None:
    """Set the executor; a fork needs its own, since it has none of the parent's threads."""
    global _text_thread
    _text_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="text")


_text_thread: ThreadPoolExecutor
"""One worker: a call into C holds the interpreter lock, so more threads stall the loop longer."""
_start_text_thread()
os.register_at_fork(after_in_child=_start_text_thread)


async def offload(work: Callable[[], T], *, tokens: int) -> T:
    """Run work on `tokens` tokens: inline if they are few, else in the text thread."""
    return work() if tokens < LARGE else await run_in_thread(work)


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run CPU-heavy text work in the text thread, one job at a time.

    It pays if the work releases the interpreter lock, as tokenizers do. On cancellation, waits for
    the work to finish, because its buffers may be reused afterwards.
    """
    working = asyncio.get_running_loop().run_in_executor(_text_thread, work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


async def gather_or_cancel(jobs: Iterable[Awaitable[T]]) -> list[T]:
    """Await all jobs; if one fails, cancel the others before raising its error."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


class _Job(NamedTuple):
    work: Callable[[], None]
    done: Future[None]


class DaemonWriter:
    """A daemon thread that runs jobs in order, so that a stalled disk blocks nothing else.

    Neither the event loop nor the interpreter's exit waits for it, unlike an executor's thread.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self._closed = False

    def submit(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Enqueue a job, which can't be cancelled; the future resolves when it is done.

        Raises:
            RuntimeError: the writer is closed.
        """
        if self._closed:
            raise RuntimeError(f"{self._thread.name} is closed")
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # makes it impossible to cancel
        self._jobs.put(_Job(work, done))
        return asyncio.wrap_future(done)

    def close(self, *, patience: float) -> bool:
        """Wait up to `patience` seconds for pending jobs; return whether all ran. Idempotent."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.work()
            except BaseException as error:  # noqa: BLE001 - raised to the caller, as by executors
                job.done.set_exception(error)
            else:
                job.done.set_result(None)


class StallTolerantSemaphore:
    """A fair semaphore that admits everyone if all holders stall.

    Args:
        most: holders at a time.
        patience: seconds without an acquire or release after which the holders count as stalled.
        clock: returns the time in seconds.
    """

    def __init__(
        self, most: int, *, patience: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._semaphore = asyncio.Semaphore(most)
        self._patience = patience
        self._clock = clock
        self._moved_at = clock()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot and hold it while the context is open."""
        if not await self._acquire():
            yield
            return
        self._moved_at = self._clock()
        try:
            yield
        finally:
            self._moved_at = self._clock()
            self._semaphore.release()

    async def _acquire(self) -> bool:
        """Wait for a slot; return False if the holders stall."""
        if not self._semaphore.locked():
            return await self._semaphore.acquire()
        waiting = asyncio.create_task(self._semaphore.acquire())
        try:
            while not waiting.done() and (left := self._seconds_left()) > 0:
                await asyncio.wait({waiting}, timeout=left)
        except asyncio.CancelledError:
            if not waiting.cancel():  # it was acquired at the same moment
                self._semaphore.release()
            raise
        return not waiting.cancel()

    def _seconds_left(self) -> float:
        return self._moved_at + self._patience - self._clock()


logger = logging.getLogger(__name__)

_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextlib.asynccontextmanager
async def graceful_shutdown(close: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run `close` after the body, also after a signal, cancellation or an exception.

    Handles SIGTERM, SIGINT and, unless `nohup` ignores it, SIGHUP.

    Raises:
        SystemExit: with 128 + the signal's number, after a signal.
    """
    received: list[int] = []
    task = asyncio.current_task()
    assert task is not None

    loop = asyncio.get_running_loop()
    handled = _handled() if threading.current_thread() is threading.main_thread() else []

    def stop(number: int) -> None:
        received.append(number)
        logger.info(
            "Received %s: shutting down; send it again to exit immediately",
            signal.strsignal(number),
        )
        for each in handled:
            loop.remove_signal_handler(each)
        task.cancel()

    for number in handled:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    except asyncio.CancelledError:
        if not received:
            raise
    finally:
        closing = asyncio.ensure_future(close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            if not received:
                raise
            await closing  # the first signal arrived during close()
        for number in handled:
            loop.remove_signal_handler(number)
    if received:
        raise SystemExit(128 + received[0])


def _handled() -> list[signal.Signals]:
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [each for each in _STOPPING if not (ignored and each is signal.SIGHUP)]
