"""Several worker processes of one role behind one queue."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from .errors import PoolClosedError, WorkerLostError
from .worker_process import WorkerProcess

logger = logging.getLogger(__name__)


class WorkerGroup:
    """Hands each request to an idle worker; a lost worker is replaced.

    Args:
        role: "generator" or "verifier".
        size: number of processes.
        counts: where "workers/restarts" is counted.
    """

    def __init__(self, role: str, *, size: int, counts: Counter[str]) -> None:
        self._role = role
        self._size = size
        self._counts = counts
        self._idle: asyncio.LifoQueue[WorkerProcess] = asyncio.LifoQueue()
        self._workers: set[WorkerProcess] = set()
        self._requests: set[asyncio.Task[bytes]] = set()
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

    async def _add_worker(self) -> None:
        worker = await WorkerProcess.start(self._role)
        if self._closed:
            await worker.kill()
            return
        self._workers.add(worker)
        self._idle.put_nowait(worker)

    async def submit(self, payload: bytes, *, timeout: float) -> bytes:
        """The reply to a request; its time runs from when a worker takes it.

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
            self._counts["workers/restarts"] += 1
            logger.warning("A %s process is replaced: %s", self._role, error)
            self._workers.discard(worker)
            await worker.kill()
            await self._add_worker()
            raise
        self._idle.put_nowait(worker)
        return reply

    async def close(self) -> None:
        """Kill every worker; requests under way are cancelled. May be called again."""
        self._closed = True
        for request in list(self._requests):
            request.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)
        await asyncio.gather(*(worker.kill() for worker in self._workers))
        self._workers.clear()
