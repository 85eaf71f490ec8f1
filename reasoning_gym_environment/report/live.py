"""The page of runs that still write, over HTTP: read-only, and for those who may read it.

The loopback address needs no token; a browser's page of another site can't read from it, since
the Host header has to name this machine.
"""

from __future__ import annotations

import asyncio
import gzip
import hmac
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import FixableError
from ..service.server import HttpServer
from ..util.text import shorten
from .follow import GoneError, LiveIndex
from .page import row_of

MAX_TEXT = 1000
"""Characters that may be searched for."""

MAX_SHOWN = 1_000_000
"""Characters of a text that is sent; the middle of a longer one is left out."""

_POLL_SECONDS = 1.0
_AT_ONCE = 4
"""Replies made at once; each may take as much memory as the whole index."""

_COMPRESSED = 1024
_TOKEN = "token"

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveSettings:
    """Address of the page, and who may read it.

    Attributes:
        port: 0 takes a free one.
        token: that readers must have; None requires none.
        allowed_hosts: names of this machine, besides its own and its addresses, that may stand in
            the address of the page: that of a proxy, for instance.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    allowed_hosts: Collection[str] = ()


class LiveServer:
    """The page on its address, while entered; it follows the files.

    Args:
        page: HTML that reads from `api/`.

    Attributes:
        url: of the page, with the token if there is one.
        settings: as given.
        app: the ASGI application.
    """

    def __init__(self, live: LiveIndex, page: str, settings: LiveSettings) -> None:
        self._live = live
        self.settings = settings
        self.app = create_app(live, page, settings)
        self._server = HttpServer(
            self.app, host=settings.host, port=settings.port, drain=2, lifespan=False
        )

    async def __aenter__(self) -> LiveServer:
        await self._server.__aenter__()
        parts = urlsplit(self._server.url)
        host, token = self.settings.host, self.settings.token
        name = socket.gethostname() if _is_any(host) else parts.netloc.rpartition(":")[0]
        query = f"?{urlencode({_TOKEN: token})}" if token else ""
        self.url = f"http://{name}:{parts.port}/{query}"
        self._following = asyncio.create_task(_follow_forever(self._live))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._following.cancel()
        try:
            with suppress(asyncio.CancelledError):
                await self._following
        finally:
            await self._server.__aexit__()

    async def serve_until(self, ended: asyncio.Event) -> None:
        """Wait for the event; raise what ended the following of the files, which only a bug can."""
        waiting = asyncio.create_task(ended.wait())
        await asyncio.wait([waiting, self._following], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._following.done():
            self._following.result()


async def _follow_forever(live: LiveIndex) -> None:
    """Keep the index up to date; what can't be read is in its notes."""
    while True:
        more = await asyncio.to_thread(live.update)
        await asyncio.sleep(0.0 if more else _POLL_SECONDS)


def create_app(live: LiveIndex, page: str, settings: LiveSettings) -> ASGIApp:
    """Return the application; somebody else has to call `live.update`."""
    routes = _Routes(live, page)
    app = Starlette(
        routes=[
            Route("/", routes.page),
            Route("/api/index", routes.index),
            Route("/api/group/{id}", routes.group),
            Route("/api/search", routes.search),
            Route("/healthz", routes.healthz),
        ]
    )
    names = {"localhost", socket.gethostname(), settings.host, *settings.allowed_hosts}
    return Gate(app, token=settings.token, names={name.lower() for name in names})


class _Routes:
    """Handlers of the routes; files are read and replies are made in threads."""

    def __init__(self, live: LiveIndex, page: str) -> None:
        self._live = live
        self._page = page
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def page(self, request: Request) -> Response:
        return HTMLResponse(self._page)

    async def healthz(self, request: Request) -> Response:
        return PlainTextResponse("ok")

    async def index(self, request: Request) -> Response:
        cursor = request.query_params.get("since", "")
        return await self._reply(request, partial(self._live.batch, cursor))

    async def group(self, request: Request) -> Response:
        identifier = request.path_params["id"]
        return await self._reply(request, lambda: row_of(self._live.group(identifier), MAX_SHOWN))

    async def search(self, request: Request) -> Response:
        text = request.query_params.get("text", "")
        after = request.query_params.get("after", "0")
        if not 0 < len(text) <= MAX_TEXT:
            return _error(422, f"text must have 1 to {MAX_TEXT} characters, got {len(text)}")
        if not (after.isascii() and after.isdigit() and len(after) < 10):
            return _error(422, f"after must be an integer ≥ 0, got {shorten(after)}")
        return await self._reply(request, partial(self._live.search, text, after=int(after)))

    async def _reply(self, request: Request, make: Callable[[], Any]) -> Response:
        packed = "gzip" in request.headers.get("accept-encoding", "")
        async with self._slots:
            try:
                body = await asyncio.to_thread(_encode, make, packed=packed)
            except GoneError as error:
                return _error(404, str(error))
        headers = {"Vary": "Accept-Encoding"}
        if body.startswith(b"\x1f\x8b"):
            headers["Content-Encoding"] = "gzip"
        return Response(body, headers=headers, media_type="application/json")


def _encode(make: Callable[[], Any], *, packed: bool) -> bytes:
    """Return a value as JSON; compressed if it is long and the client takes it so."""
    text = json.dumps(make(), allow_nan=False, separators=(",", ":")).encode("ascii")
    return gzip.compress(text, 4) if packed and len(text) > _COMPRESSED else text


class Gate:
    """Middleware that lets only reading through, only from this machine's own pages, and only
    with the token if there is one.

    Args:
        token: None requires none.
        names: lower-case host names under which the page may be opened; addresses always may.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, names: Collection[str]) -> None:
        self._app = app
        self._token = token
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        app = self._refusal(Request(scope)) or self._app
        await app(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """Return why the request is not served; the cookie and the way for a right token."""
        host = request.headers.get("host", "")
        if not self._knows(host):
            hint = "open the page by its address, or allow the name with --allow-host"
            return _error(403, f"the host {shorten(host)} is not this machine's: {hint}")
        if request.method not in ("GET", "HEAD"):
            return _error(405, f"only GET is served, got {shorten(request.method)}")
        path = request.url.path
        if path != "/" and request.headers.get("sec-fetch-site", "") in ("cross-site", "same-site"):
            return _error(403, "another site's page may not read this")
        if self._token is None or path == "/healthz":
            return None
        return self._require_token(request, self._token)

    def _knows(self, host: str) -> bool:
        """Return whether a Host header names this machine; other names may be rebound to it."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in self._names or _is_address(name)

    def _require_token(self, request: Request, token: str) -> Response | None:
        cookie = f"watch_{request.url.port or 80}"
        given = request.query_params.get(_TOKEN)
        if given is not None and _is_equal(given, token) and request.url.path == "/":
            reply = RedirectResponse("./", 303)  # the token leaves the address bar
            reply.set_cookie(cookie, token, httponly=True, samesite="lax")
            return reply
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if any(_is_equal(one, token) for one in (bearer, request.cookies.get(cookie, ""))):
            return None
        return _error(401, "open the address that `watch` has printed, with its token")


def _is_equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _error(status: int, message: str) -> Response:
    text = json.dumps({"error": message})
    return Response(text, status, media_type="application/json")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_any(host: str) -> bool:
    """Return whether a host stands for all addresses of this machine."""
    return _is_address(host) and ip_address(host).is_unspecified


class WatchProcess:
    """A process that serves the page of a run; it ends with this process, however that ends.

    It has an interpreter of its own, so that the page takes no time from the run.

    Args:
        folders: created if missing; what they hold already is left out.
        port: 0 takes a free one.
    """

    def __init__(self, folders: Sequence[Path], port: int) -> None:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        program = [sys.executable, "-m", __package__.partition(".")[0], "watch"]
        options = ["--port", str(port), "--new", "--until-input-ends"]
        self._process = subprocess.Popen(
            [*program, *map(str, folders), *options],
            stdin=subprocess.PIPE,  # ends with this process
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C ends the run first
        )

    def url(self) -> str:
        """Wait until it serves, and return its address; FixableError if it can't start."""
        assert self._process.stdout is not None
        url = self._process.stdout.readline().strip()
        if not url:
            raise FixableError("--watch: the page can't be served, for the reason above")
        return url

    def close(self) -> None:
        """End the process. Idempotent."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
        with self._process:  # closes its output
            pass
