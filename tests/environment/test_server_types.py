"""One group of rollouts on each of Atropos's server types, over real HTTP."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from atroposlib.envs.server_handling.server_baseline import ServerBaseline
from scripted_server import ScriptedServer, SglangServer, VllmServer
from serve_loop import Keeping, registration

from reasoning_gym_environment import ReasoningGymEnv, ReasoningGymEnvConfig
from reasoning_gym_environment.demo.policy import Sample, ScriptedPolicy
from reasoning_gym_environment.demo.server import TURN_END, TURN_START, PolicyServer
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference.dialects import SamplingParams
from reasoning_gym_environment.inference.errors import InferenceError
from reasoning_gym_environment.inference.prompts import SYSTEM_PROMPTS
from reasoning_gym_environment.records import Problem
from reasoning_gym_environment.storage.dumps import read_dump

KINDS = ("openai", "vllm", "sglang", "trl")
ONE = ScriptedPolicy(["<answer>1</answer>"])
TRUNCATED = Sample(text="<think>and then, and then", finish_reason="length")
BROKEN = "half \ud83d <answer>nope</answer>"


class BrokenTextServer(PolicyServer):
    """Answers every chat with half a surrogate pair, as JSON can carry it."""

    async def _chat(self, request: web.Request) -> web.Response:
        reply = json.loads((await super()._chat(request)).text or "")
        for choice in reply["choices"]:
            choice["message"]["content"] = BROKEN
        return web.json_response(reply)


@dataclass
class Running:
    """An environment, the script its policy plays, and the kind of server between them."""

    env: ReasoningGymEnv
    script: Any
    kind: str


@pytest_asyncio.fixture(scope="module", params=KINDS)
async def running(
    request: pytest.FixtureRequest, module_bench: Any, module_script: Any
) -> AsyncIterator[Running]:
    settings = {
        "temperature": 0.7,
        "top_p": 0.9,
        "group_size": 7,
        "include_messages": True,
    }
    async with module_bench.playing(module_script, request.param, **settings) as env:
        yield Running(env, module_script, request.param)


def samples_for(problem: Problem) -> list[tuple[Sample, str, float]]:
    """Completions with the status and the score that each deserves."""
    right, wrong = f"<answer>{problem.oracle}</answer>", "<answer>nope</answer>"
    return [
        (Sample(text=f"<think>é 日本 🎉</think>{right}"), "solved", 1.0),
        (Sample(text=f"<think>hm</think>\n\n{wrong}"), "wrong", 0.0),
        (Sample(text=f"the template opened it</think> {right} "), "solved", 1.0),
        (TRUNCATED, "no_answer", 0.0),
        (Sample(text=f"<think>{right}</think>{problem.oracle}"), "no_answer", 0.0),
        (Sample(text=f"{right} or {wrong}"), "several_answers", 0.0),
        (Sample(text="<answer> </answer>"), "no_answer", 0.0),
    ]


async def group_of(env: ReasoningGymEnv, problem: Problem) -> dict[str, Any]:
    group, backlog = await env.collect_trajectories(problem)
    assert group is not None
    assert backlog == []
    return group


async def test_a_group_is_what_the_server_returned(
    running: Running, tokenizer: Any
) -> None:
    problem = await running.env.get_next_item()
    cases = samples_for(problem)
    samples = [sample for sample, _, _ in cases]
    running.script.play(*samples)
    group = await group_of(running.env, problem)
    conversation = [
        {"role": "system", "content": SYSTEM_PROMPTS["think"]},
        {"role": "user", "content": problem.question},
    ]
    answers = [{"role": "assistant", "content": sample.text} for sample in samples]
    masked = {"set_advantage_to_zero": True}
    assert group["statuses"] == [status for _, status, _ in cases]
    assert group["scores"] == [score for _, _, score in cases]
    assert group["messages"] == [[*conversation, answer] for answer in answers]
    assert group["overrides"] == [masked if s is TRUNCATED else {} for s in samples]
    assert group["generation_params"] == {"temperature": 0.7, "top_p": 0.9}
    prompt = "".join(
        f"{TURN_START}{one['role']}\n{one['content']}{TURN_END}\n"
        for one in conversation
    )
    for tokens, masks, sample in zip(
        group["tokens"], group["masks"], samples, strict=True
    ):
        length = masks.count(-100)
        assert (
            tokenizer.decode(list(tokens[:length]))
            == f"{prompt}{TURN_START}assistant\n"
        )
        assert list(tokens[length:]) == list(masks[length:])
        assert tokenizer.decode(list(masks[length:])) == (
            sample.text if sample is TRUNCATED else sample.text + TURN_END
        )
    if running.kind == "openai":
        assert group["inference_logprobs"] == []
        return
    for masks, logprobs in zip(
        group["masks"], group["inference_logprobs"], strict=True
    ):
        expected = [1.0 if mask == -100 else -(1 + mask % 10) / 10 for mask in masks]
        assert logprobs == pytest.approx(expected)


async def test_evaluation_has_separate_request_limits(running: Running) -> None:
    [server] = running.env.server.servers
    trained, evaluated = len(server.request_timings), len(server.eval_request_timings)
    problem = await running.env.get_next_item()
    running.script.play("<answer>1</answer>")
    sampling = SamplingParams(temperature=0.1, top_p=1.0, split="eval")
    length = running.env.run.state.length_limit
    await running.env.inference.sample(
        problem.question, n=9, length_limit=length, sampling=sampling
    )
    assert len(server.request_timings) == trained
    # At most 8 completions a request.
    assert len(server.eval_request_timings) == evaluated + 2


@pytest.mark.parametrize("kind", KINDS)
async def test_a_group_larger_than_one_request_is_complete(
    kind: str, bench: Any, script: Any
) -> None:
    texts = [f"<answer>{number}</answer>" for number in range(12)]
    async with bench.playing(script, kind, group_size=12, include_messages=True) as env:
        problem = await env.get_next_item()
        script.play(*texts)
        group = await group_of(env, problem)
    assert Counter(m[-1]["content"] for m in group["messages"]) == Counter(texts)
    assert len(group["tokens"]) == len(group["masks"]) == len(group["scores"]) == 12


@pytest.mark.parametrize("text", ["so " * 2000, "日本🎉" * 2000])
@pytest.mark.parametrize("kind", KINDS)
async def test_rows_stay_below_the_trainers_limit(
    kind: str, text: str, bench: Any
) -> None:
    async with bench.playing(ScriptedPolicy([text]), kind) as env:
        problem = await env.get_next_item()
        prompt = (await group_of(env, problem))["masks"][0].count(-100)
        for room in (4, 5, 40):
            limit = prompt + room
            await env.run.begin(registration(bench.folder, max_token_len=limit))
            assert env.max_token_len == limit
            group = await group_of(env, problem)
            lengths = {len(tokens) for tokens in group["tokens"]}
            assert max(lengths) < limit
            assert min(lengths) > prompt
            assert set(group["statuses"]) == {"no_answer"}


@pytest.mark.parametrize("first", ["vllm", "sglang"])
async def test_servers_of_several_types_each_speak_their_own(
    first: str, bench: Any, tokenizer: Any
) -> None:
    async with (
        VllmServer(ScriptedPolicy(["<answer>1</answer>"]), tokenizer) as vllm,
        SglangServer(ScriptedPolicy(["<answer>2</answer>"]), tokenizer) as sglang,
    ):
        both = [(vllm.url, "vllm"), (sglang.url, "sglang")]
        (url, kind), other = both if first == "vllm" else reversed(both)
        async with bench.environment(url, kind, others=[other], group_size=32) as env:
            group = await group_of(env, await env.get_next_item())  # of four requests
    assert env.inference.server_type == f"{kind}, {other[1]}"
    assert (vllm.requests, sglang.requests) == (2, 2)
    texts = Counter(
        tokenizer.decode([m for m in row if m != -100]) for row in group["masks"]
    )
    assert texts == {f"<answer>{n}</answer>{TURN_END}": 16 for n in (1, 2)}
    assert [*map(len, group["inference_logprobs"])] == [*map(len, group["tokens"])]


async def test_the_tokenizer_is_by_default_that_of_the_first_server_with_tokens(
    bench: Any,
) -> None:
    url = "http://127.0.0.1:1"
    async with bench.unprepared(url, others=[(url, "vllm")], tokenizer_name="") as env:
        assert env.tokenizer is not None


def test_one_configuration_for_several_servers_gives_them_its_type(
    bench: Any, tokenizer_folder: str
) -> None:
    """Atropos makes them of a `ServerBaseline`, without its type."""
    one = ServerBaseline(server_type="sglang", model_name=tokenizer_folder)
    env = ReasoningGymEnv(ReasoningGymEnvConfig(**bench.settings()), one)
    assert len(env.server.servers) > 1
    assert {s.config.server_type for s in env.server.servers} == {"sglang"}


async def test_a_server_that_is_down_at_the_start_is_asked_in_its_own_types_way(
    bench: Any, tokenizer: Any
) -> None:
    sglang = SglangServer(ONE, tokenizer)
    await sglang.start()
    await sglang.close()
    async with (
        VllmServer(ONE, tokenizer) as vllm,
        bench.environment(
            vllm.url, "vllm", others=[(sglang.url, "sglang")], group_size=32
        ) as env,
    ):
        await sglang.start(int(sglang.url.rpartition(":")[2]))
        group = await group_of(env, await env.get_next_item())
        await sglang.close()
    assert (vllm.requests, sglang.requests) == (2, 2)
    assert len(group["inference_logprobs"]) == 32


async def test_truncated_completions_are_trained_on_if_configured(
    bench: Any, script: Any
) -> None:
    script.play(TRUNCATED, "<answer>1</answer>")
    async with bench.playing(script, mask_too_long_completions=False) as env:
        group = await group_of(env, await env.get_next_item())
    assert group["overrides"] == [{}, {}, {}, {}]
    assert group["messages"] is None


async def test_reasoning_content_is_the_thought(
    bench: Any, script: Any, tokenizer: Any
) -> None:
    texts: list[str] = []

    class Playing(Keeping):
        async def get_next_item(self) -> Problem:
            problem = await super().get_next_item()
            answer = f"<answer>{problem.oracle}</answer>"
            texts[:] = [
                f"<think>or <answer>0</answer></think>{answer}",
                f"<think>is it {answer}</think>no",
            ]
            script.play(*texts)
            return problem

    async with (
        ScriptedServer(script, tokenizer, splits_reasoning=True) as server,
        bench.unprepared(
            server.url, of=Playing, include_messages=True, dump_all_rollouts=True
        ) as env,
    ):
        env.n_groups_to_process = 1
        await env.process_manager()
    [group] = env.groups
    assert group["statuses"] == ["solved", "no_answer"] * 2
    assert [m[-1]["content"] for m in group["messages"]] == texts * 2
    for masks, text in zip(group["masks"], texts * 2, strict=True):
        assert tokenizer.decode([m for m in masks if m != -100]) == text + TURN_END


async def test_unpaired_surrogates_in_a_reply_are_trained_on_and_dumped(
    bench: Any, tokenizer: Any
) -> None:
    async with (
        BrokenTextServer(ScriptedPolicy([""]), tokenizer) as server,
        bench.environment(
            server.url, dump_failed_rollouts=True, include_messages=True
        ) as env,
    ):
        group = await group_of(env, await env.get_next_item())
    mended = BROKEN.replace("\ud83d", "\ufffd")  # the API would choke on the half
    assert [m[-1]["content"] for m in group["messages"]] == [mended] * 4
    for masks in group["masks"]:
        text = tokenizer.decode([mask for mask in masks if mask != -100])
        assert text == mended + TURN_END
    assert env.statistics.counts["rollouts/broken_text"] == 4
    [dump] = bench.folder.glob("dumps/*.jsonl")
    [row] = read_dump(dump).rows
    assert {rollout["conversation"][-1]["content"] for rollout in row["rollouts"]} == {
        BROKEN
    }


async def test_an_endpoint_that_ignores_n_returns_complete_groups(
    bench: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with (
        ScriptedServer(ONE, tokenizer, ignores_n=True) as server,
        bench.environment(server.url) as env,
    ):
        group = await group_of(env, await env.get_next_item())
    assert len(group["tokens"]) == 4
    assert "since it takes no n above 1" in caplog.text
    assert "accounting mismatch" not in caplog.text  # the caller has the group


async def test_prompts_that_leave_no_room_are_counted_and_replaced(bench: Any) -> None:
    settings = {
        "include_tasks": "gcd,sudoku",
        "system_prompt": "",
        "max_token_length": 120,
    }
    async with bench.playing(ONE, **settings) as env:
        problems = [await env.get_next_item() for _ in range(20)]
        group = await group_of(env, problems[0])
    assert {problem.recipe.task for problem in problems} == {"gcd"}
    assert env.statistics.counts["sampling/prompts_too_long"] > 0
    assert all(len(tokens) <= 120 for tokens in group["tokens"])


async def test_a_limit_below_every_prompt_is_an_error(bench: Any) -> None:
    async with bench.playing(ScriptedPolicy([""]), max_token_length=50) as env:
        with pytest.raises(
            ConfigurationError, match="max_token_length 50 leaves no room"
        ):
            await env.get_next_item()


async def test_failing_requests_are_retried(bench: Any, tokenizer: Any) -> None:
    async with (
        ScriptedServer(ONE, tokenizer, failure_rate=0.3, seed=1) as server,
        bench.environment(server.url, "vllm", of=Keeping) as env,
    ):
        problems = [await env.get_next_item() for _ in range(12)]
        are_done = await asyncio.gather(*map(env.run.groups.work_on, problems))
    assert server.failures > 0
    assert all(len(group["tokens"]) == 4 for group in env.groups)
    assert len(env.groups) == sum(are_done) > 6
    assert len(env.groups) + env.statistics.counts["groups/lost"] == 12


async def test_a_group_without_completions_is_counted_as_lost(
    bench: Any, tokenizer: Any
) -> None:
    async with (
        ScriptedServer(ScriptedPolicy([""]), tokenizer, failure_rate=1.0) as server,
        bench.environment(server.url, "vllm", dump_failed_rollouts=True) as env,
    ):
        problem = await env.get_next_item()
        with pytest.raises(InferenceError):
            await env.collect_trajectories(problem)
        assert not await env.run.groups.work_on(problem)
    assert env.statistics.counts["groups/lost"] == 1
    assert env.statistics.counts["groups/collected"] == 0
    assert not list(bench.folder.glob("dumps/*.jsonl"))
