"""Why a request to a server failed: its status, the server's own words, whether it may heal."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

import aiohttp
import openai
from tenacity import RetryError

from ..errors import FixableError
from ..util.text import escape_control_characters

_WORDS = 300
"""Characters of a server's reply that are shown."""
CONNECT_SECONDS = 10
"""How long connecting to a server may take."""
_ASK_AGAIN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
WAYS_OUT: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "set --openai.api_key to a key that the server takes",
    HTTPStatus.FORBIDDEN: "set --openai.api_key to a key that the server takes",
    HTTPStatus.NOT_FOUND: "check --openai.model_name, --openai.base_url and --openai.server_type",
}
"""By the status of a refusal."""


def root_cause(error: BaseException) -> BaseException:
    """Find what failed beneath Atropos's nested retries."""
    while isinstance(error, RetryError):
        inner = error.last_attempt.exception()
        if inner is None:
            break
        error = inner
    return error


def status(error: BaseException) -> int | None:
    """Give the HTTP status of a server's refusal; None where there was no reply or no refusal."""
    cause = root_cause(error)
    if isinstance(cause, openai.APIStatusError):
        return cause.status_code
    return cause.status if isinstance(cause, aiohttp.ClientResponseError) else None


def heals(error: BaseException) -> bool:
    """Say whether the same request may succeed later: not after a 4xx, but for 408 and 429."""
    code = status(error)
    return code is None or code in _ASK_AGAIN or not 400 <= code < 500


def sentence(error: BaseException) -> str:
    """Say what failed on one line: status, address and the server's own words if it replied."""
    cause = root_cause(error)
    if isinstance(cause, openai.APIStatusError):
        return _refusal(cause.status_code, str(cause.request.url), cause.response.text)
    if isinstance(cause, aiohttp.ClientResponseError):
        return _refusal(cause.status, str(cause.request_info.real_url), cause.message)
    if isinstance(cause, FixableError):
        return str(cause)
    if isinstance(cause, asyncio.TimeoutError | openai.APITimeoutError):
        return f"no reply in time ({CONNECT_SECONDS} s to connect, --openai.timeout for the whole)"
    beneath = cause.__cause__ if isinstance(cause, openai.APIConnectionError) else None
    return _one_line(f"{type(cause).__name__}: {cause}" + (f" ({beneath})" if beneath else ""))


def _refusal(code: int, url: str, body: str) -> str:
    phrase = HTTPStatus(code).phrase if code in set(HTTPStatus) else ""
    said, way_out = own_words(body), WAYS_OUT.get(code)
    words = f": {said}" if said and said != phrase else ""
    return (
        f"{code} {phrase}".rstrip() + f" from {url}{words}" + (f" ({way_out})" if way_out else "")
    )


def own_words(body: str) -> str:
    """Take the message out of the body of a refusal; one line, safe to print.

    Example:
        >>> own_words('{"error": {"message": "The model `x` does not exist.", "code": 404}}')
        'The model `x` does not exist.'
        >>> own_words("<h1>Bad gateway</h1>")
        '<h1>Bad gateway</h1>'
    """
    try:
        said: Any = json.loads(body)
    except (RecursionError, ValueError):
        said = body
    while isinstance(said, dict):
        said = next((said[key] for key in ("error", "message", "detail") if key in said), body)
    return _one_line(str(said))


async def require_ok(response: aiohttp.ClientResponse) -> None:
    """Raises aiohttp.ClientResponseError with the server's own words when it refused."""
    if response.status >= 400:
        raise aiohttp.ClientResponseError(
            response.request_info,
            response.history,
            status=response.status,
            message=own_words(await response.text()) or str(response.reason),
        )


def _one_line(text: str) -> str:
    line = escape_control_characters(" ".join(text.split())[: _WORDS + 1])
    return line if len(line) <= _WORDS else f"{line[: _WORDS - 1]}…"


class InferenceError(FixableError):
    """An inference server did not give the completions it was asked for.

    Attributes:
        heals: whether the same request may succeed later.
    """

    def __init__(self, message: str, *, heals: bool = True) -> None:
        super().__init__(message)
        self.heals = heals
