"""The fork server: a process that imports a library once and forks all workers.

The import takes seconds. A fork takes milliseconds and shares the memory. `ForkServer` is its
handle in the event loop's process; `_fork_program` is what it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from ..errors import (
    ConfigurationError,
    WorkerDiedError,
    WorkerLostError,
    WorkerOutOfMemoryError,
    WorkerStartError,
    WorkerTimeoutError,
)
from ._limits import address_space
from ._protocol import LENGTH, MAX_REPLY, OUT_OF_MEMORY
from ._work_clock import within_work_time

logger = logging.getLogger(__name__)

START_TIMEOUT = 120.0
"""What the imports and the warm-up may work or wait: the library's take about 8 s."""

KILL_SECONDS = 10.0
"""How long the system may take to end a killed worker."""

SLOW_START = 20.0
"""After so many seconds the log says what is waited for."""


URGENT = "urgent"
"""Behind a role: the worker does not give way to other processes."""


_IMPORT_ROOT = Path(__file__).resolve().parents[2]


def worker_environment() -> dict[str, str]:
    """Return the environment variables of workers: no secrets, and one hash seed for all.

    Five tasks generate other items under another hash seed, and one some other answers.
    """
    kept = {
        name: os.environ[name]
        for name in ("PATH", "LANG", "TMPDIR")
        if name in os.environ
    }
    return {
        **kept,
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(_IMPORT_ROOT),
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


class WorkerProcess:
    """A worker, which answers one request at a time over its socket.

    Our end of the socket closes with this process, however it ends; the worker then ends as well.

    Attributes:
        missing_protections: what the worker can't enforce on this system, known once it is ready.
    """

    def __init__(
        self,
        pid: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server: ForkServer,
    ) -> None:
        self.pid = pid
        self.missing_protections = ""
        self._reader = reader
        self._writer = writer
        self._server = server
        self._initial_size = 0

    @property
    def growth(self) -> int:
        """Bytes of address space since it was ready; 0 where the system does not report them."""
        return address_space(self.pid) - self._initial_size

    async def wait_until_ready(self) -> None:
        """Read the worker's first message; raise WorkerLostError if none comes."""
        self.missing_protections = (await self._reply(START_TIMEOUT)).decode()
        self._initial_size = address_space(self.pid)

    async def request(self, payload: bytes, *, timeout: float) -> bytes:
        """Send a request and return the reply.

        Raises:
            WorkerTimeoutError: no reply within `timeout` seconds that it worked or waited; it must
                be killed.
            WorkerDiedError: the process is gone, or must be killed: its reply is too large.
            WorkerOutOfMemoryError: the process ended because its memory was used up.
        """
        try:
            self._writer.write(LENGTH.pack(len(payload)) + payload)
            await self._writer.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise WorkerDiedError("the worker process is gone") from error
        reply = await self._reply(timeout)
        if reply == OUT_OF_MEMORY:
            raise WorkerOutOfMemoryError("the worker process ran out of memory")
        return reply

    async def _reply(self, timeout: float) -> bytes:
        try:
            return await within_work_time(self._read_frame(), self.pid, timeout)
        except asyncio.TimeoutError as error:
            raise WorkerTimeoutError(
                f"no reply within {timeout:g} s of work"
            ) from error
        except (asyncio.IncompleteReadError, ConnectionResetError) as error:
            raise WorkerDiedError("the worker process died") from error

    async def _read_frame(self) -> bytes:
        (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
        if length > MAX_REPLY:
            raise WorkerDiedError(f"a reply of {length} bytes, more than {MAX_REPLY}")
        return await self._reader.readexactly(length)

    async def kill(self) -> None:
        """Kill the process and its session, and wait until it is gone.

        Without its fork server, the worker ends by itself soon after its socket closes.
        """
        try:
            if self._server.kill(self.pid):
                with contextlib.suppress(asyncio.TimeoutError, OSError):
                    await asyncio.wait_for(self._reader.read(), KILL_SECONDS)
        finally:
            self._writer.close()


class ForkServer:
    """Starts workers. The server process starts with the first one.

    A server process that has died is replaced at the next start; the workers that it forked live
    on.

    Args:
        program: of the server process, in place of the one for reasoning-gym.
        source: what that program loads, as JSON in its argument; `shown` names it in errors.
        environment: names of variables that its processes have besides.
        hash_seed: of its processes.
    """

    in_worker = False
    _program = (
        "import sys; sys.path.remove(''); "  # import nothing from the working directory
        "from reasoning_gym_environment.sandbox._fork_program import main; main()"
    )

    def __init__(
        self,
        *,
        program: str | None = None,
        source: Any = None,
        environment: Sequence[str] = (),
        hash_seed: int = 0,
    ) -> None:
        if self.in_worker:
            guard = 'put what does so under `if __name__ == "__main__":`'
            raise ConfigurationError(
                f"a module that workers import can't start a gym: {guard}"
            )
        argument = [] if source is None else [msgspec.json.encode(source).decode()]
        self._command = "-c", program or self._program, *argument
        variables = worker_environment() | {"PYTHONHASHSEED": str(hash_seed)}
        chosen = {name: os.environ[name] for name in environment if name in os.environ}
        for name in chosen:
            if chosen[name] != variables.get(name, chosen[name]):
                raise ConfigurationError(f"environment: workers set {name} themselves")
        self._environment = {**chosen, **variables}
        self._imports = "" if source is None else f" of {source.shown}"
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._stderr: IO[bytes] | None = None
        self._workers: set[int] = set()
        self._closed = False

    async def start(self, role: str) -> WorkerProcess:
        """Fork a worker and wait until it is ready; raise WorkerStartError with what it printed."""
        async with self._lock:
            if self._closed:
                raise self._failure(role, "the fork server is closed")
            try:
                worker = await self._fork_worker(role)
            except OSError as error:  # no descriptor, memory or disk space is left
                raise self._failure(role, error) from error
        try:
            await worker.wait_until_ready()
        except WorkerLostError as error:
            await worker.kill()
            raise self._failure(role, error) from error
        except BaseException:
            await worker.kill()
            raise
        return worker

    async def _fork_worker(self, role: str) -> WorkerProcess:
        ours, theirs = _closed_in_forks(socket.socketpair())
        try:
            with theirs:
                pid = await self._fork(role, theirs)
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        return WorkerProcess(pid, reader, writer, self)

    def _failure(self, role: str, why: object) -> WorkerStartError:
        printed = ""
        if self._stderr is not None:
            self._stderr.seek(0)
            printed = self._stderr.read()[-2000:].decode(errors="replace").strip()
        started = f"the {role} process{self._imports} did not start"
        return WorkerStartError(f"{started}: {why}\n{printed}".rstrip())

    async def _fork(self, role: str, worker_end: socket.socket) -> int:
        """Ask for a worker with that end of a socket pair; return its process id."""
        control = await self._running_server()
        assert self._process is not None  # it has the other end of `control`
        slow = asyncio.get_running_loop().call_later(
            SLOW_START, self._say_that_it_waits
        )
        try:
            socket.send_fds(control, [f"{role}\n".encode()], [worker_end.fileno()])
            receive = asyncio.get_running_loop().sock_recv(control, 1024)
            received = await within_work_time(receive, self._process.pid, START_TIMEOUT)
            reply = received.decode(errors="replace")
            if not reply:
                raise EOFError("it died")
        except (OSError, EOFError, asyncio.TimeoutError) as error:
            why = f"the fork server failed: {error!r}"
            if isinstance(error, asyncio.TimeoutError):
                why = f"its imports and warm-up took longer than {START_TIMEOUT:g} s"
                if self._imports and self._process is not None:
                    with contextlib.suppress(ProcessLookupError):
                        # The server prints where it hangs.
                        self._process.send_signal(signal.SIGUSR1)
                    await asyncio.sleep(1)
                    why += ": an import that takes long belongs into the functions; it is at"
            failure = self._failure(role, why)
            await self._stop()
            raise failure from error
        except BaseException:
            await self._stop()  # its next reply would be the one to this request
            raise
        finally:
            slow.cancel()
        pid, _, error_text = reply.partition(" ")
        if error_text:
            raise self._failure(role, error_text)
        self._workers.add(int(pid))
        return int(pid)

    def _say_that_it_waits(self) -> None:
        logger.warning(
            "Worker processes%s still import after %g s; they are given up after %g s of work",
            self._imports,
            SLOW_START,
            START_TIMEOUT,
        )

    async def _running_server(self) -> socket.socket:
        """Return the control socket of a server process that runs; start one if need be."""
        if self._control is None or not self._is_running():
            await self._stop()
            self._control, theirs = _closed_in_forks(socket.socketpair())
            self._control.setblocking(False)
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
            with theirs:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *self._command,
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=self._stderr,
                    env=self._environment,
                    cwd=_IMPORT_ROOT,
                    start_new_session=True,
                )
        return self._control

    def _is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def kill(self, pid: int) -> bool:
        """Kill a worker and its session if its parent runs; return whether it was killed.

        No other process gets its id before the server process reaps it. Without that process,
        another one may have the id by now: the worker then ends when our socket closes.
        """
        if pid not in self._workers or self._control is None or not self._is_running():
            return False
        self._workers.remove(pid)
        _kill_session(pid)
        with contextlib.suppress(OSError):  # the server process has just died
            self._control.send(f"kill {pid}\n".encode())
        return True

    async def _stop(self) -> None:
        """Kill the server process. Its workers end when their sockets close."""
        control = self._control
        process = self._process
        stderr = self._stderr
        self._control = self._process = self._stderr = None
        self._workers.clear()
        if process is not None:
            _kill_session(process.pid)
            await process.wait()
        for opened in (control, stderr):
            if opened is not None:
                opened.close()

    async def close(self) -> None:
        """Kill the server process and all workers it has forked. May be called again."""
        self._closed = True
        for pid in list(self._workers):
            self.kill(pid)
        await self._stop()


def _kill_session(pid: int) -> None:
    # On macOS, a zombie raises PermissionError.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
"""Sockets whose closing ends a process; a fork of the event loop's process must not hold them."""


def _closed_in_forks(
    pair: tuple[socket.socket, socket.socket],
) -> tuple[socket.socket, socket.socket]:
    _sockets.update(pair)
    return pair


def _close_sockets() -> None:
    if not _sockets:
        return
    null = os.open(os.devnull, os.O_RDWR)
    for open_socket in list(_sockets):
        if open_socket.fileno() >= 0:
            os.dup2(null, open_socket.fileno())
    os.close(null)


os.register_at_fork(after_in_child=_close_sockets)
