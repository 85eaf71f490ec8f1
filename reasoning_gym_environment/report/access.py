"""Who may read the page of running runs.

The page is for those who may read it: the loopback address needs no token, and a browser's page of
another site can't read from it, since the Host header has to name this machine. Readers write
nothing but notes.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Collection
from ipaddress import ip_address

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..util.values import shorten

HTTP_PORT = 80
"""The port of a Host header that names none."""

NOTE_PATH = "/api/note"
"""The only path that takes a POST."""

SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""No other page may embed or read the page, and nothing keeps or passes on its address."""


class LocalOnlyMiddleware:
    """Middleware that lets only this machine's own pages read, with the token if there is one.

    Args:
        names: lower-case host names under which the page may be opened; addresses always may.
    """

    def __init__(
        self, app: ASGIApp, *, token: str | None, names: Collection[str]
    ) -> None:
        self._app = app
        self._token = token
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        app = self._refusal(Request(scope)) or self._app
        await app(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """Return why the request is not served; the cookie and the way for a right token."""
        path = request.scope["path"]
        # Nothing is read from `request.url`, which starlette before 1.0.1 builds from this header.
        host = request.headers.get("host", "")
        host_parts = re.fullmatch(
            r"(\[[\da-f:.]+\]|[\w.-]+)(?::(\d{1,5}))?", host.lower(), re.ASCII
        )
        # Another site's name may be rebound to this machine's address.
        if not host_parts or not self._is_own_name(host_parts[1].strip("[]")):
            hint = "open the page by its address, or allow the name with --allow-host"
            return error_reply(
                403, f"the host {shorten(host)} is not this machine's: {hint}"
            )
        is_note = request.method == "POST" and path == NOTE_PATH
        if request.method not in ("GET", "HEAD") and not is_note:
            return error_reply(
                405, f"only GET is served, got {shorten(request.method)}"
            )
        if is_note and not _is_from_this_page(request, host):
            return error_reply(403, "only this page's own script may write notes")
        # Links from other sites may open the page itself.
        site = request.headers.get("sec-fetch-site", "")
        if path != "/" and site in ("cross-site", "same-site"):
            return error_reply(403, "another site's page may not read this")
        if self._token is None or path == "/healthz":
            return None
        # Cookies don't tell ports apart, so each port's has a name of its own.
        cookie = f"watch_{host_parts[2] or HTTP_PORT}"
        return self._token_refusal(request, self._token, cookie)

    def _is_own_name(self, name: str) -> bool:
        return name in self._names or is_address(name)

    def _token_refusal(
        self, request: Request, token: str, cookie: str
    ) -> Response | None:
        in_address = request.query_params.get("token")
        is_page = request.scope["path"] == "/"
        if in_address is not None and _is_equal(in_address, token) and is_page:
            reply = RedirectResponse("./", 303)  # the token leaves the address bar
            reply.set_cookie(cookie, token, httponly=True, samesite="lax")
            return reply
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        in_cookie = request.cookies.get(cookie, "")
        if _is_equal(bearer, token) or _is_equal(in_cookie, token):
            return None
        return error_reply(
            401, "open the address that `watch` has printed, with its token"
        )


def _is_from_this_page(request: Request, host: str) -> bool:
    """Return whether no other site can have sent a request.

    A browser names the origin with each POST, and sends JSON to another site only after a
    preflight, which is never granted here.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    origin = request.headers.get("origin")
    same_origin = origin is None or origin.partition("://")[2] == host
    return kind == "application/json" and same_origin


def error_reply(status: int, message: str) -> Response:
    text = json.dumps({"error": message})
    return Response(text, status, media_type="application/json")


def is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_equal(received: str, token: str) -> bool:
    """Compare in constant time, so that replies don't tell how much is right."""
    return hmac.compare_digest(received.encode("utf-8", "replace"), token.encode())
