"""An ASGI application on its address, by uvicorn, with deadlines for its clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import FixableError

BACKLOG = 512
"""Connections that wait to be accepted; the event loop may accept all of them at once."""


def raise_file_limit() -> None:
    """Raise this process's soft limit of open files: every connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 16_384 if hard == resource.RLIM_INFINITY else min(16_384, hard)
    if resource.RLIM_INFINITY != soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def possible_connections() -> int:
    """Return how many connections leave files for workers, streams and those not yet accepted."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**20 if files == resource.RLIM_INFINITY else max(1, files - BACKLOG - 256)


class TimedConnection(H11Protocol):
    """A connection that ends when its client takes too long for a head, or to read a reply.

    h11 bounds heads and requests sent ahead of replies. httptools would take 0.1 ms less a request
    and bounds neither.

    Args:
        most: connections of the server; one more is closed at once.
        seconds: for a whole head, from the connection or its first byte, and for a reply.
    """

    def __init__(self, *args: Any, most: int, seconds: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._most = most
        self._seconds = seconds
        self._deadlines: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        if len(self.connections) > self._most:
            transport.abort()
        self._begin("head")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._end("head")
        else:
            self._begin("head")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._begin("reply")

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end("reply")

    def connection_lost(self, exc: Exception | None) -> None:
        for part in tuple(self._deadlines):
            self._end(part)
        super().connection_lost(exc)

    def _begin(self, part: str) -> None:
        if part not in self._deadlines:
            timer = self.loop.call_later(self._seconds, self.transport.abort)
            self._deadlines[part] = timer

    def _end(self, part: str) -> None:
        if part in self._deadlines:
            self._deadlines.pop(part).cancel()


class HttpServer:
    """An ASGI application on its address, while entered.

    Args:
        drain: seconds for in-flight requests at the end.
        patience: seconds for a client to send a head, and to read a reply.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        port: int,
        drain: float,
        lifespan: bool,
        patience: float = 60.0,
    ) -> None:
        self._host = host
        self._port = port
        protocol = partial(
            TimedConnection, most=possible_connections(), seconds=patience
        )
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                interface="asgi3",  # uvicorn does not detect that of a method
                http=cast(type[asyncio.Protocol], protocol),
                backlog=BACKLOG,
                ws="none",
                lifespan="on" if lifespan else "off",
                log_config=None,
                log_level=logging.ERROR,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                # Longer than a client's pool reuses an idle connection.
                timeout_keep_alive=75,
                timeout_graceful_shutdown=cast(int, drain),  # a float is as good
            )
        )
        self._server.capture_signals = contextlib.nullcontext  # type: ignore[assignment, method-assign]  # signals are the owner's

    async def __aenter__(self) -> HttpServer:
        loop = asyncio.get_running_loop()
        try:  # by hand: uvicorn exits the process where it cannot listen
            server = await loop.create_server(
                asyncio.Protocol, self._host, self._port, start_serving=False
            )
            sockets = [each.dup() for each in server.sockets]
            server.close()
            for each in sockets:
                each.listen(BACKLOG)
        except OSError as error:
            raise FixableError(
                f"--host {self._host} --port {self._port}: cannot listen "
                f"({error.strerror or error}); give another --port, or 0 for a free one"
            ) from error
        name = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{name}:{sockets[0].getsockname()[1]}"
        self._serving = asyncio.create_task(self._server.serve(sockets))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        await self._serving


def first_signal() -> asyncio.Event:
    """Return an event that the first SIGTERM or SIGINT sets; a second one has its usual effect."""
    loop = asyncio.get_running_loop()
    received = asyncio.Event()
    handled = (signal.SIGTERM, signal.SIGINT)

    def receive() -> None:
        received.set()
        for number in handled:
            loop.remove_signal_handler(number)

    for number in handled:
        loop.add_signal_handler(number, receive)
    return received
