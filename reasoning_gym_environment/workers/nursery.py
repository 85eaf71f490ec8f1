"""The nursery, as the event loop sees it: a process with the library, which forks the workers.

Importing the library takes seconds; a fork takes milliseconds and shares its memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
import weakref
from pathlib import Path
from typing import IO

from ..errors import WorkerDiedError, WorkerLostError, WorkerStartError, WorkerTimeoutError
from .protocol import LENGTH

START_SECONDS = 120.0
"""Importing the library takes about 2 s; a loaded machine may take many times that."""

_GONE_SECONDS = 10.0
"""For a killed worker's end of the socket to close."""

_IMPORT_ROOT = Path(__file__).resolve().parents[2]
_START = (
    "import sys; sys.path.remove(''); "  # nothing is imported from where the nursery stands
    "from reasoning_gym_environment.workers.forking import main; main()"
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


class WorkerProcess:
    """A fork of the nursery that answers one request at a time over its socket.

    Our end of the socket closes with this process, however it ends: the worker then ends as well.

    Attributes:
        greeting: what the worker said when it was ready: what it can't enforce on this system.
    """

    def __init__(
        self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, nursery: Nursery
    ) -> None:
        self.pid = pid
        self.greeting = ""
        self._reader = reader
        self._writer = writer
        self._nursery = nursery
        _ours.add(self)

    def descriptors(self) -> list[int]:
        """What a fork of this process must not keep open."""
        return [self._writer.get_extra_info("socket").fileno()]

    async def greet(self) -> None:
        """Wait until the worker is ready; raises WorkerLostError if it never is."""
        self.greeting = (await self._reply(START_SECONDS)).decode()

    async def request(self, payload: bytes, *, timeout: float) -> bytes:
        """Send a request and return the reply.

        Raises:
            WorkerTimeoutError: no reply within `timeout` seconds; the worker must be killed.
            WorkerDiedError: the process is gone.
        """
        try:
            self._writer.write(LENGTH.pack(len(payload)) + payload)
            await self._writer.drain()
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
        (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
        return await self._reader.readexactly(length)

    async def kill(self) -> None:
        """End the process and all that shares its session; waits until it is gone."""
        _ours.discard(self)
        self._nursery.end(self.pid)
        with contextlib.suppress(asyncio.TimeoutError, OSError):
            await asyncio.wait_for(self._reader.read(), _GONE_SECONDS)
        self._writer.close()


class Nursery:
    """Starts workers, and the process that forks them at the first one.

    A nursery that has died is started again with the next worker; those that it forked live on.

    Example:
        nursery = Nursery()
        generator = await nursery.start("generator")
        ...
        await nursery.close()
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._errors: IO[bytes] | None = None
        self._children: set[int] = set()

    def descriptors(self) -> list[int]:
        """What a fork of this process must not keep open."""
        return [] if self._control is None else [self._control.fileno()]

    async def start(self, role: str) -> WorkerProcess:
        """Fork a worker and wait until it is ready.

        Args:
            role: "generator" or "verifier".

        Raises:
            WorkerStartError: it did not come up; the message ends with what was printed.
        """
        async with self._turn:
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    pid = await self._fork(role, theirs)
                reader, writer = await asyncio.open_unix_connection(sock=ours)
            except BaseException:
                ours.close()
                raise
        worker = WorkerProcess(pid, reader, writer, self)
        try:
            await worker.greet()
        except WorkerLostError as error:
            await worker.kill()
            raise self._failure(role, error) from error
        except BaseException:
            await worker.kill()
            raise
        return worker

    def _failure(self, role: str, why: object) -> WorkerStartError:
        return WorkerStartError(f"the {role} process did not start: {why}\n{self._last_words()}")

    async def _fork(self, role: str, end: socket.socket) -> int:
        """Have a worker forked that has that end of a socket pair; gives its process id."""
        control = await self._living()
        try:
            socket.send_fds(control, [f"{role}\n".encode()], [end.fileno()])
            reply = asyncio.get_running_loop().sock_recv(control, 64)
            pid = int(await asyncio.wait_for(reply, START_SECONDS) or 0)
            if not pid:
                raise EOFError("it died")
        except (OSError, EOFError, asyncio.TimeoutError) as error:
            failure = self._failure(role, f"the process that forks it failed: {error!r}")
            await self.close()
            raise failure from error
        except BaseException:
            await self.close()  # its next reply would be the one to this request
            raise
        self._children.add(pid)
        return pid

    async def _living(self) -> socket.socket:
        """The control socket of a nursery that lives."""
        if self._control is None or self._process is None or self._process.returncode is not None:
            await self.close()
            self._control, theirs = socket.socketpair()
            self._control.setblocking(False)
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
            _ours.add(self)
            with theirs:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-c",
                    _START,
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=self._errors,
                    env=worker_environment(),
                    cwd=_IMPORT_ROOT,
                    start_new_session=True,
                )
        return self._control

    def end(self, pid: int) -> None:
        """Kill a worker and its session.

        Nothing else gets its process id before the nursery, its parent, is told of its end.
        """
        self._children.discard(pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        if self._control is not None:
            with contextlib.suppress(OSError):  # the nursery has died: the system buries for it
                self._control.send(f"end {pid}\n".encode())

    def _last_words(self) -> str:
        if self._errors is None:
            return ""
        self._errors.seek(0)
        return self._errors.read()[-_STDERR_TAIL:].decode(errors="replace").strip()

    async def close(self) -> None:
        """End the process, and all workers it has forked. May be called again."""
        _ours.discard(self)
        control, process, errors = self._control, self._process, self._errors
        self._control = self._process = self._errors = None
        for pid in list(self._children):
            self.end(pid)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        for open_one in (control, errors):
            if open_one is not None:
                open_one.close()


_ours: weakref.WeakSet[WorkerProcess | Nursery] = weakref.WeakSet()


def _leave_to_parent() -> None:
    """In a fork of this process: give up its copies of the sockets, so that all end with ours."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in [each for one in list(_ours) for each in one.descriptors()]:
        os.dup2(null, descriptor)
    os.close(null)


os.register_at_fork(after_in_child=_leave_to_parent)
