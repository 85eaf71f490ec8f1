"""Contract with vLLM 0.32: recorded replies are decoded as before.

`tests/real/record.py` recorded them. A request that differs from the recorded one is refused.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from scripted_server import serving

from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference._negotiation import (
    Requirements,
    blocker,
    probe,
)
from reasoning_gym_environment.inference.dialects import (
    Dialect,
    GenerationRequest,
    SamplingParams,
)
from reasoning_gym_environment.inference.errors import ReplyError
from reasoning_gym_environment.inference.servers import SERVER_TYPES, ServerClient

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings"
KINDS = pytest.mark.parametrize("kind", ["vllm", "openai"])
END_OF_TURN = 2
AT = r"at `\$.choices\[1\]"


def recording(name: str = "processed") -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(
        (RECORDINGS / f"vllm-0.32-{name}.json").read_text()
    )
    return loaded


@asynccontextmanager
async def replayed(
    kind: str, name: str = "processed", **more: Any
) -> AsyncIterator[ServerClient]:
    """A client of a server that answers the recorded requests as recorded, and no others."""
    exchanges = recording(name)["exchanges"]

    async def answer(request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        asked = {"method": request.method, "path": request.path, "body": body}
        for exchange in exchanges:
            if {**exchange, **asked} == exchange:
                return web.json_response(exchange["reply"], status=exchange["status"])
        return web.json_response({"detail": f"not recorded: {asked}"}, status=501)

    settings = {"model_name": recording()["ask"]["model"], "api_key": "x", **more}
    async with serving([web.route("*", "/{path:.*}", answer)]) as url:
        client = ServerClient(
            APIServerConfig(server_type=kind, base_url=f"{url}/v1", **settings)
        )
        try:
            yield client
        finally:
            await client.close()


def requirements(**changes: Any) -> Requirements:
    """What the recorded run required of the server."""
    recorded = recording()
    request = {**recorded["ask"], "prompt": tuple(recorded["ask"]["prompt"])}
    request.pop("stops", None)  # of an earlier version
    required = Requirements(
        request=GenerationRequest(**request),
        text_ids=tuple(recorded["text_ids"]),
        length_limit=512,
        sampling=SamplingParams(temperature=0.7, top_p=1.0, split="train"),
    )
    return replace(required, **changes)


def group_request() -> GenerationRequest:
    return replace(
        requirements().request, n=3, max_tokens=40, temperature=0.7, candidates=0
    )


async def group_reply(
    kind: str, name: str = "processed"
) -> tuple[Dialect, dict[str, Any]]:
    """The recorded group, and the dialect that it is in."""
    async with replayed(kind, name) as server:
        dialect = SERVER_TYPES[kind]
        return dialect, json.loads(await server.probe(dialect, group_request()))


def read(dialect: Dialect, reply: Any) -> list[Any]:
    return dialect.samples(json.dumps(reply).encode(), group_request())


@KINDS
async def test_a_probe_finds_the_servers_capabilities_and_a_short_context_blocks(
    kind: str,
) -> None:
    async with replayed(kind) as server:
        found = await probe(server, requirements())
    assert found.dialect is SERVER_TYPES[kind]
    assert found.text_ids == requirements().text_ids
    assert found.context == 1024
    assert found.raw is False
    assert blocker(found, requirements()) is None
    assert blocker(found, requirements(length_limit=2048)) == (
        f"the inference server at {found.url} takes 1024 tokens and max_token_length is 2048: "
        "lower --env.max_token_length, or start the server with a longer context"
    )


@KINDS
async def test_raw_logprobs_are_recognized_and_block(kind: str) -> None:
    async with replayed(kind, "raw") as server:
        found = await probe(server, requirements())
    assert found.raw is True
    assert blocker(found, requirements()) == (
        f"the inference server at {found.url} gives raw logprobs, those before temperature and "
        "top_p, so that importance ratios at temperature 0.7 and top_p 1 would be wrong: start it "
        "with `vllm serve --logprobs-mode processed_logprobs`, or set --env.temperature 1 "
        "--env.top_p 1"
    )
    at_one = SamplingParams(temperature=1.0, top_p=1.0, split="train")
    assert blocker(found, requirements(sampling=at_one)) is None
    assert blocker(found, requirements(sampling=None)) is None


@KINDS
@pytest.mark.parametrize("name", ["processed", "raw"])
async def test_a_group_has_the_servers_tokens_and_logprobs(
    kind: str, name: str
) -> None:
    dialect, reply = await group_reply(kind, name)
    samples = read(dialect, reply)
    assert len(samples) == 3
    for sample, choice in zip(samples, reply["choices"], strict=True):
        assert list(sample.tokens) == choice["token_ids"]
        assert len(sample.logprobs) == len(sample.tokens) <= 40
        assert all(logprob <= 0 for logprob in sample.logprobs)
        assert (sample.tokens[-1] == END_OF_TURN) == (sample.ending.reason == "stop")


@KINDS
@pytest.mark.parametrize(
    ("key", "spoiled", "said"),
    [
        ("token_ids", lambda ids: ids[:-1], r"\d+ token ids with \d+ logprobs"),
        ("token_ids", lambda _: None, rf"`array`, got `null` - {AT}.token_ids`"),
        ("logprobs", lambda _: None, rf"`object`, got `null` - {AT}.logprobs`"),
        (
            "prompt_token_ids",
            lambda ids: [5, *ids[1:]],
            "differs from ours of 38 at token 0",
        ),
        ("token_ids", lambda ids: [-1, *ids[1:]], "-1 is not a token id"),
        (
            "token_ids",
            lambda ids: ["17", *ids[1:]],
            rf"`int`, got `str` - {AT}.token_ids\[0\]`",
        ),
        (
            "finish_reason",
            lambda _: "abort",
            "a completion has the finish reason 'abort'",
        ),
    ],
)
async def test_a_partly_invalid_reply_is_refused(
    kind: str, key: str, spoiled: Callable[[Any], Any], said: str
) -> None:
    dialect, reply = await group_reply(kind)
    choice = reply["choices"][1]
    holder = choice if key in choice else reply  # a chat has the prompt once
    holder[key] = spoiled(holder[key])
    with pytest.raises(ReplyError, match=said):
        read(dialect, reply)


async def test_a_logprob_rounded_above_0_counts_as_0() -> None:
    dialect, reply = await group_reply("vllm")
    reply["choices"][0]["logprobs"]["token_logprobs"][3] = 1e-6
    assert read(dialect, reply)[0].logprobs[3] == 0.0


@KINDS
async def test_an_unknown_model_is_named_in_the_servers_message(kind: str) -> None:
    async with replayed(kind, model_name="unknown") as server:
        with pytest.raises(ConfigurationError) as raised:
            await probe(server, requirements())
    assert str(raised.value) == (
        f"the inference server at {server.config.base_url} refuses requests with status 404 (The "
        "model `unknown` does not exist. Valid aliases: <path>): set --openai.model_name to one "
        "that it lists: SmolLM2-135M-Instruct"
    )


@KINDS
async def test_more_tokens_than_the_context_are_refused(kind: str) -> None:
    dialect = SERVER_TYPES[kind]
    async with replayed(kind) as server:
        with pytest.raises(aiohttp.ClientResponseError) as raised:
            await server.probe(dialect, replace(group_request(), max_tokens=5000))
    assert raised.value.status == 400
    assert "cannot be greater than max_model_len=1024" in raised.value.message


async def test_another_tokenizer_blocks() -> None:
    async with replayed("vllm") as server:
        found = await probe(server, requirements(text_ids=(1, 2, 3)))
    assert blocker(found, requirements(text_ids=(1, 2, 3))) == (
        f"the inference server at {found.url} has another tokenizer: its token ids of a text begin "
        "[48762, 216, 35, 28, 216, 33] of 42, ours [1, 2, 3] of 3; set --env.tokenizer_name to its "
        "model's tokenizer"
    )
