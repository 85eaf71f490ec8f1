"""What servers call the end of a completion, over HTTP: on text and on token endpoints."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from asked_completions import REQUEST
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from scripted_server import serving

from reasoning_gym_environment.inference.errors import ReplyError
from reasoning_gym_environment.inference.finish_reasons import CUT_WORDS, FAILURE_WORDS
from reasoning_gym_environment.inference.servers import SERVER_TYPES, ServerClient

FOLDER = Path(__file__).parent
CASES: list[dict[str, Any]] = json.loads(
    (FOLDER / "finish_reason_cases.json").read_text()
)
"""Words of public servers, what is stored (null: the request has failed), and who uses them."""

PAGE = (FOLDER.parents[1] / "docs/inference.md").read_text()
PROMPT = list(REQUEST.prompt)
KINDS = ("openai", "a chat with tokens", "vllm", "sglang")


def reply(path: str, word: Any, tokens: int, choices: int, *, counts: bool) -> Any:
    """A reply with completions of so many tokens that end with a word."""
    ids = list(range(tokens))
    logprobs = [-1.0] * tokens
    if path == "/generate":
        entries = [[p, t, None] for p, t in zip(logprobs, ids, strict=True)]
        meta = {"output_token_logprobs": entries, "finish_reason": {"type": word}}
        return [{"text": "4", "meta_info": meta}] * choices
    entries = [{"logprob": p} for p in logprobs]
    choice = {
        "message": {"content": "4"},
        "text": "4",
        "finish_reason": word,
        "prompt_token_ids": PROMPT,
        "token_ids": ids,
        "logprobs": {"token_logprobs": logprobs, "content": entries},
    }
    if path.endswith("/completions") and "chat" not in path:
        choice["logprobs"] = {"token_logprobs": logprobs}
    usage = {"prompt_tokens": 3, "completion_tokens": tokens * choices}
    return {"choices": [choice] * choices, **({"usage": usage} if counts else {})}


@asynccontextmanager
async def ending(
    kind: str, word: Any, *, tokens: int = 2, choices: int = 2, counts: bool = True
) -> AsyncIterator[ServerClient]:
    """A client of a server whose completions end with a word."""

    async def answer(request: web.Request) -> web.Response:
        body = reply(request.path, word, tokens, choices, counts=counts)
        return web.json_response(body)

    paths = ("/v1/chat/completions", "/v1/completions", "/generate")
    async with serving([web.post(path, answer) for path in paths]) as url:
        with_tokens = kind == "a chat with tokens"
        server_type = "openai" if with_tokens else kind
        config = APIServerConfig(
            server_type=server_type, base_url=f"{url}/v1", model_name="m", api_key="x"
        )
        client = ServerClient(config)
        if with_tokens:
            client.dialect = SERVER_TYPES["openai"]
        try:
            yield client
        finally:
            await client.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_the_words_of_public_servers_are_known(kind: str) -> None:
    for case in CASES:
        async with ending(kind, case["word"]) as client:
            if case["stored"] is None:
                with pytest.raises(ReplyError, match=case["word"]):
                    await client.sample(REQUEST)
                continue
            ends = {sample.ending[:2] for sample in await client.sample(REQUEST)}
            stored_word = case["word"].replace("-", "_")
            assert ends == {(case["stored"], stored_word)}, case


def test_every_word_has_a_source_and_stands_in_the_page() -> None:
    of_sources = {case["word"].lower() for case in CASES}
    for word in (*CUT_WORDS, *FAILURE_WORDS):
        assert word in of_sources
        assert f"`{word}`" in PAGE
    for reason in CUT_WORDS.values():
        assert f"`{reason}`" in PAGE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("word", "at_limit"), [("eos", "length"), (None, "length"), ("stop", "stop")]
)
async def test_only_a_known_word_is_believed_at_the_limit_of_tokens(
    kind: str, word: str | None, at_limit: str
) -> None:
    most = REQUEST.max_tokens
    for tokens, reason in ((most - 1, "stop"), (most, at_limit)):
        async with ending(kind, word, tokens=tokens) as client:
            samples = await client.sample(REQUEST)
        assert [sample.ending[:2] for sample in samples] == [(reason, word)] * 2


async def test_without_a_count_of_tokens_a_text_with_an_unknown_word_is_whole() -> None:
    async with ending("openai", "eos", tokens=4, counts=False) as client:
        samples = await client.sample(REQUEST)
    assert {sample.ending.reason for sample in samples} == {"stop"}


@pytest.mark.parametrize("kind", KINDS)
async def test_an_unknown_word_is_logged_once_with_its_servers_address(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with ending(kind, "natural") as client:
        for _ in range(3):
            await client.sample(REQUEST)
        [message] = [m for m in caplog.messages if "natural" in m]
        assert client.url("") in message
    caplog.clear()
    for word in ("stop", "STOP", "length", "MAX_TOKENS", "tool_calls"):
        async with ending(kind, word) as client:
            await client.sample(REQUEST)
    assert caplog.messages == []


async def test_a_server_that_makes_up_words_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = [f"word {number}" for number in range(40)]

    async def answer(_: web.Request) -> web.Response:
        body = reply("/v1/chat/completions", words.pop(), 2, 2, counts=True)
        return web.json_response(body)

    async with serving([web.post("/v1/chat/completions", answer)]) as url:
        config = APIServerConfig(
            server_type="openai", base_url=f"{url}/v1", model_name="m", api_key="x"
        )
        client = ServerClient(config)
        while words:
            samples = await client.sample(replace(REQUEST, n=2))
            assert {sample.ending.reason for sample in samples} == {"stop"}
        await client.close()
    assert 0 < len(caplog.messages) < 20
