"""Warm worker processes that one test after the other borrows: they take seconds to start."""

import asyncio
from collections import defaultdict
from collections.abc import Callable

from reasoning_gym_environment.sandbox._fork_server import ForkServer, WorkerProcess


class LentWorker:
    """A worker of the stock; it comes back there when its group kills it unharmed.

    A worker can't be marked by those who had it: it answers requests that say all they need,
    and model text is met by their children alone.
    """

    def __init__(
        self, worker: WorkerProcess, give_back: Callable[[WorkerProcess], None]
    ) -> None:
        self._worker = worker
        self._give_back = give_back
        self._last_request: asyncio.Task[bytes] | None = None
        self.missing_protections = worker.missing_protections

    @property
    def pid(self) -> int:
        return self._worker.pid

    @property
    def growth(self) -> int:
        return self._worker.growth

    async def request(self, payload: bytes, *, timeout: float) -> bytes:
        request = self._worker.request(payload, timeout=timeout)
        self._last_request = asyncio.create_task(request)
        return await asyncio.shield(self._last_request)

    async def kill(self) -> None:
        """Give the worker back once its last reply is there; end it where none comes."""
        if self._last_request is not None:
            await asyncio.wait([self._last_request])
            if self._last_request.exception() is not None:
                await self._worker.kill()
                return
        self._give_back(self._worker)


class WorkerStock:
    """Lends warm workers, and starts them where it has none."""

    def __init__(self) -> None:
        self._idle: dict[str, list[WorkerProcess]] = defaultdict(list)
        self._server = ForkServer()

    async def lend(self, role: str) -> LentWorker:
        idle = self._idle[role]
        worker = idle.pop() if idle else await self._server.start(role)
        return LentWorker(worker, idle.append)

    async def close(self) -> None:
        workers = [worker for idle in self._idle.values() for worker in idle]
        await asyncio.gather(*(worker.kill() for worker in workers))
        await self._server.close()
