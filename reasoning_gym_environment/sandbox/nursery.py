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
    "from reasoning_gym_environment.sandbox.forking import main; main()"
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
        """End the process and all that shares its session; waits until it is gone.

        One whose nursery has died ends by itself, soon.
        """
        if not self._nursery.end(self.pid):
            self._writer.close()  # which ends it
            return
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
        self._closed = False

    async def start(self, role: str) -> WorkerProcess:
        """Fork a worker and wait until it is ready.

        Args:
            role: "generator" or "verifier".

        Raises:
            WorkerStartError: it did not come up; the message ends with what was printed.
        """
        async with self._turn:
            if self._closed:
                raise self._failure(role, "the nursery is closed")
            try:
                worker = await self._forked(role)
            except OSError as error:  # no descriptor, memory or room for a file is left
                raise self._failure(role, error) from error
        try:
            await worker.greet()
        except WorkerLostError as error:
            await worker.kill()
            raise self._failure(role, error) from error
        except BaseException:
            await worker.kill()
            raise
        return worker

    async def _forked(self, role: str) -> WorkerProcess:
        ours, theirs = _kept(socket.socketpair())
        try:
            with theirs:
                pid = await self._fork(role, theirs)
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        return WorkerProcess(pid, reader, writer, self)

    def _failure(self, role: str, why: object) -> WorkerStartError:
        return WorkerStartError(f"the {role} process did not start: {why}\n{self._last_words()}")

    async def _fork(self, role: str, end: socket.socket) -> int:
        """Have a worker forked that has that end of a socket pair; gives its process id."""
        control = await self._living()
        try:
            socket.send_fds(control, [f"{role}\n".encode()], [end.fileno()])
            reply = asyncio.get_running_loop().sock_recv(control, 1024)
            said = (await asyncio.wait_for(reply, START_SECONDS)).decode()
            if not said:
                raise EOFError("it died")
        except (OSError, EOFError, asyncio.TimeoutError) as error:
            failure = self._failure(role, f"the process that forks it failed: {error!r}")
            await self._abandon()
            raise failure from error
        except BaseException:
            await self._abandon()  # its next reply would be the one to this request
            raise
        pid, _, why = said.partition(" ")
        if why:
            raise self._failure(role, why)
        self._children.add(int(pid))
        return int(pid)

    async def _living(self) -> socket.socket:
        """The control socket of a nursery that lives."""
        if self._control is None or not self._lives():
            await self._abandon()
            self._control, theirs = _kept(socket.socketpair())
            self._control.setblocking(False)
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
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

    def _lives(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def end(self, pid: int) -> bool:
        """Kill a worker and its session, if this nursery is its parent and lives.

        Nothing else gets its process id before the nursery is told of its end. Without a nursery
        somebody else may have it by now: the worker then ends when our socket closes.

        Returns:
            Whether it was killed.
        """
        if pid not in self._children or self._control is None or not self._lives():
            return False
        self._children.remove(pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: it is a zombie
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):  # the nursery has just died
            self._control.send(f"end {pid}\n".encode())
        return True

    def _last_words(self) -> str:
        if self._errors is None:
            return ""
        self._errors.seek(0)
        return self._errors.read()[-_STDERR_TAIL:].decode(errors="replace").strip()

    async def _abandon(self) -> None:
        """End the process, and leave its workers to their sockets."""
        control, process, errors = self._control, self._process, self._errors
        self._control = self._process = self._errors = None
        self._children.clear()
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        for open_one in (control, errors):
            if open_one is not None:
                open_one.close()

    async def close(self) -> None:
        """End the process, and all workers it has forked. May be called again."""
        self._closed = True
        for pid in list(self._children):
            self.end(pid)
        await self._abandon()


_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
"""Those that end a process when they close."""


def _kept(pair: tuple[socket.socket, socket.socket]) -> tuple[socket.socket, socket.socket]:
    _sockets.update(pair)
    return pair


def _leave_to_parent() -> None:
    """In a fork of this process: give up its copies of the sockets, so that all end with ours."""
    null = os.open(os.devnull, os.O_RDWR)
    for each in list(_sockets):
        if each.fileno() >= 0:
            os.dup2(null, each.fileno())
    os.close(null)


os.register_at_fork(after_in_child=_leave_to_parent)
