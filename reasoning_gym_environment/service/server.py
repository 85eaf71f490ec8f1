"""An ASGI application on its address, by uvicorn, with deadlines for its clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
from functools import partial
from typing import Any, NamedTuple, cast

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import FixableError

HEAD_SECONDS = 10.0
"""For a client to send a whole head, from the connection or its first byte."""

BODY_SECONDS = 60.0
"""For a client to send a body, where the application has no deadline of its own."""

REPLY_SECONDS = 60.0
"""For a client to read a reply: one of megabytes takes long over a slow line."""

KEEP_ALIVE_SECONDS = 75
"""For which an idle connection stays: longer than a client's pool reuses it."""

MOST_IDLE = 512
"""Connections that are kept after their replies; a client's pool keeps 10 to 100."""

HEALTH_ROOM = 16
"""Connections beyond the most, which are answered nothing but whether the server is up."""


class _Files(NamedTuple):
    """How the limit of open files is divided.

    Attributes:
        connections: at once.
        backlog: connections that wait to be accepted; the event loop may accept all of them at
            once, before it closes what are too many.
    """

    connections: int
    backlog: int


def divide_files() -> _Files:
    """Return how many files are for connections; the others are for workers and streams."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = 2**20
    backlog = min(512, limit // 8)
    # A service has 11 of its own and two for each process, a stream has one while it is saved.
    others = min(256, limit // 4)
    return _Files(max(1, limit - backlog - others - HEALTH_ROOM), backlog)


def raise_file_limit() -> None:
    """Raise this process's soft limit of open files: every connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 16_384 if hard == resource.RLIM_INFINITY else min(16_384, hard)
    if resource.RLIM_INFINITY != soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Room:
    """The connections of a server, and which of them go first when there are too many.

    Attributes:
        most: connections at once.
        most_idle: of them between a reply and the next request.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.most_idle = max(1, min(MOST_IDLE, most // 2))
        self._all: set[TimedConnection] = set()
        # Those without a request, the one that has waited for longest first: a client at work
        # waits for milliseconds, so that its own is the last to go.
        self._waiting: dict[TimedConnection, None] = {}
        self._idle: dict[TimedConnection, None] = {}  # of them, those after a reply

    def admit(self, connection: TimedConnection) -> int:
        """Take in a connection, for which another may have to go; return how many are too many."""
        self._all.add(connection)
        if len(self._all) > self.most and self._waiting:
            self.close(next(iter(self._waiting)))
        self._waiting[connection] = None
        return len(self._all) - self.most

    def keep(self, connection: TimedConnection) -> None:
        """Keep a connection after its reply; if too many are kept, the first of them goes."""
        self._waiting[connection] = None
        self._idle[connection] = None
        if len(self._idle) > self.most_idle:
            self.close(next(iter(self._idle)))

    def begin(self, connection: TimedConnection) -> None:
        """Note that a connection has a request."""
        self._waiting.pop(connection, None)
        self._idle.pop(connection, None)

    def close(self, connection: TimedConnection) -> None:
        """Close a connection at once, or forget one that has ended."""
        self.begin(connection)
        self._all.discard(connection)
        connection.transport.abort()


class TimedConnection(H11Protocol):
    """A connection that ends when its client takes too long for a head, or to read a reply.

    h11 bounds heads and requests sent ahead of replies. httptools would take 0.1 ms less a request
    and bounds neither.

    Args:
        room: shared by the server's connections.
        health_path: of the only request that is answered where there is no room.
    """

    def __init__(
        self,
        *args: Any,
        room: _Room,
        health_path: str,
        head_seconds: float,
        reply_seconds: float,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._room = room
        self._health_path = health_path
        self._seconds = {
            "head": head_seconds,
            "body": BODY_SECONDS,
            "reply": reply_seconds,
        }
        self._deadlines: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._begin("head")
        excess = self._room.admit(self)
        if excess > HEALTH_ROOM:
            self._room.close(self)
        elif excess > 0:
            self.app = self._answer_health

    async def _answer_health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application for a request of its health, and refuse any other."""
        if scope["path"] == self._health_path:
            await self.config.loaded_app(scope, receive, send)
            return
        refusal = JSONResponse(
            {"error": f"all {self._room.most} connections are in use"},
            503,
            {"Retry-After": "1", "Connection": "close"},
        )
        await refusal(scope, receive, send)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._end("head")
            self._room.begin(self)
            if self.cycle.more_body:
                self._begin("body")
            else:
                self._end("body")
        else:
            self._begin("head")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._end("body")
        if self.transport.is_closing():
            self._begin("reply")  # a part of it may wait for its client
        elif self.cycle.response_complete:  # no request was sent ahead
            self._room.keep(self)

    def timeout_keep_alive_handler(self) -> None:
        self._room.close(self)  # also if its client has not read all replies

    def pause_writing(self) -> None:
        super().pause_writing()
        self._begin("reply")

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end("reply")

    def connection_lost(self, exc: Exception | None) -> None:
        for part in tuple(self._deadlines):
            self._end(part)
        self._room.close(self)
        super().connection_lost(exc)

    def _begin(self, part: str) -> None:
        if part not in self._deadlines:
            self._deadlines[part] = self.loop.call_later(
                self._seconds[part], self._room.close, self
            )

    def _end(self, part: str) -> None:
        if part in self._deadlines:
            self._deadlines.pop(part).cancel()


class HttpServer:
    """An ASGI application on its address, while entered.

    Args:
        drain: seconds for in-flight requests at the end.
        health_path: that is answered where there is room for no other.
        head_seconds: for a client to send a head.
        reply_seconds: for a client to read a reply.

    Attributes:
        connections: at once, as the limit of open files allows.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        port: int,
        drain: float,
        lifespan: bool,
        health_path: str,
        head_seconds: float = HEAD_SECONDS,
        reply_seconds: float = REPLY_SECONDS,
    ) -> None:
        self._host = host
        self._port = port
        self.connections, self._backlog = divide_files()
        protocol = partial(
            TimedConnection,
            room=_Room(self.connections),
            health_path=health_path,
            head_seconds=head_seconds,
            reply_seconds=reply_seconds,
        )
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                interface="asgi3",  # uvicorn does not detect that of a method
                http=cast(type[asyncio.Protocol], protocol),
                backlog=self._backlog,
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
                each.listen(self._backlog)
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
