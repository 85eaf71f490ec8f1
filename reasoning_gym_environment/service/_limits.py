"""ASGI middleware: request metrics, bearer token, limits on bodies, and disconnects."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
import zlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import anyio
from fastapi import HTTPException, Response
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ._messages import retry_later

T = TypeVar("T")

MAX_PENDING_BYTES = 256 * 2**20
"""Bytes of all bodies in memory; one larger body may still come alone."""

CLIENT_CLOSED_REQUEST = 499
"""Status that counts requests whose client disconnected, as nginx does."""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Upper bounds of the histogram of request times."""


async def retry(attempt: Callable[[], Awaitable[T]], delays: Sequence[float]) -> T:
    """Call `attempt`, again after each delay while it raises status 429 or 503."""
    for delay in delays:
        try:
            return await attempt()
        except HTTPException as error:
            if error.status_code not in (429, 503):
                raise
        await asyncio.sleep(delay)
    return await attempt()


def error_response(error: HTTPException) -> Response:
    """Return the service's JSON error; ASCII, since a message may quote lone surrogates."""
    return Response(
        json.dumps({"error": error.detail}),
        error.status_code,
        error.headers,
        media_type="application/json",
    )


class RequestMetrics:
    """Middleware that records each request.

    Args:
        registry: takes the metrics.
        paths: label their requests; other paths are `none`.
    """

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
            buckets=SECONDS,
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.monotonic()
        status = CLIENT_CLOSED_REQUEST

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
            known = scope["path"] in self._paths and status != 405
            route = scope["path"] if known else "none"
            self._requests.labels(route, status).inc()
            self._seconds.labels(route).observe(time.monotonic() - begin)


class BearerToken:
    """Middleware that requires a bearer token on all routes but `/health`."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/health":
            given = Headers(scope=scope).get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(given, self._expected):
                error = HTTPException(
                    401,
                    "the header Authorization: Bearer TOKEN is missing or has another token",
                    headers={"WWW-Authenticate": "Bearer"},
                )
                await error_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Admission(NamedTuple):
    """When a route admits a request, before its body is read.

    Attributes:
        require_room: raises HTTPException if the route has no room for it.
        retry_delays: seconds before each further attempt, for clients that give up soon.
    """

    require_room: Callable[[], None] | None = None
    retry_delays: Sequence[float] = ()


class BodyLimiter:
    """Middleware that admits a request, reads its body within limits, and watches its client.

    All bodies that are read or handled at once have `MAX_PENDING_BYTES`. The handler is cancelled
    when the client disconnects.

    Args:
        admissions: of the routes that read a body, by path.
        largest: bytes of one body, after decompression.
        timeout: seconds for a body to arrive.
    """

    def __init__(
        self, app: ASGIApp, *, admissions: Mapping[str, Admission], largest: int, timeout: float
    ) -> None:
        self._app = app
        self._admissions = admissions
        self._largest = largest
        self._timeout = timeout
        self._most = max(MAX_PENDING_BYTES, largest)
        self._reserved = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        admission = self._admissions.get(scope["path"]) if scope["type"] == "http" else None
        if admission is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        size = 0
        try:
            size = await retry(partial(self._admit, admission, headers), admission.retry_delays)
            body = await self._read(headers, receive)
            await self._handle(scope, body, receive, send)
        except HTTPException as error:
            await error_response(error)(scope, receive, send)
        except ClientDisconnect:
            pass  # there is nobody to reply to
        finally:
            self._reserved -= size

    async def _admit(self, admission: Admission, headers: Headers) -> int:
        """Reserve the bytes of a body and return their number; HTTPException if there is no room.

        A body of unknown length, as a compressed one, reserves the largest.
        """
        if admission.require_room is not None:
            admission.require_room()
        length = None if "content-encoding" in headers else headers.get("content-length")
        size = self._largest if length is None else min(int(length), self._largest)
        if self._reserved + size > self._most:
            raise retry_later(
                429,
                f"pending request bodies hold {self._reserved} of {self._most} bytes: try again "
                "later",
            )
        self._reserved += size
        return size

    async def _read(self, headers: Headers, receive: Receive) -> bytes:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HTTPException(
                415, f"Content-Type must be application/json, got {kind or 'no header'}"
            )
        if int(headers.get("content-length", 0)) > self._largest:
            raise self._too_large()
        try:
            with anyio.fail_after(self._timeout):
                return await self._read_chunks(headers, receive)
        except TimeoutError:
            raise HTTPException(
                408,
                f"the body did not arrive within {self._timeout:g} s",
                headers={"Connection": "close"},
            ) from None
        except zlib.error as error:
            raise HTTPException(400, f"the body is not valid compressed data: {error}") from None

    async def _read_chunks(self, headers: Headers, receive: Receive) -> bytes:
        decoder = _decoder(headers.get("content-encoding", "identity"))
        chunks = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk = message.get("body", b"")
            if decoder is not None:
                chunk = decoder.decompress(chunk, self._largest - len(chunks) + 1)
            chunks += chunk
            if len(chunks) > self._largest:
                raise self._too_large()
            more = message.get("more_body", False)
        return bytes(chunks)

    def _too_large(self) -> HTTPException:
        return HTTPException(
            413, f"the body is larger than the {self._largest} bytes that --max-body allows"
        )

    async def _handle(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
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


def _decoder(encoding: str) -> zlib._Decompress | None:
    if encoding.lower() == "identity":
        return None
    if encoding.lower() in ("gzip", "deflate"):
        return zlib.decompressobj(32 + zlib.MAX_WBITS)  # either header
    raise HTTPException(415, f"Content-Encoding must be gzip or deflate, got {encoding}")
