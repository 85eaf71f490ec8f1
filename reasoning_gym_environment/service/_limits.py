"""ASGI middleware: request metrics, bearer token, limits on bodies and memory, disconnects."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

import anyio
from fastapi import HTTPException, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..util.text import shorten
from ._messages import retry_later

T = TypeVar("T")

MAX_VALUES = 2**19
"""Values in one body, more than 4 MiB of token ids and logprobs have."""

VALUE_BYTES = 64
"""Bytes of a parsed value: an empty list in a list takes most."""

SMALL_REPLY = 64 * 2**10
"""Bytes of a reply that the system's buffers hold."""

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
    """Middleware that requires a token on all routes but `/health`."""

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


Admissions = Mapping[str, Callable[[], None] | None]
"""By path of a route that reads a body: raises HTTPException while the route has no room."""


class Reservation:
    """Memory of one request, out of what all requests have together."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._size = 0

    def grow_to(self, size: int) -> None:
        """Reserve so many bytes in all; HTTPException 429 if there is no room."""
        budget = self._budget
        more = max(0, size - self._size)
        if budget.reserved + more > budget.most:
            raise retry_later(
                429,
                f"requests hold {budget.reserved} of {budget.most} bytes: try again later",
            )
        budget.reserved += more
        self._size += more

    def release(self) -> None:
        self._budget.reserved -= self._size
        self._size = 0


class MemoryBudget:
    """Bytes that all requests may hold at once, parsed and with their replies.

    Args:
        most: bytes; more if one request of the largest size needs more.
        largest: bytes of one body.
        registry: takes the metric.
    """

    def __init__(self, most: int, *, largest: int, registry: CollectorRegistry) -> None:
        self.most = max(most, _memory(largest, min(largest, MAX_VALUES), is_wide=True))
        self.reserved = 0
        Gauge(
            "reasoning_gym_request_bytes", "Memory that requests hold.", registry=registry
        ).set_function(lambda: self.reserved)


def memory_of(body: bytes) -> int:
    """Estimate the bytes of a body, its parsed JSON, and a reply that repeats it.

    Raises:
        HTTPException: it has more than MAX_VALUES values; commas and brackets bound their number.
    """
    values = body.count(b",") + body.count(b"[") + body.count(b"{")
    if values > MAX_VALUES:
        raise HTTPException(
            413,
            f"the body has {values} commas and brackets, more than {MAX_VALUES}: send fewer "
            "completions in one request",
        )
    is_wide = b"\\u" in body or not body.isascii()  # one character may widen all others
    return _memory(len(body), values, is_wide=is_wide)


def _memory(size: int, values: int, *, is_wide: bool) -> int:
    return size * (8 if is_wide else 4) + values * VALUE_BYTES


class BodyLimiter:
    """Middleware that reads a request's body within limits, and watches its client.

    A request reserves memory as its body arrives, and keeps it until the client has read the
    reply. The handler is cancelled when the client disconnects.

    Args:
        budget: the memory of all requests.
        largest: bytes of one body.
        timeout: seconds for a body to arrive.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        admissions: Admissions,
        budget: MemoryBudget,
        largest: int,
        timeout: float,
    ) -> None:
        self._app = app
        self._admissions = admissions
        self._largest = largest
        self._timeout = timeout
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reads_body = scope["type"] == "http" and scope["path"] in self._admissions
        if not reads_body or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        reservation = Reservation(self._budget)
        try:
            self._admit(scope["path"], Headers(scope=scope))
            body = await self._read(receive, reservation)
            reservation.grow_to(memory_of(body))
            await self._handle(scope, body, receive, send)
        except HTTPException as error:
            await error_response(error)(scope, receive, send)
        except ClientDisconnect:
            pass  # there is nobody to reply to
        finally:
            reservation.release()

    def _admit(self, path: str, headers: Headers) -> None:
        """Raise HTTPException if the head says that the body can't be taken."""
        require_room = self._admissions[path]
        if require_room is not None:
            require_room()
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
        if int(headers.get("content-length", 0)) > self._largest:
            raise self._too_large()

    async def _read(self, receive: Receive, reservation: Reservation) -> bytes:
        body = bytearray()
        more = True
        try:
            with anyio.fail_after(self._timeout):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    body += message.get("body", b"")
                    if len(body) > self._largest:
                        raise self._too_large()
                    reservation.grow_to(len(body))
                    more = message.get("more_body", False)
        except TimeoutError:
            raise HTTPException(
                408,
                f"the body did not arrive within {self._timeout:g} s",
                headers={"Connection": "close"},
            ) from None
        return bytes(body)

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
            if len(message.get("body", b"")) > SMALL_REPLY and not message.get("more_body"):
                await send({**message, "more_body": True})
                message = {"type": "http.response.body"}  # waits until the client has read
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
