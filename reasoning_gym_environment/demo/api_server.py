"""The real Atropos API server (`run-api`) as a child process.

Run as a program, this module is that child: the server, which also ends when its standard input
closes. The parent holds the other end, so the server dies with it on every way out of it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time

import aiohttp

_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
_POLL_SECONDS = 0.1


class ApiServer:
    """Runs `run-api` on 127.0.0.1 while it is entered (`async with`).

    The child is in a session of its own, so that Ctrl-C in a terminal reaches the parent
    alone, and ends when the parent does, however that happens.

    Args:
        port: 0 takes a free one.

    Attributes:
        url: without a trailing slash.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, *, port: int = 0) -> None:
        self._port = _find_port(port)
        self.url = f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> ApiServer:
        """Raises RuntimeError when the server does not come up."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __name__),
            *("--host", "127.0.0.1", "--port", str(self._port)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            await self._answer()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stop()

    async def _answer(self) -> None:
        """Wait until the server answers."""
        deadline = time.monotonic() + _START_SECONDS
        async with aiohttp.ClientSession() as session:
            while self._process.returncode is None and time.monotonic() < deadline:
                try:
                    async with session.get(self.url) as response:
                        response.raise_for_status()
                        return
                except aiohttp.ClientError:
                    await asyncio.sleep(_POLL_SECONDS)
        raise RuntimeError(
            f"the Atropos API server did not come up at {self.url} "
            f"(exit status {self._process.returncode})"
        )

    async def _stop(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_SECONDS)
        except asyncio.TimeoutError:
            self._process.kill()
            await self._process.wait()


def _find_port(wanted: int) -> int:
    """The wanted port if it is free: a stranger that answers there is not our server."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", wanted))
        return int(probe.getsockname()[1])


def _exit_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    from atroposlib.cli import run_api

    threading.Thread(target=_exit_with_parent, daemon=True).start()
    run_api.main()
