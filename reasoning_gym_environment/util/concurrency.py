"""Threads, gathering, admission and shutdown for an event loop that must not stall."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from .log_throttle import THROTTLE, throttled
from .outages import Outage

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)

T = TypeVar("T")

LARGE = 16_000
"""Tokens from which work runs in the thread; fewer take milliseconds."""

SWITCH_SECONDS = 0.001
"""Interpreter switch interval that the commands set (Python's default is 0.005): the longest that
the event loop waits for a computing thread each time it resumes."""

HANG_SECONDS = 5.0
"""A disk hangs when it has written nothing for this long."""

QUEUE_SIZE = 256
"""Writes that may wait in memory for a disk that hangs: some 64 MB of long groups."""


def _start_text_thread() -> None:
    """Set the executor; a fork needs its own, since it has none of the parent's threads."""
    global _text_thread
    _text_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="text")


_text_thread: ThreadPoolExecutor
"""One worker: a call into C holds the interpreter lock, so more threads stall the loop longer."""
_start_text_thread()
os.register_at_fork(after_in_child=_start_text_thread)


async def run_in_thread_if_large(work: Callable[[], T], *, tokens: int) -> T:
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


class DaemonWriter:
    """A daemon thread that writes to one folder in order, so that a disk that hangs blocks nothing.

    Neither the event loop nor the interpreter's exit waits for it, unlike an executor's thread.
    Writes wait in memory for a disk that hangs; once QUEUE_SIZE wait, so do the callers of `write`.

    Args:
        folder: for messages.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs: queue.SimpleQueue[tuple[Callable[[], None], Future[None]] | None]
        self._jobs = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._work, name=f"write {folder}", daemon=True
        )
        self._submitted = self._ended = 0  # each is changed by one thread alone
        self._moved_at = 0.0
        self._hang = Outage()  # the loop's thread begins it, and the writer's ends it
        self._closed = False

    @property
    def pending(self) -> int:
        """The number of jobs that have not ended."""
        return self._submitted - self._ended

    def submit(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Enqueue a job, which can't be cancelled; the future resolves when it is done."""
        if self._closed:
            raise RuntimeError(f"the writer of {self._folder} is closed")
        if not self._submitted:
            self._thread.start()
        if not self.pending:
            self._moved_at = time.monotonic()
        self._submitted += 1
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # makes it impossible to cancel
        self._jobs.put((work, done))
        return asyncio.wrap_future(done)

    async def write(self, work: Callable[[], None], *, must_end: bool = False) -> None:
        """Return when the work is done or, while the disk hangs, waits in a queue with room.

        Cancellation doesn't stop the work.

        Args:
            must_end: wait for the end of the work in any case.
        """
        await self.wait(self.submit(work), must_end=must_end)

    async def wait(self, done: asyncio.Future[None], *, must_end: bool = False) -> None:
        """Wait for a submitted job as `write` does, and log a disk that hangs."""
        # Nobody asks after a cancellation.
        done.add_done_callback(asyncio.Future.exception)
        while not done.done():
            silent = time.monotonic() - self._moved_at
            if silent < HANG_SECONDS:
                await asyncio.wait([done], timeout=HANG_SECONDS - silent)
                continue
            waits = must_end or self.pending > QUEUE_SIZE
            self._log_hang(silent, waits=waits)
            if not waits:
                return
            await asyncio.wait([done], timeout=1.0)
        done.result()

    def _log_hang(self, seconds: float, *, waits: bool) -> None:
        """Log once a minute that the disk hangs, and at once when the run begins to wait."""
        self._hang.record_failure(already=seconds)
        logger.warning(
            "The disk of %s has written nothing for %.0f s: %d waiting in memory, the run %s",
            self._folder,
            seconds,
            self.pending,
            "waits" if waits else f"continues until {QUEUE_SIZE} wait",
            extra=throttled((self._hang.episode, waits)),
        )

    def close(self, *, patience: float = 10.0) -> int:
        """Wait up to `patience` seconds for pending jobs; return how many are lost. Idempotent."""
        closed = self._closed
        self._closed = True
        if closed or not self._submitted:
            return 0
        self._jobs.put(None)
        self._thread.join(patience)
        return self.pending

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, done = job
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - raised to the caller, as by executors
                outcome = functools.partial(done.set_exception, error)
            else:
                outcome = functools.partial(done.set_result, None)
            self._ended += 1
            self._moved_at = time.monotonic()
            if not self.pending and (seconds := self._hang.end()) is not None:
                logger.warning(
                    "The disk of %s is back after %.0f s", self._folder, seconds
                )
            outcome()


@contextlib.asynccontextmanager
async def graceful_shutdown(
    close: Callable[[], Awaitable[None]],
) -> AsyncIterator[None]:
    """Run `close` after the body, also after a signal, cancellation or an exception.

    Handles SIGTERM, SIGINT and, unless `nohup` ignores it, SIGHUP.

    Raises:
        SystemExit: with 128 + the signal's number, after a signal.
    """
    received: list[int] = []
    task = asyncio.current_task()
    assert task is not None

    loop = asyncio.get_running_loop()
    handled = _handled_signals()

    def stop(number: int) -> None:
        received.append(number)
        logger.info(
            "Received %s: shutting down; send it again to exit immediately",
            signal.strsignal(number),
        )
        for handled_signal in handled:
            loop.remove_signal_handler(handled_signal)
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


def _handled_signals() -> list[signal.Signals]:
    if threading.current_thread() is not threading.main_thread():
        return []
    hangup = (
        [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    )
    return [signal.SIGTERM, signal.SIGINT, *hangup]
