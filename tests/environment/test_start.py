"""Negotiation at the start over real HTTP, and the errors that end it."""

import json
import logging
from typing import Any

import pytest
from aiohttp import web
from scripted_server import ScriptedServer
from trainer_api import begin_training

from reasoning_gym_environment import ReasoningGymEnv
from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import TURN_END, PolicyServer
from reasoning_gym_environment.demo.trainer import ApiServer
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference.dialects import ChatTokens
from reasoning_gym_environment.inference.errors import InferenceError
from reasoning_gym_environment.inference.servers import SERVER_TYPES
from reasoning_gym_environment.util.outages import UnreachableError

ONE = ScriptedPolicy(["<answer>1</answer>"])
TOKENS = pytest.mark.parametrize("kind", ["vllm", "sglang", "trl", "openai"])


class RefusingServer(PolicyServer):
    """Refuses every request with one status and one body, `times` times."""

    status = 401
    words = '{"error": {"message": "Incorrect API key provided.", "code": 401}}'
    times = 1_000_000

    async def _complete(self, order: Any) -> Any:
        if self.times > 0:
            self.times -= 1
            error = web.HTTPServiceUnavailable(text=self.words)
            error.set_status(self.status)
            raise error
        return await super()._complete(order)


class ForgetfulServer(ScriptedServer):
    """Renders another prompt than the one it was asked for, once told to."""

    drops = False

    def _prompt_ids(self, messages: list[dict[str, str]]) -> list[int]:
        return super()._prompt_ids(messages[1:] if self.drops else messages)


class CountingServer(PolicyServer):
    """Says how many tokens the prompt of a chat has."""

    prompt_tokens = 0

    async def _chat(self, request: web.Request) -> web.Response:
        reply = json.loads((await super()._chat(request)).text or "")
        return web.json_response(
            {**reply, "usage": {"prompt_tokens": self.prompt_tokens}}
        )


class ForeignServer(PolicyServer):
    """Has another tokenizer."""

    def _ids(self, prompt: Any) -> list[int]:
        return (
            [token + 1 for token in super()._ids(prompt)]
            if isinstance(prompt, str)
            else prompt
        )


async def refusal_of(bench: Any, server: Any, kind: str, **changes: Any) -> str:
    """The sentence that ends the start."""
    with pytest.raises(ConfigurationError) as raised:
        async with bench.environment(server.url, kind, **changes):
            pass
    return str(raised.value).replace(server.url, "URL")


async def test_chat_completions_with_token_ids_keep_the_servers_tokens(
    bench: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with (
        ScriptedServer(ONE, tokenizer, chat_tokens=True) as server,
        bench.environment(server.url, temperature=0.7) as env,
    ):
        group, _ = await env.collect_trajectories(await env.get_next_item())
    assert len(group["tokens"]) == 4
    for tokens, masks, logprobs in zip(
        group["tokens"], group["masks"], group["inference_logprobs"], strict=True
    ):
        sampled = [mask for mask in masks if mask != -100]
        assert tokenizer.decode(sampled) == f"<answer>1</answer>{TURN_END}"
        assert logprobs == pytest.approx(
            [1.0] * (len(tokens) - len(sampled))
            + [-(1 + token % 10) / 10 for token in sampled]
        )
    assert (
        "returns token ids through /v1/chat/completions with token ids; its logprobs are of the "
        "sampled distribution" in caplog.text
    )


async def test_a_different_prompt_token_count_is_warned_about_once(
    bench: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with CountingServer(ONE, tokenizer) as server:
        async with bench.environment(server.url) as env:
            ours = len(env.inference.prompt("What is 2 + 2?").tokens)
        caplog.clear()
        server.prompt_tokens = ours
        async with bench.environment(server.url):
            pass
        assert "counts" not in caplog.text
        server.prompt_tokens = ours + 1
        async with bench.environment(server.url):
            pass
    [said] = [message for message in caplog.messages if "counts" in message]
    assert said == (
        f"The inference server at {server.url}/v1 counts {ours + 1} tokens in a prompt that has "
        f"{ours} by tokenizer_name and its chat template: unless it counts in its own way, the "
        "trainer would see other tokens than the model; set --env.tokenizer_name to its model's "
        "tokenizer"
    )


async def test_a_group_with_another_prompt_is_lost(bench: Any, tokenizer: Any) -> None:
    async with (
        ForgetfulServer(ONE, tokenizer, chat_tokens=True) as server,
        bench.environment(server.url) as env,
    ):
        problem = await env.get_next_item()
        server.drops = True
        with pytest.raises(InferenceError, match="prompt"):
            await env.collect_trajectories(problem)
        assert not await env.run.groups.work_on(problem)
        assert env.statistics.counts["groups/lost"] == 1


@pytest.mark.parametrize("kind", ["openai", "vllm", "trl"])
async def test_the_dialect_is_logged(
    kind: str, bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    is_text = kind == "openai"
    async with bench.playing(ONE, kind, temperature=0.7 if is_text else 1.0) as env:
        group, _ = await env.collect_trajectories(await env.get_next_item())
    assert len(group["inference_logprobs"]) == (0 if is_text else 4)
    said = (
        "returns only text"
        if is_text
        else "returns token ids through vLLM's /v1/completions"
    )
    assert caplog.text.count(said) == 1


@TOKENS
async def test_raw_logprobs_end_the_start_at_another_temperature(
    kind: str, bench: Any, tokenizer: Any
) -> None:
    async with ScriptedServer(
        ONE, tokenizer, raw_logprobs=True, chat_tokens=True
    ) as server:
        said = await refusal_of(bench, server, kind, temperature=0.7)
        path = "" if kind == "trl" else "/v1"
        assert said == (
            f"the inference server at URL{path} gives raw logprobs, those before temperature and "
            "top_p, so that importance ratios at temperature 0.7 and top_p 1 would be wrong: "
            f"{SERVER_TYPES[kind].processed_by}, or set --env.temperature 1 "
            "--env.top_p 1"
        )
        if kind == "vllm":
            assert (
                "start it with `vllm serve --logprobs-mode processed_logprobs`" in said
            )
        await refusal_of(bench, server, kind, top_p=0.9)
        async with bench.environment(server.url, kind):
            pass
        async with bench.unprepared(server.url, kind, temperature=0.7) as env:
            await env._run_evaluate()  # which trains nobody


@TOKENS
async def test_a_refusal_ends_the_start_with_the_servers_message(
    kind: str, bench: Any, tokenizer: Any
) -> None:
    quota = "You exceeded your current quota, please check your plan."
    async with RefusingServer(ONE, tokenizer) as server:
        for status, words, said in (
            (
                401,
                RefusingServer.words,
                "status 401 (Incorrect API key provided): set OPENAI_API_KEY or --openai.api_key "
                "to a key that the server accepts",
            ),
            (
                404,
                '{"object": "error", "message": "The model `m` does not exist."}',
                "status 404 (The model `m` does not exist): set --openai.model_name to a "
                "model that the server lists at /v1/models",
            ),
            (
                400,
                "no such\nparameter",
                "status 400 (no such parameter): if it names a parameter, check "
                "--openai.server_type",
            ),
            (
                501,
                "<!DOCTYPE HTML>\n<html><head>\n<title>Error response</title>…",
                "status 501 (a web page: Error response): check --openai.base_url (it ends in /v1 "
                "at most servers) and --openai.server_type",
            ),
            (
                429,
                json.dumps({"error": {"message": quota}}),
                f"status 429 ({quota[:-1]}): the account has no quota left; add credit, or set "
                "--openai.api_key to another account's key",
            ),
        ):
            server.status, server.words = status, words
            path = "" if kind == "trl" else "/v1"
            assert await refusal_of(bench, server, kind) == (
                f"the inference server at URL{path} refuses requests with {said}"
            )


async def test_a_trainers_small_limit_is_named_and_not_ours(
    bench: Any, tokenizer: Any, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        PolicyServer(ONE, tokenizer) as server,
        ApiServer() as api,
        bench.environment(
            server.url, rollout_server_url=api.url, max_token_length=100
        ) as env,
    ):
        await begin_training(api.url, tmp_path, max_token_len=60)
        await env.run.register()
        assert caplog.messages[-1] == (
            "max_token_length 100 becomes 59: rows must be shorter than the trainer's "
            "max_token_len 60"
        )
        with pytest.raises(
            ConfigurationError, match="the trainer's max_token_len 60 leaves no room"
        ):
            await env.get_next_item()


@pytest.mark.parametrize("kind", ["vllm", "trl"])
async def test_another_tokenizer_ends_the_start(
    kind: str, bench: Any, tokenizer: Any
) -> None:
    async with ForeignServer(ONE, tokenizer) as server:
        said = await refusal_of(bench, server, kind)
    assert "has another tokenizer: its token ids of a text begin [" in said
    assert said.endswith("set --env.tokenizer_name to its model's tokenizer")


async def test_https_to_a_server_without_it_ends_the_start(
    bench: Any, tokenizer: Any
) -> None:
    async with PolicyServer(ONE, tokenizer) as server:
        with pytest.raises(ConfigurationError, match=r"https://.* is unusable: .*SSL"):
            async with bench.environment(server.url.replace("http:", "https:"), "vllm"):
                pass


async def test_the_start_waits_for_a_loading_server_but_not_forever(
    bench: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Impatient(ReasoningGymEnv):
        reach_seconds = 0.0

    caplog.set_level(logging.INFO)
    async with RefusingServer(ONE, tokenizer) as server:
        server.status, server.words, server.times = 503, "loading", 1
        async with bench.environment(server.url, "vllm"):
            pass
        assert "(status 503: loading); trying for another 60 s" in caplog.text
        server.times = 1_000_000
        with pytest.raises(UnreachableError) as raised:
            async with bench.environment(server.url, "vllm", of=Impatient):
                pass
    assert str(raised.value) == (
        f"no answer from the inference server at {server.url}/v1 (status 503: loading): start it, "
        "set --openai.base_url to its address, or check its own log"
    )


async def test_one_of_two_servers_is_enough_to_start(
    bench: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        PolicyServer(ONE, tokenizer) as dead,
        ScriptedServer(ONE, tokenizer, chat_tokens=True) as server,
    ):
        await dead.close()
        async with bench.environment(dead.url, others=[(server.url, "openai")]) as env:
            assert {type(s.client.dialect) for s in env.server.servers} == {ChatTokens}
    assert (
        f"Starting without some servers: no answer from the inference server at {dead.url}"
        in caplog.text
    )
