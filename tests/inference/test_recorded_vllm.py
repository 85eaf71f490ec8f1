"""A contract: what a real vLLM 0.32 answered to our requests is still read as what it was.

`tests/real/record.py` has recorded it. A request that is no longer the recorded one is refused.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference.client import KNOWN_TEXT
from reasoning_gym_environment.inference.negotiation import Needs, examine, objection
from reasoning_gym_environment.inference.requests import Ask, ReplyError, SamplingParams, read
from reasoning_gym_environment.inference.servers import ChatServer, TokenClient, VllmServer

pytestmark = pytest.mark.processes  # OpenAI's client asks for the system's name

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings"
CLIENTS = pytest.mark.parametrize("client", [VllmServer, ChatServer])
END_OF_TURN = 2


def recording(name: str = "processed") -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((RECORDINGS / f"vllm-0.32-{name}.json").read_text())
    return loaded


class RecordedServer:
    """Answers the recorded requests as the real server did, and no others."""

    def __init__(self, exchanges: list[dict[str, Any]]) -> None:
        self._exchanges = exchanges

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        asked = {"method": request.method, "path": request.path, "body": body}
        for exchange in self._exchanges:
            if {**exchange, **asked} == exchange:
                return web.json_response(exchange["reply"], status=exchange["status"])
        return web.json_response({"detail": f"not recorded: {asked}"}, status=501)


@asynccontextmanager
async def replayed(
    client: type[TokenClient], name: str = "processed", **changes: Any
) -> AsyncIterator[Any]:
    """A client of a server that plays the recording."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", RecordedServer(recording(name)["exchanges"]).answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = "http://{}:{}/v1".format(*runner.addresses[0])
    settings = {"model_name": recording()["ask"]["model"], "api_key": "x", **changes}
    server: Any = client(APIServerConfig(base_url=url, **settings))
    try:
        yield server
    finally:
        if client is ChatServer:
            await server.openai.close()
        await runner.cleanup()


def needs(**changes: Any) -> Needs:
    """What the recorded run needed of the server."""
    recorded = recording()
    ask = recorded["ask"]
    whole = Ask(**{**ask, "prompt": tuple(ask["prompt"]), "stops": frozenset(ask["stops"])})
    sampling = SamplingParams(temperature=0.7, top_p=1.0, split="train")
    text_ids = tuple(recorded["text_ids"])
    found = Needs(ask=whole, text=KNOWN_TEXT, text_ids=text_ids, max_length=512, sampling=sampling)
    return replace(found, **changes)


def group_ask() -> Ask:
    return replace(needs().ask, n=3, max_tokens=40, temperature=0.7, candidates=0)


@CLIENTS
async def test_the_start_finds_out_what_the_server_gives(client: type[TokenClient]) -> None:
    async with replayed(client) as server:
        found = await examine(server, needs())
    assert found.dialect is client.dialects[0]
    assert found.text_ids == needs().text_ids
    assert found.context == 1024
    assert found.raw is False
    assert objection(found, needs()) is None


@CLIENTS
async def test_raw_logprobs_are_known_and_an_objection(client: type[TokenClient]) -> None:
    async with replayed(client, "raw") as server:
        found = await examine(server, needs())
    assert found.raw is True
    assert objection(found, needs()) == (
        f"the inference server at {found.url} gives raw logprobs, those before temperature and "
        "top_p, so that importance ratios at temperature 0.7 and top_p 1 would be wrong: start it "
        "with `vllm serve --logprobs-mode processed_logprobs`, or set --env.temperature 1 "
        "--env.top_p 1"
    )
    at_one = SamplingParams(temperature=1.0, top_p=1.0, split="train")
    assert objection(found, needs(sampling=at_one)) is None
    assert objection(found, needs(sampling=None)) is None


@CLIENTS
@pytest.mark.parametrize("name", ["processed", "raw"])
async def test_a_group_has_the_servers_tokens_and_logprobs(
    client: type[TokenClient], name: str
) -> None:
    async with replayed(client, name) as server:
        reply = await server.ask(server.dialect, group_ask())
        samples = read(server.dialect, reply, group_ask())
    assert len(samples) == 3
    for sample, choice in zip(samples, reply["choices"], strict=True):
        assert sample.tokens == choice["token_ids"]
        assert len(sample.logprobs) == len(sample.tokens) <= 40
        assert all(logprob <= 0 for logprob in sample.logprobs)
        assert (sample.tokens[-1] == END_OF_TURN) == (sample.finish_reason == "stop")


def shorten_ids(choice: dict[str, Any], reply: dict[str, Any]) -> None:
    choice["token_ids"] = choice["token_ids"][:-1]


def drop_ids(choice: dict[str, Any], reply: dict[str, Any]) -> None:
    choice["token_ids"] = None


def drop_logprobs(choice: dict[str, Any], reply: dict[str, Any]) -> None:
    choice["logprobs"] = None


def change_prompt(choice: dict[str, Any], reply: dict[str, Any]) -> None:
    holder = choice if "prompt_token_ids" in choice else reply
    holder["prompt_token_ids"] = [5, *holder["prompt_token_ids"][1:]]


def leave_vocabulary(choice: dict[str, Any], reply: dict[str, Any]) -> None:
    choice["token_ids"][0] = 49_152


def make_text(choice: dict[str, Any], reply: dict[str, Any]) -> None:
    choice["token_ids"][0] = "17"


def abort(choice: dict[str, Any], reply: dict[str, Any]) -> None:
    choice["finish_reason"] = "abort"


@CLIENTS
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (shorten_ids, "token ids came with"),
        (drop_ids, "can't be read"),
        (drop_logprobs, "can't be read"),
        (change_prompt, "isn't ours of 38, from token 0 on"),
        (leave_vocabulary, "49152 is no token id of a vocabulary of 49152"),
        (make_text, "'17' is no token id"),
        (abort, "a completion ended with 'abort'"),
    ],
)
async def test_a_reply_that_is_half_of_it_is_refused(
    client: type[TokenClient], spoil: Any, said: str
) -> None:
    async with replayed(client) as server:
        reply = await server.ask(server.dialect, group_ask())
    spoil(reply["choices"][1], reply)
    with pytest.raises(ReplyError, match=said):
        read(client.dialects[0], reply, group_ask())


@pytest.mark.parametrize("logprob", [0.1, float("nan"), float("-inf"), None, "-0.5", True])
async def test_what_is_no_logprob_is_refused(logprob: Any) -> None:
    async with replayed(VllmServer) as server:
        reply = await server.ask(server.dialect, group_ask())
    reply["choices"][0]["logprobs"]["token_logprobs"][3] = logprob
    with pytest.raises(ReplyError, match="is no logprob"):
        read(server.dialect, reply, group_ask())


async def test_a_logprob_that_is_rounded_above_0_is_0() -> None:
    async with replayed(VllmServer) as server:
        reply = await server.ask(server.dialect, group_ask())
    reply["choices"][0]["logprobs"]["token_logprobs"][3] = 1e-6
    assert read(server.dialect, reply, group_ask())[0].logprobs[3] == 0.0


@CLIENTS
async def test_an_unknown_model_is_said_in_the_servers_words(client: type[TokenClient]) -> None:
    async with replayed(client, model_name="unknown") as server:
        with pytest.raises(ConfigurationError) as raised:
            await examine(server, needs())
    assert str(raised.value) == (
        f"the inference server at {server.config.base_url} refuses requests with status 404 (The "
        "model `unknown` does not exist. Valid aliases: <path>): check --openai.model_name, "
        "--openai.base_url and --openai.server_type"
    )


@CLIENTS
async def test_more_tokens_than_the_context_are_refused(client: type[TokenClient]) -> None:
    async with replayed(client) as server:
        with pytest.raises(aiohttp.ClientResponseError) as raised:
            await server.ask(server.dialect, replace(group_ask(), max_tokens=5000))
    assert raised.value.status == 400
    assert "cannot be greater than max_model_len=1024" in raised.value.message


async def test_a_context_below_the_row_length_is_an_objection() -> None:
    async with replayed(VllmServer) as server:
        found = await examine(server, needs())
    assert objection(found, needs(max_length=2048)) == (
        f"the inference server at {found.url} takes 1024 tokens and max_token_length is 2048: "
        "lower --env.max_token_length, or start the server with a longer context"
    )


async def test_another_tokenizer_is_an_objection() -> None:
    async with replayed(VllmServer) as server:
        found = await examine(server, needs(text_ids=(1, 2, 3)))
    assert objection(found, needs(text_ids=(1, 2, 3))) == (
        f"the inference server at {found.url} has another tokenizer: its token ids of a text begin "
        "[48762, 216, 35, 28, 216, 33] of 42, ours [1, 2, 3] of 3; set --env.tokenizer_name to its "
        "model's tokenizer"
    )
