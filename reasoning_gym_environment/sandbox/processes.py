"""Worker processes, as the event loop sees them: one, and several of one role behind one queue."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol

from ..errors import PoolClosedError, WorkerLostError, WorkerStartError

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5
"""Between attempts to replace a worker that does not come up."""


class Worker(Protocol):
    """What a group of workers asks of each: see `nursery.WorkerProcess`."""

    greeting: str

    @property
    def pid(self) -> int: ...

    async def request(self, payload: bytes, *, timeout: float) -> bytes: ...

    async def kill(self) -> None: ...


StartWorker = Callable[[str], Awaitable[Worker]]
"""Gives a warm worker of a role; raises WorkerStartError where it does not come up."""


class WorkerGroup:
    """Hands each request to an idle worker; a lost worker is replaced.

    Args:
        role: "generator" or "verifier".
        size: number of processes.
        counts: where "sandbox/restarts" and "sandbox/failed_starts" are counted.
        start_worker: where its workers come from.
    """

    def __init__(
        self, role: str, *, size: int, counts: Counter[str], start_worker: StartWorker
    ) -> None:
        self._role = role
        self._size = size
        self._counts = counts
        self._start_worker = start_worker
        self._idle: asyncio.LifoQueue[Worker] = asyncio.LifoQueue()
        self._workers: set[Worker] = set()
        self._requests: set[asyncio.Task[bytes]] = set()
        self._replacements: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    async def start(self) -> None:
        """Start all workers at once.

        Raises:
            WorkerStartError: one did not come up.
        """
        await asyncio.gather(*(self._add_worker() for _ in range(self._size)))
        for greeting in {worker.greeting for worker in self._workers} - {""}:
            logger.warning("The %s processes are contained but for this: %s", self._role, greeting)

    async def _add_worker(self) -> None:
        worker = await self._start_worker(self._role)
        if self._closed:
            await worker.kill()
            return
        self._workers.add(worker)
        self._idle.put_nowait(worker)

    async def submit(self, payload: bytes, *, timeout: float) -> bytes:
        """Have a worker answer a request; its time runs from when one takes it.

        A caller that is cancelled leaves its request to finish by itself: the worker would
        otherwise be out of step with its replies.

        Raises:
            WorkerLostError: the worker died or ran out of time with this request.
            PoolClosedError: the group is closed.
        """
        if self._closed:
            raise PoolClosedError(f"the {self._role} processes are closed")
        request = asyncio.create_task(self._request(payload, timeout))
        self._requests.add(request)
        request.add_done_callback(self._request_done)
        return await asyncio.shield(request)

    def _request_done(self, request: asyncio.Task[bytes]) -> None:
        self._requests.discard(request)
        if not request.cancelled():
            request.exception()  # seen here: its caller may have been cancelled

    async def _request(self, payload: bytes, timeout: float) -> bytes:
        worker = await self._idle.get()
        try:
            reply = await worker.request(payload, timeout=timeout)
        except WorkerLostError as error:
            self._counts["sandbox/restarts"] += 1
            logger.warning("A %s process is replaced: %s", self._role, error)
            self._spawn(self._replace(worker))
            raise
        self._idle.put_nowait(worker)
        return reply

    def _spawn(self, replacement: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(replacement)
        self._replacements.add(task)
        task.add_done_callback(self._replacements.discard)

    async def _replace(self, worker: Worker) -> None:
        """Kill a worker and start another, however often that takes."""
        self._workers.discard(worker)
        await worker.kill()
        while not self._closed:
            try:
                await self._add_worker()
                return
            except WorkerStartError as error:
                self._counts["sandbox/failed_starts"] += 1
                logger.error("Trying again in %d s: %s", RETRY_SECONDS, error)
                await asyncio.sleep(RETRY_SECONDS)

    async def close(self) -> None:
        """Kill every worker; requests under way are cancelled. May be called again."""
        self._closed = True
        pending = [*self._requests, *self._replacements]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await asyncio.gather(*(worker.kill() for worker in self._workers))
        self._workers.clear()
