"""Commands in processes forked from one that has imported everything: each saves four seconds.

A test gets a process of its own, with its own folder, environment, session and outputs. What a
true start does before the imports is tested by `bench.program`.
"""

import asyncio
import contextlib
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = "from forked_commands import serve; serve()"


class ForkedProcess:
    """A command, with the part of `asyncio.subprocess.Process` that tests use."""

    def __init__(
        self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ):
        self.pid = pid
        self.returncode: int | None = None
        self._writer = writer
        self._ended = asyncio.create_task(self._read_status(reader))

    async def _read_status(self, reader: asyncio.StreamReader) -> None:
        line = await reader.readline()
        # Without a line, the server was killed.
        self.returncode = int(line or -signal.SIGKILL)
        self._writer.close()

    async def wait(self) -> int:
        await asyncio.shield(self._ended)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class CommandServer:
    """The process that commands are forked from; it starts with the first command."""

    def __init__(self) -> None:
        # A socket's path is short.
        self._folder = tempfile.TemporaryDirectory(dir="/tmp")
        self._socket = str(Path(self._folder.name, "commands"))
        self._process: asyncio.subprocess.Process | None = None

    async def start(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        out: Path,
        log: Path,
    ) -> ForkedProcess:
        """Start the package's command with arguments."""
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PROGRAM, self._socket),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdout=asyncio.subprocess.PIPE,
            )
            assert self._process.stdout is not None
            await self._process.stdout.readline()  # it listens
        for path in (out, log):
            path.write_bytes(b"")
        reader, writer = await asyncio.open_unix_connection(self._socket)
        request = {
            "arguments": list(arguments),
            "folder": str(folder),
            "environment": dict(environment),
            "out": str(out),
            "log": str(log),
        }
        writer.write(json.dumps(request).encode() + b"\n")
        pid = int(await reader.readline())
        return ForkedProcess(pid, reader, writer)

    async def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
        self._folder.cleanup()


def serve() -> None:
    """Fork a child for each request; runs until it is killed."""
    # What takes seconds to import, so that no child does.
    for name in (
        "transformers",
        "wandb",
        "reasoning_gym_environment.reasoning_gym_environment",
    ):
        importlib.import_module(name)

    listening = socket.create_server(sys.argv[1], family=socket.AF_UNIX)
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    connections: dict[int, socket.socket] = {}
    signal.signal(signal.SIGCHLD, lambda *_: _report_ended(connections))
    while True:
        connection, _ = listening.accept()
        request = json.loads(connection.makefile().readline())
        # A child that ends at once must not be missed.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            listening.close()
            for other in (connection, *connections.values()):
                other.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            _become(request)
        connections[pid] = connection
        connection.sendall(b"%d\n" % pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _report_ended(connections: dict[int, socket.socket]) -> None:
    """Send the status of each child that has ended, as `subprocess` gives it."""
    while connections:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with connections.pop(pid) as connection, contextlib.suppress(OSError):
            connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _become(request: dict[str, Any]) -> None:
    """Run the command in this process, which ends with it."""
    from reasoning_gym_environment.cli import main

    status: object = 1
    try:
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        empty = os.open(os.devnull, os.O_RDONLY)
        flags = os.O_WRONLY | os.O_APPEND
        for number, descriptor in (
            (0, empty),
            (1, os.open(request["out"], flags)),
            (2, os.open(request["log"], flags)),
        ):
            os.dup2(descriptor, number)
        sys.argv[:] = ["reasoning-gym-environment", *request["arguments"]]
        status = main()
    except SystemExit as error:
        status = error.code
    finally:
        # As the interpreter's own end: functions registered with `atexit` run.
        sys.exit(status)
