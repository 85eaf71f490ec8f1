"""Failed requests to a server: status, the server's own message, whether a retry may help."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import aiohttp

from ..errors import ConfigurationError, FixableError
from ..util.values import escape_control_characters

CONNECT_SECONDS = 10
"""Timeout for connecting to a server."""
_QUOTA = re.compile(
    r"^(?!.*(?:(?:retry|try again) in |rate.?limit)).*"
    r"(?:exceeded your current quota|insufficient|credit balance|payment required|out of credits)",
    re.IGNORECASE,
)
SEPARATE_THOUGHT = (
    "returns thoughts in a field of their own and no token ids, so that training would see other "
    "tokens than were sampled: start it without a reasoning parser (vLLM and SGLang: without "
    "--reasoning-parser, llama.cpp: --reasoning-format none), or use vLLM 0.10.2 or newer"
)

MODEL_HINT = "set --openai.model_name to a model that the server lists at /v1/models"

NO_ROOM = "the prompt leaves no room"
"""How the reason begins for which nothing is asked: asking again would not help."""


class InferenceError(FixableError):
    """The servers returned no completions; if transient, the same request may succeed later."""

    def __init__(self, message: str, *, is_transient: bool = True) -> None:
        super().__init__(message)
        self.is_transient = is_transient


class ReplyError(Exception):
    """A server's reply is malformed or does not match the request."""


class RequestTimeoutError(FixableError):
    """A request was abandoned at its server's timeout."""


def is_transient(error: BaseException) -> bool:
    """Return whether the same request may succeed later.

    It may not after a 3xx, a 4xx other than 408 and 429, a 429 for an exhausted quota, or a 501,
    which no inference server sends while it starts.
    """
    if not isinstance(error, aiohttp.ClientResponseError):
        return not isinstance(error, InferenceError) or error.is_transient
    if error.status == HTTPStatus.TOO_MANY_REQUESTS and _QUOTA.search(error.message):
        return False
    return error.status in (408, 429) or not (
        300 <= error.status < 500 or error.status == 501
    )


def hint_for(error: aiohttp.ClientResponseError) -> str:
    """Return what the user can do about a refusal, by its status and message; else nothing."""
    key = "set OPENAI_API_KEY or --openai.api_key to a key that the server accepts"
    hints = (
        (
            {402, 403, 429},
            _QUOTA.pattern,
            "the account has no quota left; add credit, or set --openai.api_key to another "
            "account's key",
        ),
        ({401, 403}, "", key),
        ({400}, r"api[ _-]?key|unauthori[sz]ed", key),
        (
            {400, 413, 422},
            r"context|max(imum)?[_ -](completion_|model_|new_)?(tokens|len|length)|too long",
            "lower --env.max_token_length, or start the server with a longer context",
        ),
        (
            {400, 404, 422},
            r"\bmodels?\b",
            MODEL_HINT,
        ),
        (
            {301, 302, 303, 307, 308},
            "",
            "set --openai.base_url to the server's own address: redirects are not followed",
        ),
        (
            {404, 405, 501},
            "",
            "check --openai.base_url (it ends in /v1 at most servers) and --openai.server_type",
        ),
    )
    message = error_message(error.message)
    for statuses, words, hint in hints:
        if error.status in statuses and re.search(words, message, re.IGNORECASE):
            return hint
    return ""


def refusal(
    url: str | None, error: aiohttp.ClientResponseError, hint: str = ""
) -> ConfigurationError:
    """Return what a run can't start with, since a server refuses its requests for good.

    Args:
        hint: what to do; by default what the refusal tells.
    """
    hint = (
        hint or hint_for(error) or "if it names a parameter, check --openai.server_type"
    )
    return ConfigurationError(
        f"the inference server at {url} refuses requests with status {error.status} "
        f"({error.message.rstrip('.')}): {hint}"
    )


def describe(error: BaseException) -> str:
    """Return what failed on one line: status, address and the server's message if it replied."""
    if isinstance(error, aiohttp.ClientResponseError):
        phrase = (
            HTTPStatus(error.status).phrase if error.status in set(HTTPStatus) else ""
        )
        message = error_message(error.message)
        hint = hint_for(error)
        return (
            f"{error.status} {phrase}".rstrip()
            + f" from {error.request_info.real_url}"
            + (f": {message}" if message and message != phrase else "")
            + (f" ({hint})" if hint else "")
        )
    if isinstance(error, FixableError):
        return str(error)
    if isinstance(error, asyncio.TimeoutError):
        return f"no reply in time ({CONNECT_SECONDS} s to connect, --openai.timeout in total)"
    return _one_line(f"{type(error).__name__}: {error}")


def error_message(body: str) -> str:
    """Extract the message from an error response's body as one printable line.

    Example:
        >>> error_message('{"error": {"message": "The model `x` does not exist.", "code": 404}}')
        'The model `x` does not exist.'
        >>> error_message("<html><title>502 Bad gateway</title>…</html>")
        'a web page: 502 Bad gateway'
    """
    if re.match(r"\s*<(!doctype\s+)?html", body, re.IGNORECASE):
        title = re.search(r"<title>([^<]*)", body, re.IGNORECASE)
        return _one_line(f"a web page: {title[1]}" if title else "a web page")
    try:
        return _one_line(_message(body) or body)
    except RecursionError:
        return _one_line(body)


def _message(part: Any) -> str | None:
    """Return the innermost message of a reply: servers nest it, and proxies pass it on as text."""
    if isinstance(part, str):
        with suppress(ValueError):
            inner = json.loads(part)
            return _message(inner) if isinstance(inner, dict | list) else part
        return part
    if isinstance(part, list):
        return "; ".join(text for one in part if (text := _message(one)))
    if not isinstance(part, dict):
        return None
    # OpenRouter has the provider's own reply in `raw`
    raw = (
        part["metadata"].get("raw") if isinstance(part.get("metadata"), dict) else None
    )
    inner = next(
        filter(None, (raw, *map(part.get, ("error", "message", "detail", "msg")))), None
    )
    text = _message(inner)
    place = part.get("loc")
    return (
        f"{'.'.join(map(str, place))}: {text}"
        if text and isinstance(place, list)
        else text
    )


async def require_ok(response: aiohttp.ClientResponse) -> None:
    """Raise aiohttp.ClientResponseError with the server's own message if the status is an error.

    So is a redirect: the request and its key go to the configured address alone.
    """
    if response.status >= 300:
        message = error_message(await start_of_body(response)) or str(response.reason)
        if response.status < 400:
            message = _one_line(
                f"it redirects to {response.headers.get('Location', 'nowhere')}"
            )
        raise aiohttp.ClientResponseError(
            response.request_info,
            response.history,
            status=response.status,
            message=message,
            headers=response.headers,
        )


async def start_of_body(response: aiohttp.ClientResponse) -> str:
    """Return at most 64 KiB of a reply; what is not UTF-8 in it is replaced."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) >= 2**16:
            break
    return body[: 2**16].decode(errors="replace")


def _one_line(text: str) -> str:
    line = escape_control_characters(" ".join(text.split())[:301])
    return line if len(line) <= 300 else f"{line[:299]}…"
