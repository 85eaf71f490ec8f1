"""Whatever bytes a server sends, its request fails in a sentence, and nothing grows without end."""

import asyncio
import gzip
import json
import tracemalloc
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from asked_completions import REQUEST
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from scripted_server import http, replying

from reasoning_gym_environment.atropos.api_client import ApiClient, ApiRefusedError
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference._negotiation import Requirements, probe
from reasoning_gym_environment.inference.errors import (
    ReplyError,
    describe,
    is_transient,
)
from reasoning_gym_environment.inference.servers import ServerClient
from reasoning_gym_environment.util.outages import UnreachableError

NOT_UTF8 = "<h1>Passerelle d\u00e9faillante</h1>".encode("latin-1")
ENDLESS_HEAD = "HTTP/1.1 {}\r\nConnection: close\r\n\r\n"
DEEP = b"[" * 60_000


def client(kind: str, url: str) -> ServerClient:
    config = APIServerConfig(
        server_type=kind, base_url=f"{url}/v1", model_name="m", timeout=20
    )
    return ServerClient(config)


async def failure(kind: str, *reply: bytes, endless: bool = False) -> Exception:
    async with replying(*reply, endless=endless) as url:
        asked = client(kind, url)
        [error] = await asyncio.gather(
            asyncio.wait_for(asked.sample(REQUEST), timeout=30), return_exceptions=True
        )
        await asked.close()
    assert isinstance(error, Exception), error
    return error


BROKEN: dict[str, tuple[bytes, str]] = {
    "not UTF-8": (
        http(NOT_UTF8, "502 Bad Gateway"),
        "<h1>Passerelle d\ufffdfaillante</h1>",
    ),
    "a charset that is no text encoding": (
        http(b"00", "502 Bad Gateway", "Content-Type: text/html; charset=hex\r\n"),
        "502 Bad Gateway from ",
    ),
    "a deep error": (
        http(DEEP, "500 Internal Server Error"),
        "500 Internal Server Error from ",
    ),
    "a deep reply": (http(DEEP), "is not valid JSON"),
    "a long header": (http(headers=f"X-Long: {'x' * 70_000}\r\n"), "is invalid: "),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "is invalid: "),
    "compressed": (
        http(gzip.compress(b"{}"), headers="Content-Encoding: gzip\r\n"),
        "has the encoding 'gzip'",
    ),
}


@pytest.mark.parametrize("kind", ["openai", "vllm"])
@pytest.mark.parametrize("case", BROKEN)
async def test_a_broken_reply_is_a_transient_failure_in_a_sentence(
    kind: str, case: str
) -> None:
    reply, said = BROKEN[case]
    error = await failure(kind, reply)
    assert isinstance(error, aiohttp.ClientResponseError | ReplyError)
    assert is_transient(error)
    assert said in describe(error)
    assert len(describe(error)) < 600


async def test_a_choice_that_is_no_object_is_a_broken_reply() -> None:
    async with replying(http(b'{"choices": [null]}')) as url:
        asked = client("openai", url)
        with pytest.raises(ReplyError, match="it has no choices"):
            await asked.reply("/v1/completions", {"n": 1})
        await asked.close()


@pytest.mark.parametrize(
    ("status", "most"),
    [("200 OK", 80_000_000), ("500 Internal Server Error", 5_000_000)],
)
async def test_a_reply_that_never_ends_is_given_up(status: str, most: int) -> None:
    head = ENDLESS_HEAD.format(status).encode()
    tracemalloc.start()
    error = await failure("openai", head, b"x" * 65_536, endless=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert is_transient(error)
    assert peak < most


async def test_a_reply_may_be_as_long_as_its_tokens() -> None:
    reply = json.dumps(
        {"choices": [{"message": {"content": "x" * 20_000_000}}]}
    ).encode()
    async with replying(http(reply)) as url:
        asked = client("openai", url)
        with pytest.raises(ReplyError, match="more than 16791552 bytes"):
            await asked.sample(REQUEST)
        [sample] = await asked.sample(replace(REQUEST, n=1, max_tokens=8000))
        await asked.close()
    assert len(sample[0]) == 20_000_000


async def test_a_redirect_is_refused_with_its_target() -> None:
    async with replying(http()) as other:
        redirect = http(b"", "307 Temporary Redirect", f"Location: {other}/v1/x\r\n")
        error = await failure("openai", redirect)
    assert not is_transient(error)
    assert (
        f"it redirects to {other}/v1/x (set --openai.base_url to the server's own"
        in describe(error)
    )


HUGE = 10**400
CHOICE = {
    "finish_reason": "length",
    "token_ids": [5],
    "prompt_token_ids": [5, 6, 7],
    "text": "",
}


def completion(logprob: Any) -> bytes:
    logprobs = {"token_logprobs": [logprob], "top_logprobs": [{"": logprob}]}
    reply = {"choices": [{**CHOICE, "logprobs": logprobs}], "tokens": 5}
    return json.dumps(reply).encode()


@pytest.mark.parametrize(
    "body", [completion(HUGE), completion(-1.0), b'{"choices": [[]]}', b"5"]
)
async def test_an_odd_reply_at_the_start_is_used_or_refused_in_a_sentence(
    body: bytes,
) -> None:
    request = replace(REQUEST, n=1, max_tokens=1, candidates=1)
    needs = Requirements(
        request=request, text_ids=(1, 2), length_limit=10, sampling=None
    )
    async with replying(http(body)) as url:
        asked = client("vllm", url)
        probing = asyncio.wait_for(probe(asked, needs), timeout=20)
        [found] = await asyncio.gather(probing, return_exceptions=True)
        await asked.close()
    if isinstance(found, BaseException):
        assert isinstance(found, ConfigurationError)
        assert "unusable" in str(found)
    else:
        assert found.text_ids is None


@pytest.mark.parametrize(
    "case", ["not UTF-8", "a deep error", "a deep reply", "a long header"]
)
async def test_a_broken_reply_of_the_trainer_api_is_retried_until_patience_ends(
    case: str,
) -> None:
    async with replying(BROKEN[case][0]) as url:
        api = ApiClient(url)
        api.patience = 0.5
        with pytest.raises(UnreachableError, match=r"has not answered for 0\.5 s"):
            await api.request("GET", "/info")


async def test_a_refusal_of_the_trainer_api_that_is_not_utf8_is_shown() -> None:
    async with replying(http(NOT_UTF8, "413 Too Large")) as url:
        with pytest.raises(ApiRefusedError, match="413 Too Large: <h1>Passerelle"):
            await ApiClient(url).request("GET", "/info")
