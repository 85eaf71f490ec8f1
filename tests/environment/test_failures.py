"""What went wrong with a request is said with its status and in the server's own words."""

import aiohttp
import openai
import pytest
from aiohttp import web
from tenacity import AsyncRetrying, RetryError, stop_after_attempt

from reasoning_gym_environment.inference.errors import (
    heals,
    own_words,
    require_ok,
    root_cause,
    sentence,
    status,
)

pytestmark = pytest.mark.processes  # the openai client asks `uname` for the machine's name

UNKNOWN_MODEL = {"error": {"message": "The model `x` does not exist.", "code": 404}}


class Refusing:
    """A server that answers every request with one status and body."""

    def __init__(self, code: int, body: object) -> None:
        self._code = code
        self._body = body

    async def __aenter__(self) -> str:
        app = web.Application()
        app.add_routes([web.post("/{path:.*}", self._refuse)])
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return "http://{}:{}".format(*self._runner.addresses[0])

    async def __aexit__(self, *exc_info: object) -> None:
        await self._runner.cleanup()

    async def _refuse(self, request: web.Request) -> web.Response:
        if isinstance(self._body, str):
            return web.Response(status=self._code, text=self._body)
        return web.json_response(self._body, status=self._code)


async def failed_chat(url: str) -> BaseException:
    """What Atropos's retries raise around the openai client's error."""
    async with openai.AsyncClient(base_url=f"{url}/v1", api_key="x", max_retries=0) as client:

        async def ask() -> object:
            return await client.chat.completions.create(model="x", messages=[])

        with pytest.raises(RetryError) as raised:
            await AsyncRetrying(stop=stop_after_attempt(2))(ask)
    return raised.value


async def failed_post(url: str) -> BaseException:
    async with aiohttp.ClientSession() as session, session.post(f"{url}/generate") as response:
        with pytest.raises(aiohttp.ClientResponseError) as raised:
            await require_ok(response)
    return raised.value


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [
        (
            404,
            UNKNOWN_MODEL,
            "404 Not Found from {}: The model `x` does not exist. (check --openai.model_name, "
            "--openai.base_url and --openai.server_type)",
        ),
        (
            404,
            {"detail": "Not Found"},
            "404 Not Found from {} (check --openai.model_name, --openai.base_url and "
            "--openai.server_type)",
        ),
        (
            401,
            {"error": "Unauthorized"},
            "401 Unauthorized from {} (set --openai.api_key to a key that the server takes)",
        ),
        (400, {"message": "too\nlong"}, "400 Bad Request from {}: too long"),
        (409, {"detail": [{"msg": "no"}]}, "409 Conflict from {}: [{{'msg': 'no'}}]"),
        (503, "loading \x1b[1m", "503 Service Unavailable from {}: loading \\x1b[1m"),
        (599, "", "599 from {}"),
    ],
)
async def test_a_refusal_is_one_sentence_whatever_the_client(
    code: int, body: object, said: str
) -> None:
    async with Refusing(code, body) as url:
        chat, post = await failed_chat(url), await failed_post(url)
    assert status(chat) == status(post) == code
    assert sentence(chat) == said.format(f"{url}/v1/chat/completions")
    assert sentence(post) == said.format(f"{url}/generate")


@pytest.mark.parametrize(
    ("code", "expected"),
    [(400, False), (401, False), (404, False), (408, True), (429, True), (500, True), (503, True)],
)
async def test_what_the_request_itself_is_to_blame_for_does_not_heal(
    code: int, expected: bool
) -> None:
    async with Refusing(code, "no") as url:
        assert heals(await failed_post(url)) is expected
        assert heals(await failed_chat(url)) is expected


async def test_without_a_reply_there_is_hope() -> None:
    async with Refusing(500, "") as url:
        pass
    error = await failed_chat(url)
    assert isinstance(root_cause(error), openai.APIConnectionError)
    assert status(error) is None
    assert heals(error)
    assert sentence(error).startswith("APIConnectionError: Connection error. (")


def test_a_long_reply_is_shortened_to_a_line() -> None:
    assert len(own_words("so\n" * 1000)) == 300
    assert own_words("so\n" * 1000).endswith("…")


def test_a_reply_without_a_message_is_shown_as_it_is() -> None:
    assert own_words('{"code": 3}') == '{"code": 3}'
