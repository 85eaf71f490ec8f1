"""A web application on a port of this machine, closed without losing a connection."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

SHUTDOWN_SECONDS = 0.5
"""How long requests in progress may take when the site closes."""


class LocalSite:
    """Serves an application from `start` to `close`."""

    def __init__(self, app: web.Application) -> None:
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS
        )

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> str:
        """Return the URL, without a trailing slash; port 0 is any free one."""
        await self._runner.setup()
        self._listener = socket.create_server((host, port))
        await web.SockSite(self._runner, self._listener).start()
        return "http://{}:{}".format(*self._listener.getsockname())

    async def close(self) -> None:
        """Accept no more connections, and end those that there are; again, it does nothing."""
        if self._listener.fileno() < 0:  # closed
            return
        # Python before 3.12 leaks a connection that it accepts while the server closes: asyncio
        # makes its transport in a task, which then fails. So those tasks run first.
        asyncio.get_running_loop().remove_reader(self._listener)
        await asyncio.sleep(0)
        await self._runner.cleanup()
