"""A failed request is described with its status and the server's own message."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from scripted_server import serving

from reasoning_gym_environment.inference.errors import (
    describe,
    error_message,
    is_transient,
    require_ok,
)

UNKNOWN_MODEL = {"error": {"message": "The model `x` does not exist.", "code": 404}}


@asynccontextmanager
async def refusing(code: int, body: object) -> AsyncIterator[str]:
    """The URL of a server that answers every request with one status and body."""

    async def refuse(request: web.Request) -> web.Response:
        if isinstance(body, str):
            return web.Response(status=code, text=body)
        return web.json_response(body, status=code)

    async with serving([web.post("/{path:.*}", refuse)]) as url:
        yield url


async def failed_post(url: str) -> BaseException:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/generate") as response,
    ):
        with pytest.raises(aiohttp.ClientResponseError) as raised:
            await require_ok(response)
    return raised.value


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [
        (
            404,
            UNKNOWN_MODEL,
            "404 Not Found from {}: The model `x` does not exist. (set --openai.model_name to "
            "a model that the server lists at /v1/models)",
        ),
        (
            404,
            {"detail": "Not Found"},
            "404 Not Found from {} (check --openai.base_url (it ends in /v1 at most servers) and "
            "--openai.server_type)",
        ),
        (
            401,
            {"error": "Unauthorized"},
            "401 Unauthorized from {} (set OPENAI_API_KEY or --openai.api_key to a key that the "
            "server accepts)",
        ),
        (400, {"message": "no\ngood"}, "400 Bad Request from {}: no good"),
        (
            400,
            {"message": "This model's maximum context length is 4096 tokens."},
            "400 Bad Request from {}: This model's maximum context length is 4096 tokens. (lower "
            "--env.max_token_length, or start the server with a longer context)",
        ),
        (409, {"detail": [{"msg": "no", "loc": ["n"]}]}, "409 Conflict from {}: n: no"),
        (503, "loading \x1b[1m", "503 Service Unavailable from {}: loading \\x1b[1m"),
        (599, "", "599 from {}"),
    ],
)
async def test_a_refusal_is_described_on_one_line(
    code: int, body: object, said: str
) -> None:
    async with refusing(code, body) as url:
        error = await failed_post(url)
    assert describe(error) == said.format(f"{url}/generate")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (400, False),
        (401, False),
        (404, False),
        (408, True),
        (429, True),
        (500, True),
        (503, True),
    ],
)
async def test_errors_of_the_request_itself_are_not_transient(
    code: int, expected: bool
) -> None:
    async with refusing(code, "no") as url:
        assert is_transient(await failed_post(url)) is expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "You exceeded your current quota, please check your plan and billing details.",
            False,
        ),
        (
            "Rate limit reached. Please try again in 20s. Visit /account/billing to add credits",
            True,
        ),
        ("You exceeded your current quota. Please retry in 12.3s.", True),
        (
            "You exceeded your current quota, see /docs/rate-limits."
            + " Quota exceeded" * 30,
            True,
        ),
    ],
)
async def test_rate_limits_are_transient_unlike_spent_quotas(
    message: str, expected: bool
) -> None:
    async with refusing(429, {"error": {"message": message}}) as url:
        error = await failed_post(url)
    assert is_transient(error) is expected
    assert ("no quota left" in describe(error)) is not expected


async def test_a_failure_without_a_reply_is_transient() -> None:
    async with refusing(500, "") as url:
        pass
    with pytest.raises(aiohttp.ClientConnectorError) as raised:
        await failed_post(url)
    assert is_transient(raised.value)
    assert describe(raised.value).startswith(
        "ClientConnectorError: Cannot connect to host "
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"error": {"message": "No such model.", "code": 404}}', "No such model."),
        ('{"object": "error", "message": "too long"}', "too long"),
        ('{"detail": "Not Found"}', "Not Found"),
        ("<h1>Bad\n  Gateway</h1>", "<h1>Bad Gateway</h1>"),
        ("[1]", "[1]"),
        ('{"code": 3}', '{"code": 3}'),
        ("", ""),
        ("x" * 400, "x" * 299 + "…"),
    ],
)
def test_a_servers_message_is_one_short_line(body: str, words: str) -> None:
    assert error_message(body) == words
