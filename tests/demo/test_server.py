"""The policy server against the clients it is made for, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from atroposlib.envs.server_handling.managed_server import ManagedServer
from atroposlib.envs.server_handling.openai_server import OpenAIServer
from atroposlib.envs.server_handling.server_baseline import APIServer, APIServerConfig
from atroposlib.envs.server_handling.sglang_server import SGLangServer
from atroposlib.envs.server_handling.vllm_server import VLLMServer
from scripted_server import ScriptedServer

from reasoning_gym_environment.demo.policy import Sample, ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer

# Of the clients OpenAI's starts a process: it asks for the system's name.
pytestmark = pytest.mark.processes
TEXT = "<think>é 日本</think><answer>4</answer>"
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " 2 + 2?\n"},
]


class EchoPolicy:
    """Says which question it was asked."""

    def sample(self, question: str, n: int) -> list[Sample]:
        return [Sample(text=f"{question}/{index}") for index in range(n)]


@asynccontextmanager
async def client_of(
    kind: type[APIServer], server: PolicyServer, model: str, **options: Any
) -> AsyncIterator[APIServer]:
    """Start the server, and Atropos's client of one kind; end both afterwards."""
    async with server:
        known = {"base_url": f"{server.url}/v1", "model_name": model, "api_key": "x"}
        client = kind(APIServerConfig(**{**known, "health_check": False, **options}))
        try:
            yield client
        finally:
            if client.check_task is not None:
                client.check_task.cancel()
            await client.openai.close()


async def test_openai_gets_n_chat_completions_and_n_plain_ones(
    tokenizer: Any, tokenizer_folder: str
) -> None:
    server = PolicyServer(EchoPolicy(), tokenizer)
    async with client_of(OpenAIServer, server, tokenizer_folder) as client:
        chat = await client.chat_completion(messages=MESSAGES, n=3, max_tokens=100)
        assert server.requests == 1
        plain = await client.completion(prompt="2 + 2?", n=2, max_tokens=100)
    assert [c.message.content for c in chat.choices] == [
        f" 2 + 2?\n/{i}" for i in range(3)
    ]
    assert {choice.finish_reason for choice in chat.choices} == {"stop"}
    assert [choice.text for choice in plain.choices] == ["2 + 2?/0", "2 + 2?/1"]


async def test_reasoning_content_holds_the_thought(
    tokenizer: Any, tokenizer_folder: str
) -> None:
    policy = ScriptedPolicy([TEXT, "<think>cut off"])
    server = ScriptedServer(policy, tokenizer, splits_reasoning=True)
    async with client_of(OpenAIServer, server, tokenizer_folder) as client:
        completion = await client.chat_completion(messages=MESSAGES, n=2)
    split = [
        (c.message.reasoning_content, c.message.content) for c in completion.choices
    ]
    assert split == [("é 日本", "<answer>4</answer>"), ("cut off", "")]


async def test_an_endpoint_that_ignores_n_is_asked_again(
    tokenizer: Any, tokenizer_folder: str
) -> None:
    server = ScriptedServer(EchoPolicy(), tokenizer, ignores_n=True)
    async with client_of(
        OpenAIServer, server, tokenizer_folder, n_kwarg_is_ignored=True
    ) as client:
        completion = await client.chat_completion(messages=MESSAGES, n=4)
    assert len(completion.choices) == 4
    assert server.requests == 4


async def test_sglang_gets_aligned_tokens(
    tokenizer: Any, tokenizer_folder: str
) -> None:
    server = PolicyServer(EchoPolicy(), tokenizer)
    async with client_of(SGLangServer, server, tokenizer_folder) as client:
        managed = ManagedServer(client, tokenizer=tokenizer)
        completion = await managed.chat_completion(
            messages=MESSAGES, n=2, max_tokens=100
        )
        nodes = managed.get_state()["nodes"]
    prompt = tokenizer.apply_chat_template(
        MESSAGES, tokenize=False, add_generation_prompt=True
    )
    prompt_ids = tokenizer.encode(prompt)
    assert [c.message.content for c in completion.choices] == [
        " 2 + 2?\n/0",
        " 2 + 2?\n/1",
    ]
    for index, node in enumerate(nodes):
        completion_ids = [
            *tokenizer.encode(f" 2 + 2?\n/{index}"),
            tokenizer.eos_token_id,
        ]
        assert node.tokens == prompt_ids + completion_ids
        assert node.masked_tokens == [-100] * len(prompt_ids) + completion_ids
        assert node.logprobs[: len(prompt_ids)] == [1.0] * len(prompt_ids)
        assert all(logprob < 0 for logprob in node.logprobs[len(prompt_ids) :])
        assert node.metadata == {"finish_reason": "stop"}


async def test_sglangs_tokens_are_cut_at_max_tokens(
    tokenizer: Any, tokenizer_folder: str
) -> None:
    server = PolicyServer(ScriptedPolicy([TEXT]), tokenizer)
    async with client_of(SGLangServer, server, tokenizer_folder) as client:
        managed = ManagedServer(client, tokenizer=tokenizer)
        completion = await managed.chat_completion(messages=MESSAGES, n=1, max_tokens=5)
    assert completion.choices[0].finish_reason == "length"
    assert completion.choices[0].message.content == tokenizer.decode(
        tokenizer.encode(TEXT)[:5]
    )


async def test_a_budget_that_leaves_no_room_for_the_end_of_turn_cuts(
    tokenizer: Any, tokenizer_folder: str
) -> None:
    length = len(tokenizer.encode(TEXT))
    server = PolicyServer(ScriptedPolicy([TEXT]), tokenizer)
    async with client_of(OpenAIServer, server, tokenizer_folder) as client:
        cut = await client.chat_completion(messages=MESSAGES, max_tokens=length)
        whole = await client.chat_completion(messages=MESSAGES, max_tokens=length + 1)
    assert cut.choices[0].finish_reason == "length"
    assert whole.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("kind", [OpenAIServer, VLLMServer, SGLangServer])
async def test_health_probes_neither_fail_nor_reach_the_policy(
    kind: type[APIServer], tokenizer: Any, tokenizer_folder: str
) -> None:
    policy = ScriptedPolicy([])  # cannot answer
    server = ScriptedServer(policy, tokenizer, failure_rate=1.0)
    async with client_of(kind, server, tokenizer_folder) as client:
        client.server_healthy = False
        client.check_task = asyncio.create_task(client.check_server_status_task())

        async def until_healthy() -> None:
            while not client.server_healthy:
                await asyncio.sleep(0.01)

        await asyncio.wait_for(until_healthy(), timeout=30)
    assert server.requests == 0


async def test_the_asked_share_of_requests_fails(tokenizer: Any) -> None:
    body = {"model": "m", "messages": MESSAGES, "max_tokens": 100}
    async with (
        ScriptedServer(EchoPolicy(), tokenizer, failure_rate=0.3, seed=1) as server,
        aiohttp.ClientSession() as session,
    ):
        statuses = []
        for _ in range(100):
            async with session.post(
                f"{server.url}/v1/chat/completions", json=body
            ) as response:
                statuses.append(response.status)
    assert server.requests == 100
    assert server.failures == statuses.count(500)
    assert 15 < server.failures < 45
