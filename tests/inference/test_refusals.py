"""What endpoints refuse is left out: refusals as hosted APIs and other servers word them.

`refusals.json` has one endpoint a line: its refusals as publicly reported, each sent while a
request has all parameters of `while`, and then either the requests that it takes or the sentence
that the user reads.
"""

import json
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

from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference._negotiation import (
    Capabilities,
    Requirements,
    blocker,
    probe,
    warning,
)
from reasoning_gym_environment.inference.client import InferenceClient
from reasoning_gym_environment.inference.dialects import ChatText, SamplingParams
from reasoning_gym_environment.inference.servers import ServerClient

CASES = json.loads(Path(__file__).with_name("refusals.json").read_text())
COOL = SamplingParams(temperature=0.1, top_p=1.0, split="eval")
PLAIN = SamplingParams(temperature=1.0, top_p=1.0, split="train")


class StrictEndpoint:
    """Refuses requests with certain parameters; `text` is what it answers to all others."""

    def __init__(self, refusals: list[dict[str, Any]], **message: Any) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._refusals = refusals
        self._message = {"role": "assistant", "content": "4", **message}

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        for refusal in self._refusals:
            if all(self._has(body, name) for name in refusal["while"]):
                return web.json_response(refusal["body"], status=refusal["status"])
        choice = {"index": 0, "message": self._message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": 5}
        return web.json_response(
            {"choices": [choice] * body.get("n", 1), "usage": usage}
        )

    def _has(self, body: dict[str, Any], condition: str) -> bool:
        name, _, value = condition.partition("=")
        return name in body and value in ("", str(body[name]))


@asynccontextmanager
async def client_of(endpoint: StrictEndpoint) -> AsyncIterator[ServerClient]:
    async with serving([web.post("/v1/chat/completions", endpoint.answer)]) as url:
        config = APIServerConfig(
            server_type="openai", base_url=f"{url}/v1", model_name="m"
        )
        client = ServerClient(config)
        try:
            yield client
        finally:
            await client.close()


def needs(**changes: Any) -> Requirements:
    """What `evaluate` needs of a server, with a tokenizer."""
    given = {"sampling": None, "evaluation": COOL, **changes}
    return Requirements(request=REQUEST, text_ids=(1,), length_limit=64, **given)


async def found_at(
    endpoint: StrictEndpoint, requirements: Requirements
) -> Capabilities:
    async with client_of(endpoint) as client:
        return await probe(client, requirements)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["endpoint"])
async def test_an_endpoints_refusals_change_requests_or_end_the_start(
    case: dict[str, Any],
) -> None:
    endpoint = StrictEndpoint(case["refusals"])
    if error := case.get("error"):
        with pytest.raises(ConfigurationError) as raised:
            await found_at(endpoint, needs())
        assert error in str(raised.value)
        return
    found = await found_at(endpoint, needs())
    assert found.dialect == ChatText(
        limit=case["limit"], left_out=frozenset(case["left_out"])
    )
    assert len(found.samples) == (1 if "n" in case["left_out"] else 2)
    assert blocker(found, needs()) is None
    said = "refuses temperature 0.1 in evaluation: its own default applies"
    assert (said in (warning(found, needs()) or "")) is (
        "temperature" in case["left_out"]
    )


@pytest.mark.parametrize(
    "words",
    [
        "only n=1 is supported",
        "n > 1 is not supported",
        "Multiple completions are not supported",
        "Only one completion choice is allowed",
        "number of completions must be one",
        "unsupported request",
    ],
)
async def test_a_refusal_of_several_completions_in_any_words_is_understood(
    words: str,
) -> None:
    refusals = [{"while": ["n"], "status": 400, "body": {"error": {"message": words}}}]
    found = await found_at(StrictEndpoint(refusals), needs())
    assert found.dialect == ChatText(left_out=frozenset({"n"}))
    # Where it isn't several completions, the endpoint's own words are the error.
    refusals = [{"while": [], "status": 400, "body": {"error": {"message": words}}}]
    with pytest.raises(ConfigurationError, match=words):
        await found_at(StrictEndpoint(refusals), needs())


async def test_a_group_is_complete_where_n_is_refused() -> None:
    refusals = [
        {"while": ["n"], "status": 400, "body": {"error": "'n' : must be at most 1"}}
    ]
    endpoint = StrictEndpoint(refusals)
    async with client_of(endpoint) as client:
        client.dialect = (await probe(client, needs())).dialect
        inference = InferenceClient([client], None, system_prompt="")
        completions = await inference.sample("?", n=3, length_limit=100, sampling=PLAIN)
    assert [completion.text for completion in completions] == ["4"] * 3
    assert all("n" not in body for body in endpoint.bodies[-3:])


async def test_training_at_a_refused_temperature_ends_the_start() -> None:
    [openai, *_] = CASES
    warm = SamplingParams(temperature=0.7, top_p=1.0, split="train")
    found = await found_at(StrictEndpoint(openai["refusals"]), needs(sampling=warm))
    assert blocker(found, needs(sampling=warm)) == (
        f"the inference server at {found.url} refuses temperature: set --env.temperature 1, "
        "the value that it uses"
    )
    assert blocker(found, needs(sampling=PLAIN)) is None


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_thoughts_in_a_field_of_their_own_end_the_start_of_serve(
    field: str,
) -> None:
    endpoint = StrictEndpoint([], content=None, **{field: "two and two"})
    found = await found_at(endpoint, needs(sampling=PLAIN))
    assert blocker(found, needs(sampling=PLAIN)) is None  # `process` collects them
    said = blocker(found, needs(sampling=PLAIN, serves=True))
    assert said is not None
    assert "training would see other tokens than were sampled" in said
    assert "vLLM and SGLang: without --reasoning-parser" in said


async def test_without_a_tokenizer_only_text_is_requested() -> None:
    endpoint = StrictEndpoint([])
    found = await found_at(endpoint, replace(needs(), text_ids=None))
    [body] = endpoint.bodies
    assert body.keys() == {
        "model",
        "messages",
        "n",
        "max_tokens",
        "temperature",
        "top_p",
    }
    # Of 5 together.
    assert [sample.usage for sample in found.samples] == [(9, 2), (9, 2)]
