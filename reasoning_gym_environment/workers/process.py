"""One worker process, as the event loop sees it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO, Protocol

from .errors import WorkerLostError, WorkerStartError, WorkerTimeoutError
from .protocol import LENGTH

START_SECONDS = 120.0
"""Importing the library takes about 3 s; a loaded machine may take many times that."""

_IMPORT_ROOT = Path(__file__).resolve().parents[2]
_START = (
    "import sys; sys.path.remove(''); "  # nothing is imported from where the worker stands
    "from reasoning_gym_environment.workers.worker import main; main(sys.argv[1])"
)
_STDERR_TAIL = 2000


def worker_environment() -> dict[str, str]:
    """The stripped environment of workers: no secrets, and one hash seed for all.

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

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(cls, role: str) -> WorkerProcess:
        """Start a worker and wait until it is warm.

        Args:
            role: "generator" or "verifier".

        Raises:
            WorkerStartError: it did not come up; the message ends with what it printed.
        """
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        process = await asyncio.create_subprocess_exec(
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

    async def request(self, payload: bytes, *, timeout: float) -> bytes:
        """Send a request and return the reply.

        Raises:
            WorkerTimeoutError: no reply within `timeout` seconds; the worker must be killed.
            WorkerLostError: the process is gone.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(LENGTH.pack(len(payload)) + payload)
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise WorkerLostError("the worker process is gone") from error
        return await self._reply(timeout)

    async def _reply(self, timeout: float) -> bytes:
        try:
            return await asyncio.wait_for(self._read_frame(), timeout)
        except asyncio.TimeoutError as error:
            raise WorkerTimeoutError(f"no reply within {timeout:g} s") from error
        except (asyncio.IncompleteReadError, ConnectionResetError) as error:
            raise WorkerLostError("the worker process died") from error

    async def _read_frame(self) -> bytes:
        assert self._process.stdout is not None
        (length,) = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))
        return await self._process.stdout.readexactly(length)

    async def kill(self) -> None:
        """End the process and all that shares its session; waits until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._errors.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-_STDERR_TAIL:].decode(errors="replace").strip()
