"""The page of running runs over HTTP: read-only, for those who may read it."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import math
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from ..service.server import HttpServer
from ..util.log_throttle import THROTTLE, throttled
from ..util.values import describe_error, shorten
from .access import NOTE_PATH, LocalOnlyMiddleware, error_reply, is_address
from .live import GoneError, LiveIndex
from .page import row_of

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)

DRAIN_SECONDS = 2
"""How long replies may take to end when the server closes."""

CONCURRENT_REPLIES = 4
"""A reply may take as much memory as the whole index."""

POLL_SECONDS = 2.0
"""How often a page asks what is new."""

LONGEST_TEXT = 1_000_000
"""Characters of a text on the page; of a longer one, the middle is left out."""

LONGEST_SEARCH = 1000
"""Characters of a text to search for."""

LARGEST_COUNT_DIGITS = 9

LARGEST_NOTE = 2**15
"""Bytes of a request that stores a note."""

SMALLEST_COMPRESSED = 1024
"""Bytes of a reply; a shorter one fits into one packet anyway."""

COMPRESSION_LEVEL = 4


class _NoteRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reader's note on a rollout or a step of a run."""

    run: str
    about: str
    text: str


class LiveServer:
    """The page, HTML that reads from `api/`, on its `url` while entered; it follows the files.

    Args:
        token: that readers must have; None requires none.
        allowed_hosts: names of this machine, besides its own and its addresses, that may stand in
            the address of the page: that of a proxy, for instance.
    """

    def __init__(
        self,
        live: LiveIndex,
        page: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        allowed_hosts: Collection[str] = (),
    ) -> None:
        self._live = live
        self._page = page
        self._host = host
        self._token = token
        self._asked = -math.inf  # when a page has asked for what is new
        self._slots = asyncio.Semaphore(CONCURRENT_REPLIES)
        routes = [
            Route("/", self._show_page),
            Route("/api/index", self._index),
            Route("/api/group/{id}", self._group),
            Route("/api/search", self._search),
            Route("/api/comparison", self._comparison),
            Route(NOTE_PATH, self._note, methods=["POST"]),
            Route("/healthz", self._healthz),
        ]
        names = {"localhost", socket.gethostname(), host, *allowed_hosts}
        app = LocalOnlyMiddleware(
            Starlette(routes=routes),
            token=token,
            names={name.lower() for name in names},
        )
        self._server = HttpServer(
            app,
            host=host,
            port=port,
            drain=DRAIN_SECONDS,
            lifespan=False,
            health_path="/healthz",
        )

    async def __aenter__(self) -> LiveServer:
        await self._server.__aenter__()
        parts = urlsplit(self._server.url)
        is_any = is_address(self._host) and ip_address(self._host).is_unspecified
        name = socket.gethostname() if is_any else parts.netloc.rpartition(":")[0]
        query = f"?{urlencode({'token': self._token})}" if self._token else ""
        self.url = f"http://{name}:{parts.port}/{query}"

        async def follow() -> None:
            """Keep the index up to date; what can't be read is in its notes."""
            while True:
                has_new = False
                try:
                    has_new = await asyncio.to_thread(self._live.update)
                    self._live.failure = ""
                except Exception as error:  # noqa: BLE001 - the page stays, and says it
                    failure = describe_error(error)
                    message = "New groups can't be read: %s"
                    logger.error(message, failure, extra=throttled())
                    self._live.failure = failure
                await asyncio.sleep(0.0 if has_new else self._live.look_seconds)

        self._following = asyncio.create_task(follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._following.cancel()
        try:
            with suppress(asyncio.CancelledError):
                await self._following
        finally:
            await self._server.__aexit__()

    async def say_ended(self, report: str) -> None:
        """Tell open pages that the run and this server end, and where a report is, if one is."""
        # A page that is open may skip one question, for a late reply.
        is_open = time.monotonic() - self._asked < 2.5 * POLL_SECONDS
        if is_open:
            await asyncio.sleep(2 * self._live.look_seconds)  # what came last is read
            where = (
                report or "what `reasoning-gym-environment report` makes of the dumps"
            )
            self._live.ended = f"The run has ended. Its texts are in {where}."
            await asyncio.sleep(1.1 * POLL_SECONDS)  # each page asks once more

    async def _show_page(self, request: Request) -> Response:
        return HTMLResponse(self._page)

    async def _healthz(self, request: Request) -> Response:
        return PlainTextResponse("ok")

    async def _index(self, request: Request) -> Response:
        cursor = request.query_params.get("since", "")
        self._asked = time.monotonic()
        return await self._reply(request, partial(self._live.batch, cursor))

    async def _group(self, request: Request) -> Response:
        identifier = request.path_params["id"]
        return await self._reply(
            request, lambda: row_of(self._live.group(identifier), LONGEST_TEXT)
        )

    async def _search(self, request: Request) -> Response:
        text = request.query_params.get("text", "")
        after = request.query_params.get("after", "0")
        if not 0 < len(text) <= LONGEST_SEARCH:
            limits = f"1 to {LONGEST_SEARCH} characters"
            return error_reply(422, f"text must have {limits}, got {len(text)}")
        is_number = after.isascii() and after.isdigit()
        if not is_number or len(after) > LARGEST_COUNT_DIGITS:
            return error_reply(
                422, f"after must be an integer ≥ 0, got {shorten(after)}"
            )
        return await self._reply(
            request, partial(self._live.search, text, after=int(after))
        )

    async def _comparison(self, request: Request) -> Response:
        before = request.query_params.get("before", "")
        after = request.query_params.get("after", "")
        return await self._reply(request, partial(self._live.compare, before, after))

    async def _note(self, request: Request) -> Response:
        """Store a note; `LocalOnlyMiddleware` has refused what other sites send."""
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_NOTE:
                return error_reply(413, f"a note has at most {LARGEST_NOTE} bytes")
        try:
            note = msgspec.json.decode(bytes(body), type=_NoteRequest)
            await asyncio.to_thread(self._live.note, note.run, note.about, note.text)
        except ValueError as error:
            return error_reply(422, str(error))
        except GoneError as error:
            return error_reply(404, str(error))
        except OSError as error:
            return error_reply(507, f"the note can't be written: {error.strerror}")
        return Response(status_code=204)

    async def _reply(self, request: Request, make: Callable[[], Any]) -> Response:
        """Read files and make the reply in a thread; compress it if it is long."""

        def encode() -> bytes:
            text = json.dumps(make(), allow_nan=False, separators=(",", ":")).encode(
                "ascii"
            )
            if packed and len(text) > SMALLEST_COMPRESSED:
                return gzip.compress(text, COMPRESSION_LEVEL)
            return text

        packed = "gzip" in request.headers.get("accept-encoding", "")
        async with self._slots:
            try:
                body = await asyncio.to_thread(encode)
            except GoneError as error:
                return error_reply(404, str(error))
        headers = {"Vary": "Accept-Encoding"}
        if body.startswith(b"\x1f\x8b"):
            headers["Content-Encoding"] = "gzip"
        return Response(body, headers=headers, media_type="application/json")
