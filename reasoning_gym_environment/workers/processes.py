"""Worker processes, as the event loop sees them: one, and several of one role behind one queue."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import tempfile
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import IO, Protocol

from ..errors import (
    PoolClosedError,
    WorkerDiedError,
    WorkerLostError,
    WorkerStartError,
    WorkerTimeoutError,
)
from .protocol import LENGTH

logger = logging.getLogger(__name__)

START_SECONDS = 120.0
"""Importing the library takes about 3 s; a loaded machine may take many times that."""

RETRY_SECONDS = 5
"""Between attempts to replace a worker that does not come up."""

_IMPORT_ROOT = Path(__file__).resolve().parents[2]
_START = (
    "import sys; sys.path.remove(''); "  # nothing is imported from where the worker stands
    "from reasoning_gym_environment.workers.worker import main; main(sys.argv[1])"
)
_STDERR_TAIL = 2000


def worker_environment() -> dict[str, str]:
    """Make the stripped environment of workers: no secrets, and one hash seed for all.

    Five tasks generate other items under another hash seed.
    """
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(_IMPORT_ROOT),
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


class Worker(Protocol):
    """What a group of workers asks of each: see `WorkerProcess`."""

    greeting: str

    @property
    def pid(self) -> int: ...

    async def request(self, payload: bytes, *, timeout: float) -> bytes: ...

    async def kill(self) -> None: ...


StartWorker = Callable[[str], Awaitable[Worker]]
"""Gives a warm worker of a role; raises WorkerStartError where it does not come up."""


class WorkerProcess:
    """A process that answers one request at a time over its standard streams.

    Its end of the request pipe closes with this process, however it ends: the worker then
    ends as well.

    Attributes:
        greeting: what the worker said when it was ready: what it can't enforce on this system.
    """

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self.greeting = ""
        _alive.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    def leave_to_parent(self) -> None:
        """In a fork of this process: give up its copy of the pipe, so that it ends with ours."""
        assert self._process.stdin is not None
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._process.stdin.get_extra_info("pipe").fileno())
        os.close(null)

    @classmethod
    async def start(cls, role: str) -> WorkerProcess:
        """Start a worker and wait until it is warm.

        Args:
            role: "generator" or "verifier".

        Raises:
            WorkerStartError: it did not come up; the message ends with what it printed.
        """
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        try:
            process = await cls._spawn(role, errors)
        except BaseException:
            errors.close()
            raise
        worker = cls(process, errors)
        try:
            worker.greeting = (await worker._reply(START_SECONDS)).decode()
        except WorkerLostError as error:
            said = worker._last_words()
            await worker.kill()
            raise WorkerStartError(f"the {role} process did not start: {error}\n{said}") from error
        except BaseException:
            await worker.kill()
            raise
        return worker

    @staticmethod
    async def _spawn(role: str, errors: IO[bytes]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _START,
            role,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=worker_environment(),
            cwd=_IMPORT_ROOT,
            start_new_session=True,
        )

    async def request(self, payload: bytes, *, timeout: float) -> bytes:
        """Send a request and return the reply.

        Raises:
            WorkerTimeoutError: no reply within `timeout` seconds; the worker must be killed.
            WorkerDiedError: the process is gone.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(LENGTH.pack(len(payload)) + payload)
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise WorkerDiedError("the worker process is gone") from error
        return await self._reply(timeout)

    async def _reply(self, timeout: float) -> bytes:
        try:
            return await asyncio.wait_for(self._read_frame(), timeout)
        except asyncio.TimeoutError as error:
            raise WorkerTimeoutError(f"no reply within {timeout:g} s") from error
        except (asyncio.IncompleteReadError, ConnectionResetError) as error:
            raise WorkerDiedError("the worker process died") from error

    async def _read_frame(self) -> bytes:
        assert self._process.stdout is not None
        (length,) = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))
        return await self._process.stdout.readexactly(length)

    async def kill(self) -> None:
        """End the process and all that shares its session; waits until it is gone."""
        _alive.discard(self)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._errors.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-_STDERR_TAIL:].decode(errors="replace").strip()


_alive: weakref.WeakSet[WorkerProcess] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for worker in list(_alive):
        worker.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)


class WorkerGroup:
    """Hands each request to an idle worker; a lost worker is replaced.

    Args:
        role: "generator" or "verifier".
        size: number of processes.
        counts: where "workers/restarts" and "workers/failed_starts" are counted.
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
            self._counts["workers/restarts"] += 1
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
                self._counts["workers/failed_starts"] += 1
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
