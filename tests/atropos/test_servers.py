"""Clients in Atropos's shape: the same requests as its own client, its places and timings."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from asked_completions import REQUEST
from atroposlib.envs.server_handling.openai_server import OpenAIServer
from atroposlib.envs.server_handling.server_baseline import APIServerConfig, ReasoningConfig
from atroposlib.envs.server_handling.server_manager import ServerManager

from reasoning_gym_environment.atropos.config import AtroposServer
from reasoning_gym_environment.inference.client import InferenceClient
from reasoning_gym_environment.inference.dialects import ChatTokens, SamplingParams, TextSample

pytestmark = pytest.mark.processes  # OpenAI's client asks for the system's name

REASONING = pytest.mark.parametrize(
    "reasoning",
    [
        ReasoningConfig(),
        ReasoningConfig(effort="high"),
        ReasoningConfig(max_tokens=500),
        ReasoningConfig(enabled=True),
    ],
)


class RecordingServer:
    """Answers chats with one text for each completion, and keeps the requests.

    Attributes:
        begun: set once a request has come; replies wait for `goes_on`.
        status: of all replies.
    """

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()
        self.goes_on.set()
        self.status = 200

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        self.keys.append(request.headers.get("Authorization"))
        self.begun.set()
        await self.goes_on.wait()
        choice = {"index": 0, "message": {"role": "assistant", "content": "4"}}
        choices = [{**choice, "finish_reason": "stop"}] * body.get("n", 1)
        return web.json_response({"choices": choices}, status=self.status)


@asynccontextmanager
async def recording(**settings: Any) -> AsyncIterator[tuple[RecordingServer, APIServerConfig]]:
    """A server, and the settings with which it is asked."""
    server = RecordingServer()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = "http://{}:{}/v1".format(*runner.addresses[0])
    try:
        fixed = {"base_url": url, "model_name": "m", "api_key": "x", "health_check": False}
        yield server, APIServerConfig(**fixed, **settings)
    finally:
        server.goes_on.set()
        await runner.cleanup()


async def ask_as_atropos(config: APIServerConfig, reasoning: ReasoningConfig) -> None:
    client = OpenAIServer(config, reasoning)
    await client.chat_completion(messages=REQUEST.messages, **REQUEST.sampling)
    await client.openai.close()


@asynccontextmanager
async def atropos_server(*args: Any, **kwargs: Any) -> AsyncIterator[AtroposServer]:
    """A server for chats whose client is closed afterwards."""
    server = AtroposServer(*args, **kwargs)
    try:
        yield server
    finally:
        await server.client.close()


@REASONING
async def test_a_text_is_requested_as_atroposs_own_client_does(reasoning: ReasoningConfig) -> None:
    async with recording() as (server, config):
        await ask_as_atropos(config, reasoning)
        async with atropos_server(config, reasoning_config=reasoning) as ours:
            samples = await ours.client.sample(REQUEST, "train")
    assert samples == [TextSample("4", None, "stop")] * 2
    theirs, own = server.bodies
    assert own == theirs
    assert server.keys == ["Bearer x"] * 2


async def test_openais_own_endpoint_gets_its_parameter_names() -> None:
    config = APIServerConfig(base_url="https://api.openai.com/v1", model_name="m", api_key="x")
    server = AtroposServer(config, reasoning_config=ReasoningConfig(effort="low"))
    body = server._add_reasoning({"n": 2, "max_tokens": 4, "temperature": 0.7})
    assert body == {
        "n": 2,
        "max_completion_tokens": 4,
        "temperature": 1.0,
        "reasoning_effort": "low",
    }


async def test_tokens_of_a_chat_are_requested_with_the_settings_of_reasoning() -> None:
    async with (
        recording() as (server, config),
        atropos_server(config, reasoning_config=ReasoningConfig(effort="low")) as ours,
    ):
        await ours.client.probe(ChatTokens(), REQUEST)
    [body] = server.bodies
    assert body["reasoning"] == {"enabled": True, "effort": "low"}
    assert body["return_token_ids"] is True


async def test_an_endpoint_that_ignores_n_gets_requests_without_it_for_one_each() -> None:
    async with (
        recording(n_kwarg_is_ignored=True) as (server, config),
        atropos_server(config) as ours,
    ):
        inference = InferenceClient([ours.client], None, system_prompt="")
        completions = await inference.sample(
            "?",
            n=3,
            length_limit=100,
            sampling=SamplingParams(temperature=1.0, top_p=1.0, split="train"),
        )
    assert len(completions) == len(server.bodies) == 3
    assert not any("n" in body for body in server.bodies)


async def until_asked(server: Any, times: int) -> None:
    """Wait for so many requests, and a moment longer for one too many."""
    while len(server.bodies) < times:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert len(server.bodies) == times


async def test_each_split_has_separate_limits_and_timings() -> None:
    settings = {"num_max_requests_at_once": 1, "num_requests_for_eval": 2}
    async with recording(**settings) as (server, config), atropos_server(config) as ours:
        server.goes_on.clear()
        splits = ["train"] * 3 + ["eval"] * 3
        jobs = [asyncio.create_task(ours.client.sample(REQUEST, split)) for split in splits]
        await until_asked(server, 3)
        server.goes_on.set()
        await asyncio.gather(*jobs)
        server.status = 500
        with pytest.raises(Exception, match="500"):
            await ours.client.sample(REQUEST, "eval")
    assert len(ours.request_timings) == len(ours.eval_request_timings) == 3
    metrics = await ours.wandb_metrics({}, "server_0")
    assert metrics["server/server_0_average_num_attempts"] == 1
    assert metrics["server/server_0_eval_request_time_avg"] > 0


async def test_atropos_weights_limit_concurrent_requests() -> None:
    async with recording(num_max_requests_at_once=4) as (server, config):
        manager = ServerManager([config], AtroposServer)
        await manager.update_weight(0.5)
        server.goes_on.clear()
        client = manager.servers[0].client
        jobs = [asyncio.create_task(client.sample(REQUEST, "train")) for _ in range(4)]
        await until_asked(server, 2)
        server.goes_on.set()
        await asyncio.gather(*jobs)
        await client.close()
