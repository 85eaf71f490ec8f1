"""ASGI middleware: request metrics, bearer tokens, limits on bodies, disconnects."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import time
from base64 import b64decode
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from fastapi import HTTPException, Response
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..util.values import shorten

_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def error_response(error: HTTPException) -> Response:
    """Return the service's JSON error; ASCII, since a message may quote lone surrogates."""
    return Response(
        json.dumps({"error": error.detail}),
        error.status_code,
        error.headers,
        media_type="application/json",
    )


def route_path(scope: Scope) -> str:
    """Return the path that routes are found by: without the prefix of the application."""
    path = str(scope["path"])
    prefix = scope.get("root_path", "")
    return path[len(prefix) :] if path.startswith(f"{prefix}/") else path


class RequestMetrics:
    """Middleware that records each request: by its path if `paths` has it, else as `none`."""

    def __init__(
        self, app: ASGIApp, *, registry: CollectorRegistry, paths: Collection[str]
    ) -> None:
        self._app = app
        self._paths = paths
        self._requests = Counter(
            "reasoning_gym_requests",
            "Requests by route and HTTP status; 499: the client disconnected.",
            ["route", "code"],
            registry=registry,
        )
        self._seconds = Histogram(
            "reasoning_gym_request_seconds",
            "Seconds until the reply.",
            ["route"],
            buckets=(
                0.005,
                0.01,
                0.025,
                0.05,
                0.1,
                0.25,
                0.5,
                1,
                2.5,
                5,
                10,
                30,
                60,
                120,
            ),
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.monotonic()
        status = 499  # as nginx counts requests whose client disconnected

        async def send_recorded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_recorded)
        except Exception:
            status = 500
            raise
        finally:
            path = route_path(scope)
            route = path if path in self._paths and status != 405 else "none"
            self._requests.labels(route, status).inc()
            self._seconds.labels(route).observe(time.monotonic() - begin)


class BearerToken:
    """Middleware that requires one of the tokens on all routes but `/health`.

    Clients that can't set a header have it as the password of an address, `http://token:TOKEN@host`.
    `scope["token"]` is the token that was given.
    """

    def __init__(self, app: ASGIApp, *, tokens: Collection[str]) -> None:
        self._app = app
        self._tokens = [token for token in tokens if token]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and route_path(scope) != "/health":
            header = Headers(scope=scope).get("authorization", "")
            kind, _, value = header.partition(" ")
            token = value.encode("latin-1") if kind == "Bearer" else b""
            with suppress(ValueError):  # it is not base64
                token = (
                    b64decode(value).partition(b":")[2] if kind == "Basic" else token
                )
            equal = (t for t in self._tokens if hmac.compare_digest(token, t.encode()))
            scope["token"] = next(equal, None)
            if scope["token"] is None:
                error = HTTPException(
                    401,
                    "the header Authorization: Bearer TOKEN is missing or has another token",
                    headers={"WWW-Authenticate": "Bearer"},
                )
                refusal = error_response(error)
                # A browser asks its user for the password; it reads one scheme of each header.
                refusal.headers.append("WWW-Authenticate", 'Basic realm="token"')
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


UNFINISHED_BYTES = 128 * 2**20
"""Of all bodies that still arrive; at least as many as one body may have."""


@dataclass(eq=False, slots=True)
class _Body:
    """A body that still arrives.

    Attributes:
        dropped: whether others needed its room.
    """

    content: bytearray = field(default_factory=bytearray)
    dropped: bool = False


class BodyLimiter:
    """Middleware that reads the body of every POST within limits, and watches its client.

    The handler is cancelled when the client disconnects. A path with a control character is
    refused. Of unfinished bodies that have too many bytes together, those are refused whose next
    part is the longest in coming.

    Args:
        admissions: by path of a route that takes JSON, what raises HTTPException while the route
            has no room.
        largest: bytes of one body.
        unfinished: bytes of all bodies that still arrive.
        seconds: for a body to arrive.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        admissions: Mapping[str, Callable[[], None] | None],
        largest: int,
        unfinished: int = UNFINISHED_BYTES,
        seconds: float = 30.0,
    ) -> None:
        self._app = app
        self._admissions = admissions
        self._largest = largest
        self._most_bytes = max(largest, unfinished)
        self._bytes = 0
        self._unfinished: dict[_Body, None] = {}  # that which grew last comes last
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _CONTROL_CHARACTER.search(scope["path"]):
            # Routes are regular expressions, whose end matches before a newline.
            error = HTTPException(404, "a path with a control character has no route")
            await error_response(error)(scope, receive, send)
            return
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            self._admit(route_path(scope), Headers(scope=scope))
            body = await self._read(receive)
            await self._handle(scope, body, receive, send)
        except HTTPException as error:
            await error_response(error)(scope, receive, send)
        except ClientDisconnect:
            pass  # there is nobody to reply to

    def _admit(self, path: str, headers: Headers) -> None:
        """Raise HTTPException if the head says that the body can't be taken."""
        require_room = self._admissions.get(path)
        if require_room is not None:
            require_room()
        if path in self._admissions:
            self._require_json(headers)
        if int(headers.get("content-length", 0)) > self._largest:
            raise self._too_large()

    @staticmethod
    def _require_json(headers: Headers) -> None:
        encoding = headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise HTTPException(
                415, f"send the body without Content-Encoding, got {shorten(encoding)}"
            )
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HTTPException(
                415, f"Content-Type must be application/json, got {kind or 'no header'}"
            )

    async def _read(self, receive: Receive) -> bytes:
        body = _Body()
        try:
            await self._receive(body, receive)
            return bytes(body.content)
        finally:
            self._drop(body)

    async def _receive(self, body: _Body, receive: Receive) -> None:
        """Receive all of a body; HTTPException if it takes too long, or more than its room."""
        deadline = time.monotonic() + self._seconds
        more = True
        while more:
            try:
                message = await asyncio.wait_for(receive(), deadline - time.monotonic())
            except asyncio.TimeoutError:
                raise HTTPException(
                    408,
                    f"the body did not arrive within {self._seconds:g} s",
                    headers={"Connection": "close"},
                ) from None
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            self._extend(body, message.get("body", b""))
            if len(body.content) > self._largest:
                raise self._too_large()
            if body.dropped:
                raise HTTPException(
                    503,
                    f"the bodies that still arrive have more than {self._most_bytes} bytes, and "
                    "this one came too slowly",
                    headers={"Retry-After": "1", "Connection": "close"},
                )
            more = message.get("more_body", False)

    def _extend(self, body: _Body, part: bytes) -> None:
        """Append a part; drop others where all have too many bytes together."""
        if body.dropped:
            return
        self._unfinished.pop(body, None)
        self._unfinished[body] = None
        self._bytes += len(part)
        body.content += part
        while self._bytes > self._most_bytes and len(self._unfinished) > 1:
            slowest = next(iter(self._unfinished))
            self._drop(slowest)
            slowest.dropped = True

    def _drop(self, body: _Body) -> None:
        """Free the room of a body."""
        if body in self._unfinished:
            del self._unfinished[body]
            self._bytes -= len(body.content)
        body.content.clear()

    def _too_large(self) -> HTTPException:
        return HTTPException(
            413,
            f"the body is larger than the {self._largest} bytes that --max-body allows",
        )

    async def _handle(
        self,
        scope: Scope,
        body: bytes,
        receive: Receive,
        send: Send,
    ) -> None:
        """Run the application on a body that was read; cancel it if the client disconnects."""
        started = False

        async def receive_body() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send_tracked(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        task = asyncio.current_task()
        assert task is not None

        async def cancel_on_disconnect() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            if not started:
                task.cancel()

        watching = asyncio.create_task(cancel_on_disconnect())
        try:
            await self._app(scope, receive_body, send_tracked)
        except asyncio.CancelledError:
            if not watching.done():
                raise
        finally:
            watching.cancel()
