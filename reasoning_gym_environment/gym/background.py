"""What clients of worker processes share: a pool that starts at first use, and an event loop in a
thread of its own, which runs an asynchronous client for blocking callers.

It works from several threads, and in programs that already run a loop, such as notebooks.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import selectors
import sys
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Generic, TypeVar

from ..errors import PoolClosedError
from ..sandbox.worker_groups import WorkerPool

Client = TypeVar("Client")
Pool = TypeVar("Pool", bound=WorkerPool)
Result = TypeVar("Result")


def _ensure_child_watcher() -> None:
    """Give the event loop policy what asyncio's own loops need to start processes.

    uvloop's policy lacks it, which Ray sets in its asynchronous actors. Python 3.14 asks no policy.
    """
    if sys.version_info >= (3, 14):
        return
    policy = asyncio.get_event_loop_policy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            policy.get_child_watcher()
        except NotImplementedError:
            watcher = asyncio.ThreadedChildWatcher()
            vars(policy)["get_child_watcher"] = lambda: watcher


class _LoopThread:
    """An event loop in a daemon thread, for one client."""

    def __init__(self) -> None:
        _ensure_child_watcher()
        # Not epoll: its set of descriptors would be shared with forks of this process.
        self._loop = asyncio.SelectorEventLoop(selectors.PollSelector())
        self.thread = threading.Thread(
            target=self._run_and_close, name="reasoning-gym", daemon=True
        )
        self.thread.start()

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def end(self, close: Callable[[], Coroutine[Any, Any, None]]) -> Future[None]:
        """Run `close`, cancel all tasks and end the thread; wait for none of it."""

        async def close_and_stop() -> None:
            try:
                await close()
            finally:
                self._loop.stop()

        return self.submit(close_and_stop())

    def _run_and_close(self) -> None:
        async def cancel_all() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        try:
            self._loop.run_forever()
            self._loop.run_until_complete(cancel_all())
        finally:
            self._loop.close()


async def _open(pool: WorkerPool) -> AsyncGenerator[None, None]:
    """Start a pool, and close it with this generator.

    The event loop closes a generator that is collected, and those that are left at its end.
    """
    async with pool:
        yield


class LazyPool(Generic[Pool]):
    """A pool of processes that starts at first use, and again if it failed to start.

    Args:
        create: makes the pool, which counts events in `counts`.
        name: of the owner, for errors.
    """

    def __init__(self, create: Callable[[Counter[str]], Pool], *, name: str) -> None:
        self._create: Callable[[Counter[str]], Pool] = create
        self._name = name
        self._starting = asyncio.Lock()
        self._open_pool: AsyncGenerator[None, None] | None = None
        self._closed = False
        self.pool: Pool | None = None
        self.counts: Counter[str] = Counter()

    async def start(self) -> Pool:
        """Return the pool, started; raise WorkerStartError, or PoolClosedError after `close`."""
        async with self._starting:
            if self._closed:
                raise PoolClosedError(f"this {self._name} is closed; create a new one")
            if self.pool is None:
                pool = self._create(self.counts)
                opened = _open(pool)
                await anext(opened)
                self.pool = pool
                self._open_pool = opened
            return self.pool

    @property
    def missing_protections(self) -> list[str]:
        """What the sandbox does not enforce on this system; empty before the start as well."""
        return [] if self.pool is None else self.pool.missing_protections

    async def close(self) -> None:
        """Stop all processes. Safe to call again; `start` then fails."""
        self._closed = True
        async with self._starting:
            if self._open_pool is not None:
                await self._open_pool.aclose()


class Background(Generic[Client]):
    """A client in an event loop of its own, which starts with the first call.

    It ends with `close`, when nothing refers to this object, and with this process. All threads may
    use it. A fork of this process makes a new client.

    Args:
        create: makes the client, which must not refer to this object.
        close: ends a client and its processes.
    """

    def __init__(
        self,
        create: Callable[[], Client],
        close: Callable[[Client], Coroutine[Any, Any, None]],
        *,
        name: str,
    ) -> None:
        self._create = create
        self._close_client = close
        self._name = name
        self.client = create()
        self._loop: _LoopThread | None = None
        self._finalizer: weakref.finalize[..., Background[Client]] | None = None
        self._closed = False
        self._lock = threading.Lock()
        _backgrounds.add(self)

    def close(self) -> None:
        """Close the client and end the thread. Safe to call again; other calls then fail."""
        with self._lock:
            self._closed = True
            loop = self._loop
            self._loop = None
            if self._finalizer is not None:
                self._finalizer.detach()
        if loop is not None:
            try:
                loop.end(partial(self._close_client, self.client)).result()
            finally:
                loop.thread.join()

    def _submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        with self._lock:
            if self._closed:
                work.close()
                raise PoolClosedError(f"this {self._name} is closed; create a new one")
            if self._loop is None:
                self._loop = _LoopThread()
                close = partial(self._close_client, self.client)
                self._finalizer = weakref.finalize(self, self._loop.end, close)
                self._finalizer.atexit = False  # see `_close_all`
            return self._loop.submit(work)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run the coroutine in the loop and wait for its result; an interrupt cancels it."""
        future = self._submit(work)
        try:
            return future.result()
        except CancelledError as error:
            raise self._closed_meanwhile() from error
        except BaseException:
            future.cancel()
            raise

    async def run_async(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run the coroutine in the loop without blocking the caller's: see `run`."""
        future = self._submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError as error:
            if not self._closed:
                raise
            raise self._closed_meanwhile() from error

    def _closed_meanwhile(self) -> PoolClosedError:
        return PoolClosedError(f"this {self._name} was closed during the call")

    def restart_after_fork(self) -> None:
        """Drop the parent's thread and processes, which a fork does not have."""
        _inherited.append((self._loop, self.client))
        if self._finalizer is not None:
            self._finalizer.detach()
        self._lock = threading.Lock()
        self._loop = None
        self.client = self._create()


_backgrounds: weakref.WeakSet[Background[Any]] = weakref.WeakSet()
_inherited: list[object] = []
"""Objects of the parent in a fork, kept alive because collecting them warns of pending tasks."""


def _close_all() -> None:
    for background in list(_backgrounds):
        background.close()


def _restart_all() -> None:
    for background in list(_backgrounds):
        background.restart_after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_restart_all)
