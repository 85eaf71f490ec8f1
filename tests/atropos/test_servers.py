"""Clients in Atropos's shape: the same requests as its own client, its places and timings."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from asked_completions import REQUEST
from atroposlib.envs.server_handling.openai_server import OpenAIServer
from atroposlib.envs.server_handling.server_baseline import (
    APIServerConfig,
    ReasoningConfig,
)
from atroposlib.envs.server_handling.server_manager import ServerManager
from scripted_server import serving

from reasoning_gym_environment.atropos.inference_server import ClientBackedServer
from reasoning_gym_environment.inference.client import InferenceClient
from reasoning_gym_environment.inference.dialects import (
    ChatTokens,
    SamplingParams,
    TextSample,
)
from reasoning_gym_environment.inference.failover import Failover
from reasoning_gym_environment.inference.finish_reasons import read_ending
from reasoning_gym_environment.inference.servers import ServerClient

pytestmark = pytest.mark.processes  # OpenAI's client asks for the system's name


class RecordingServer:
    """Answers chats with one text for each completion, and keeps the requests.

    Attributes:
        goes_on: replies wait for it.
        status: of all replies.
    """

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.status = 200

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        self.keys.append(request.headers.get("Authorization"))
        await self.goes_on.wait()
        choice = {"index": 0, "message": {"role": "assistant", "content": "4"}}
        choices = [{**choice, "finish_reason": "stop"}] * body.get("n", 1)
        return web.json_response({"choices": choices}, status=self.status)


@asynccontextmanager
async def recording(
    **settings: Any,
) -> AsyncIterator[tuple[RecordingServer, APIServerConfig]]:
    """A server, and the settings with which it is asked."""
    server = RecordingServer()
    async with serving([web.post("/v1/chat/completions", server.answer)]) as url:
        fixed = {"model_name": "m", "api_key": "x", "health_check": False}
        try:
            yield server, APIServerConfig(base_url=f"{url}/v1", **fixed, **settings)
        finally:
            server.goes_on.set()


@asynccontextmanager
async def atropos_server(
    *args: Any, **kwargs: Any
) -> AsyncIterator[ClientBackedServer]:
    """A server for chats whose client is closed afterwards."""
    server = ClientBackedServer(*args, **kwargs)
    try:
        yield server
    finally:
        await server.client.close()


@pytest.mark.parametrize(
    "given", [{}, {"effort": "high"}, {"max_tokens": 500}, {"enabled": True}], ids=str
)
async def test_a_text_is_requested_as_atroposs_own_client_does(
    given: dict[str, Any],
) -> None:
    reasoning = ReasoningConfig(**given)
    async with recording() as (server, config):
        theirs = OpenAIServer(config, reasoning)
        await theirs.chat_completion(messages=REQUEST.messages, **REQUEST.sampling)
        await theirs.openai.close()
        async with atropos_server(config, reasoning_config=reasoning) as ours:
            samples = await ours.client.sample(REQUEST)
    assert samples == [TextSample("4", None, read_ending("stop"))] * 2
    assert len(server.bodies) == 2
    assert server.bodies[1] == server.bodies[0]
    assert server.keys == ["Bearer x"] * 2


async def test_openais_own_endpoint_gets_its_parameter_names() -> None:
    config = APIServerConfig(
        base_url="https://api.openai.com/v1", model_name="m", api_key="x"
    )
    server = ClientBackedServer(config, reasoning_config=ReasoningConfig(effort="low"))
    body = server._add_reasoning({"n": 2, "max_tokens": 4, "temperature": 0.7})
    expected = {"n": 2, "max_completion_tokens": 4, "temperature": 1.0}
    assert body == {**expected, "reasoning_effort": "low"}


async def test_tokens_of_a_chat_are_requested_with_the_settings_of_reasoning() -> None:
    async with (
        recording() as (server, config),
        atropos_server(config, reasoning_config=ReasoningConfig(effort="low")) as ours,
    ):
        await ours.client.probe(ChatTokens(), REQUEST)
    [body] = server.bodies
    assert body["reasoning"] == {"enabled": True, "effort": "low"}
    assert body["return_token_ids"] is True


async def test_an_endpoint_that_ignores_n_gets_requests_without_it_for_one_each() -> (
    None
):
    async with (
        recording(n_kwarg_is_ignored=True) as (server, config),
        atropos_server(config) as ours,
    ):
        inference = InferenceClient([ours.client], None, system_prompt="")
        plain = SamplingParams(temperature=1.0, top_p=1.0, split="train")
        completions = await inference.sample("?", n=3, length_limit=100, sampling=plain)
    assert len(completions) == len(server.bodies) == 3
    assert not any("n" in body for body in server.bodies)


def send(client: ServerClient, split: str) -> asyncio.Task[Any]:
    sent = Failover([client]).send(lambda server: server.sample(REQUEST), split)
    return asyncio.create_task(sent)


async def until_asked(server: Any, times: int) -> None:
    """Wait for so many requests, and a moment longer for one too many."""
    while len(server.bodies) < times:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert len(server.bodies) == times


async def test_each_split_has_separate_limits_and_timings() -> None:
    settings = {"num_max_requests_at_once": 1, "num_requests_for_eval": 2}
    async with (
        recording(**settings) as (server, config),
        atropos_server(config) as ours,
    ):
        server.goes_on.clear()
        splits = ["train"] * 3 + ["eval"] * 3
        sent = [send(ours.client, split) for split in splits]
        await until_asked(server, 3)
        server.goes_on.set()
        await asyncio.gather(*sent)
        server.status = 500
        with pytest.raises(Exception, match="500"):
            await send(ours.client, "eval")
    assert len(ours.request_timings) == len(ours.eval_request_timings) == 3
    metrics = await ours.wandb_metrics({}, "server_0")
    assert metrics["server/server_0_average_num_attempts"] == 1
    assert metrics["server/server_0_eval_request_time_avg"] > 0


async def test_atropos_weights_limit_concurrent_requests() -> None:
    async with recording(num_max_requests_at_once=4) as (server, config):
        manager = ServerManager([config], ClientBackedServer)
        await manager.update_weight(0.5)
        server.goes_on.clear()
        client = manager.servers[0].client
        sent = [send(client, "train") for _ in range(4)]
        await until_asked(server, 2)
        server.goes_on.set()
        await asyncio.gather(*sent)
        await client.close()
