"""Groups of worker processes: each request goes to an idle one, and lost ones are replaced."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ..errors import (
    ConfigurationError,
    PoolClosedError,
    WorkerLostError,
    WorkerStartError,
)
from ..util.log_throttle import THROTTLE, throttled
from ._fork_server import URGENT, ForkServer, WorkerProcess

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)


StartWorker = Callable[[str], Awaitable[WorkerProcess]]
"""Starts a worker of a role; raises WorkerStartError if it does not start."""


class WorkerGroup:
    """The workers of one role: each request goes to an idle one, and a lost one is replaced.

    So is one that has grown by more than `max_growth` bytes after a request. `counts` counts
    "sandbox/restarts" and "sandbox/failed_starts".
    """

    def __init__(
        self,
        role: str,
        *,
        size: int,
        counts: Counter[str],
        start_worker: StartWorker,
        max_growth: int = 768 * 2**20,
    ) -> None:
        self._role = role
        self._size = size
        self._counts = counts
        self._start_worker = start_worker
        self._max_growth = max_growth
        self._idle: asyncio.LifoQueue[WorkerProcess] = asyncio.LifoQueue()
        self._workers: set[WorkerProcess] = set()
        self._requests: set[asyncio.Task[bytes]] = set()
        self._replacements: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    async def start(self) -> None:
        """Start all workers at once; raise WorkerStartError if one does not start."""
        await asyncio.gather(*(self._add_worker() for _ in range(self._size)))
        for missing_protection in self.missing_protections:
            # The machine stays as it is: a second pool has nothing new to say.
            once = throttled(missing_protection, interval=math.inf)
            logger.warning("Sandbox incomplete: %s", missing_protection, extra=once)

    @property
    def missing_protections(self) -> list[str]:
        """What this system does not enforce, one sentence for each kind of worker."""
        return [
            f"{self._role} processes: {missing_protections}"
            for missing_protections in sorted(
                {worker.missing_protections for worker in self._workers} - {""}
            )
        ]

    async def _add_worker(self) -> None:
        worker = await self._start_worker(self._role)
        if self._closed:
            await worker.kill()
            return
        self._workers.add(worker)
        self._idle.put_nowait(worker)

    async def submit(self, payload: bytes, *, timeout: float) -> bytes:
        """Return a worker's reply to a request; the timeout starts when an idle one takes it.

        If the caller is cancelled, the request still finishes: the worker's next reply would
        otherwise be read as the reply to another request. Raises WorkerLostError if the worker died
        or ran out of time, and PoolClosedError.
        """
        if self._closed:
            raise PoolClosedError(f"the {self._role} processes are closed")
        request = asyncio.create_task(self._request(payload, timeout))
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)
        # Retrieve an exception here: the caller may have been cancelled.
        request.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(request)
        except asyncio.CancelledError:
            if self._closed and request.cancelled():  # not the caller
                raise PoolClosedError(
                    f"the {self._role} processes were closed"
                ) from None
            raise

    async def _request(self, payload: bytes, timeout: float) -> bytes:
        worker = await self._idle.get()
        try:
            reply = await worker.request(payload, timeout=timeout)
        except WorkerLostError as error:
            self._start_replacement(worker, str(error))
            raise
        growth = worker.growth
        if growth > self._max_growth:
            self._start_replacement(worker, f"it has grown by {growth >> 20} MiB")
        else:
            self._idle.put_nowait(worker)
        return reply

    def _start_replacement(self, worker: WorkerProcess, why: str) -> None:
        self._counts["sandbox/restarts"] += 1
        logger.warning("Replacing a %s process: %s", self._role, why)
        task = asyncio.create_task(self._replace(worker))
        self._replacements.add(task)
        task.add_done_callback(self._replacements.discard)

    async def _replace(self, worker: WorkerProcess) -> None:
        """Kill a worker and start another; retry until one starts."""
        self._workers.discard(worker)
        await worker.kill()
        while not self._closed:
            try:
                await self._add_worker()
                return
            except WorkerStartError as error:
                self._counts["sandbox/failed_starts"] += 1
                logger.error("Retrying in 5 s: %s", error)
                await asyncio.sleep(5)

    async def close(self) -> None:
        """Cancel pending requests and kill every worker. May be called again."""
        self._closed = True
        pending = [*self._requests, *self._replacements]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await asyncio.gather(*(worker.kill() for worker in self._workers))
        self._workers.clear()


FIRST_TRY_SECONDS = 20.0
"""On the wall, what scores one answer may take; then the machine has starved it."""

SECOND_TRY_SECONDS = 35.0
"""On the wall, what the second try of a request's starved answers may take, with its wait for the
worker. Callers wait 120 to 180 s: both tries together stay below 60 s."""

HOST_GRACE_SECONDS = 20.0
"""What a host may work or wait beyond the limits that it enforces itself before it is killed."""


class SecondTries:
    """One urgent worker beside the others, which scores again what the machine starved.

    It starts with the first such request, and serves one after the other. The others go on.

    Args:
        role, counts, start_worker: as of `WorkerGroup`.
    """

    def __init__(
        self, role: str, *, counts: Counter[str], start_worker: StartWorker
    ) -> None:
        self._group = WorkerGroup(
            f"{role} {URGENT}", size=1, counts=counts, start_worker=start_worker
        )
        self._current: asyncio.Task[bytes] | None = None

    async def submit(self, payload: Callable[[float], bytes]) -> bytes | None:
        """Return the worker's reply to a request; None if it does not come in time.

        Args:
            payload: returns the request for the seconds that are left for it.
        """
        deadline = time.monotonic() + SECOND_TRY_SECONDS
        while self._current is not None and not self._current.done():
            await asyncio.wait({self._current}, timeout=deadline - time.monotonic())
            if time.monotonic() >= deadline:
                return None
        self._current = asyncio.create_task(self._request(payload, deadline))
        try:
            return await asyncio.shield(self._current)
        except (WorkerLostError, WorkerStartError) as error:
            logger.warning("A second try failed: %s", error)
            return None

    async def _request(
        self, payload: Callable[[float], bytes], deadline: float
    ) -> bytes:
        if not self._group.pids:
            await self._group.start()
        remaining = max(0.0, deadline - time.monotonic())
        return await self._group.submit(
            payload(remaining), timeout=remaining + HOST_GRACE_SECONDS
        )

    async def close(self) -> None:
        """Kill the worker. May be called again."""
        await self._group.close()


Own = TypeVar("Own", bound="WorkerPool")


class WorkerPool:
    """Groups of workers that start and end together, with their fork servers."""

    def __init__(
        self,
        groups: Sequence[WorkerGroup],
        servers: Sequence[ForkServer],
        *,
        second_tries: Sequence[SecondTries],
        require_containment: bool,
    ) -> None:
        self._groups = groups
        self._servers = servers
        self._all_second_tries = second_tries
        self._require_containment = require_containment

    @property
    def pids(self) -> list[int]:
        """The process ids of all workers."""
        return [pid for group in self._groups for pid in group.pids]

    @property
    def ready(self) -> bool:
        """Whether there is a worker of each kind."""
        return all(group.pids for group in self._groups)

    @property
    def missing_protections(self) -> list[str]:
        """What this system does not enforce; empty while all workers are contained."""
        return [
            missing_protection
            for group in self._groups
            for missing_protection in group.missing_protections
        ]

    async def __aenter__(self: Own) -> Own:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start all workers, or leave none.

        Raises WorkerStartError, and ConfigurationError if containment is required and incomplete.
        """
        try:
            await asyncio.gather(*(group.start() for group in self._groups))
            if self._require_containment and self.missing_protections:
                raise ConfigurationError(
                    "require_containment: the sandbox is incomplete "
                    f"({'; '.join(self.missing_protections)}); run on Linux with seccomp and "
                    "Landlock, or leave it out to run without"
                )
            await self._prepare()
        except BaseException:
            await self.close()
            raise

    async def _prepare(self) -> None:
        """Use the workers for the first time, if need be."""

    async def close(self) -> None:
        """Kill all workers. May be called again."""
        await asyncio.gather(*(group.close() for group in self._groups))
        await asyncio.gather(*(tries.close() for tries in self._all_second_tries))
        await asyncio.gather(*(server.close() for server in self._servers))
