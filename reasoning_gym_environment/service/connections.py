"""HTTP servers with limits that uvicorn lacks: connections at once, and deadlines for clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import prometheus_client as prometheus
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import FixableError

logger = logging.getLogger(__name__)

MAX_CONNECTIONS = 8192
"""Connections at once; one more closes the one that has been idle longest."""

BACKLOG = 512
"""Connections that wait to be accepted; the event loop may accept all of them at once."""

SPARE_FILES = 256
"""Open files for everything but connections."""

SOCKET_BUFFER = 128 * 2**10
"""Bytes that the system may hold in each direction of a connection."""

KEEP_ALIVE_SECONDS = 75
"""Time for which an idle connection stays open, longer than a client's pool reuses it."""

_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: 53\r\n\r\n"
    b'{"error": "too many connections are busy: try later"}'
)


def raise_file_limit() -> None:
    """Raise the soft limit of open files of this process as far as connections need it."""
    wanted = MAX_CONNECTIONS + BACKLOG + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def possible_connections(wanted: int) -> int:
    """Return how many connections the limit of open files allows, and log if they are fewer."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = wanted if files == resource.RLIM_INFINITY else files - BACKLOG - SPARE_FILES
    if possible < wanted:
        logger.warning(
            "At most %d connections instead of %d: this process may open %d files; allow more with "
            "ulimit -Hn or LimitNOFILE",
            max(1, possible),
            wanted,
            files,
        )
    return max(1, min(possible, wanted))


@dataclass(kw_only=True)
class Connections:
    """Limits that all connections of a server share.

    Attributes:
        most: connections at once.
        head_seconds: for a request's head, from the connection or its first byte.
        reply_seconds: for the client to read a reply.
        closed: counts connections that were closed early, by reason.
        idle: connections without a request, the longest idle first.
    """

    most: int
    head_seconds: float
    reply_seconds: float
    closed: prometheus.Counter
    idle: OrderedDict[BoundedConnection, None] = field(default_factory=OrderedDict)


class BoundedConnection(H11Protocol):
    """A connection that is closed when its client is too slow, or when there are too many.

    h11 bounds heads and requests sent ahead of replies. httptools would take 0.1 ms less a request
    and bounds neither.
    """

    def __init__(self, *args: Any, limits: Connections, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = limits
        self._deadlines: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # a reply is read once nothing is left of it
        limits = self._limits
        if len(self.connections) > limits.most:
            if not limits.idle:
                limits.closed.labels("refused").inc()
                transport.write(_REFUSAL)
                transport.close()
                return
            limits.idle.popitem(last=False)[0]._abort("evicted")
        limits.idle[self] = None
        self._set_deadline("head", limits.head_seconds)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._busy:
            self._limits.idle.pop(self, None)
            self._cancel_deadline("head")
        else:
            self._set_deadline("head", self._limits.head_seconds)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not (self._busy or self.transport.is_closing()):
            self._limits.idle[self] = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._set_deadline("reply", self._limits.reply_seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_deadline("reply")

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.idle.pop(self, None)
        for reason in tuple(self._deadlines):
            self._cancel_deadline(reason)
        super().connection_lost(exc)

    @property
    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _set_deadline(self, reason: str, seconds: float) -> None:
        if reason not in self._deadlines:
            self._deadlines[reason] = self.loop.call_later(seconds, self._abort, reason)

    def _cancel_deadline(self, reason: str) -> None:
        if reason in self._deadlines:
            self._deadlines.pop(reason).cancel()

    def _abort(self, reason: str) -> None:
        self._limits.closed.labels(reason).inc()
        self.transport.abort()


class _Server(uvicorn.Server):
    """A server that leaves signals to its owner."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """An ASGI application on its address, while entered.

    Args:
        port: 0 takes a free one.
        drain: seconds for in-flight requests at the end.
        lifespan: whether the application has one.

    Attributes:
        url: of the address, without a trailing slash.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        port: int,
        limits: Connections,
        drain: float,
        lifespan: bool,
    ) -> None:
        self._host = host
        self._port = port
        self._server = _Server(
            uvicorn.Config(
                app,
                interface="asgi3",  # uvicorn does not detect that of a method
                http=cast(type[asyncio.Protocol], partial(BoundedConnection, limits=limits)),
                backlog=BACKLOG,
                ws="none",
                lifespan="on" if lifespan else "off",
                log_config=None,
                log_level=logging.ERROR,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=cast(int, drain),  # a float is as good
            )
        )

    async def __aenter__(self) -> HttpServer:
        try:
            sockets = await _listen(self._host, self._port)
        except OSError as error:
            raise FixableError(
                f"--host {self._host} --port {self._port}: cannot listen "
                f"({error.strerror or error})"
            ) from error
        name = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{name}:{sockets[0].getsockname()[1]}"
        self._serving = asyncio.create_task(self._server.serve(sockets))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        await self._serving


async def _listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on an address. uvicorn exits the process where it cannot."""
    server = await asyncio.get_running_loop().create_server(
        asyncio.Protocol, host, port, start_serving=False
    )
    sockets = [each.dup() for each in server.sockets]
    server.close()
    for each in sockets:
        for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # its connections inherit them
            each.setsockopt(socket.SOL_SOCKET, buffer, SOCKET_BUFFER)
        each.listen(BACKLOG)
    return sockets


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
