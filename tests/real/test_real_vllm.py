"""The environment against a real vLLM with a real model, on a CPU: `make test-real`."""

import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from atroposlib.envs.base import APIServerConfig
from real_runs import (
    MAX_LENGTH,
    MODEL,
    PYTHON,
    batches_of_serve,
    free_port,
    options,
    run_command,
    running,
    server_settings,
    settings,
)
from scripted_server import SglangServer
from transformers import AutoTokenizer

from reasoning_gym_environment import ReasoningGymEnv, ReasoningGymEnvConfig
from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.storage.dumps import read_dump

pytestmark = [pytest.mark.real, pytest.mark.processes]

HERE = Path(__file__).parent
KINDS = ["vllm", "openai"]
COMPARED_ROWS = 4
TOLERANCE_MEAN = 0.05
TOLERANCE_MOST = 0.5
"""Of logprobs between vLLM in bfloat16 and transformers in float32, with the same weights."""
OTHER_TEMPERATURE_MEAN = 0.1
"""The least mean difference to logprobs of another temperature: the comparison can tell."""


@asynccontextmanager
async def real_vllm(
    folder: Path, *options: str, model: str = MODEL
) -> AsyncIterator[str]:
    """The URL of a vLLM that is up, ended afterwards."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(HERE / "serve_vllm.sh"), PYTHON, model, str(port), *options]
    async with running(command, folder / "vllm.log", f"{url}/health"):
        yield url


@pytest_asyncio.fixture(scope="module")
async def processed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("processed")
    async with real_vllm(folder, "--logprobs-mode", "processed_logprobs") as url:
        yield url


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(MODEL)


@asynccontextmanager
async def environment(
    url: str, kind: str, folder: Path, *, model: str = MODEL, **changes: Any
) -> AsyncIterator[ReasoningGymEnv]:
    config = ReasoningGymEnvConfig(**settings(folder, **changes))
    env = ReasoningGymEnv(
        config, [APIServerConfig(**server_settings(url, kind, model))]
    )
    try:
        await env.setup()
        yield env
    finally:
        await env.close()


def rows_of(group: dict[str, Any]) -> list[tuple[list[int], list[int], list[float]]]:
    """Tokens, masks and logprobs of each row, as lists."""
    columns = (group["tokens"], group["masks"], group["inference_logprobs"])
    return [(list(t), list(m), list(p)) for t, m, p in zip(*columns, strict=True)]


def check_rows(group: dict[str, Any], tokenizer: Any) -> None:
    """Masks and logprobs line up, and completions end with a stop token unless they were cut."""
    for row, (tokens, masks, logprobs) in enumerate(rows_of(group)):
        assert len(tokens) == len(masks) == len(logprobs)
        prompt = masks.count(-100)
        assert masks == [-100] * prompt + tokens[prompt:]
        assert logprobs[:prompt] == [1.0] * prompt
        assert all(logprob <= 0 for logprob in logprobs[prompt:])
        assert tokenizer.decode(tokens[:prompt]).endswith("<|im_start|>assistant\n")
        if group.get("messages"):
            text = tokenizer.decode(tokens[prompt:], skip_special_tokens=True)
            assert text == group["messages"][row][-1]["content"]
        stopped = tokens[-1] == tokenizer.eos_token_id
        assert stopped or len(tokens) >= MAX_LENGTH - 2
        assert tokenizer.eos_token_id not in tokens[prompt:-1]


def reference(
    rows: list[list[Any]], temperatures: list[float]
) -> list[list[list[float]]]:
    """By temperature and row, the logprobs of transformers for the same tokens."""
    done = subprocess.run(
        [PYTHON, str(HERE / "reference_logprobs.py"), MODEL, *map(str, temperatures)],
        input=json.dumps(rows),
        capture_output=True,
        text=True,
        check=True,
    )
    answers: list[list[list[float]]] = json.loads(done.stdout)
    return answers


def differences(rows: list[list[float]], others: list[list[float]]) -> list[float]:
    return [
        abs(one - other)
        for row, others_row in zip(rows, others, strict=True)
        for one, other in zip(row, others_row, strict=True)
    ]


def check_logprobs(
    group: dict[str, Any], *, temperature: float, another: float
) -> None:
    """They are those of transformers at this temperature, and not those at another."""
    chosen = rows_of(group)[:COMPARED_ROWS]
    rows = [[masks.count(-100), tokens] for tokens, masks, _ in chosen]
    ours = [logprobs[masks.count(-100) :] for _, masks, logprobs in chosen]
    right, wrong = (
        differences(ours, those) for those in reference(rows, [temperature, another])
    )
    means = sum(right) / len(right), sum(wrong) / len(wrong)
    print(
        f"{len(right)} logprobs at temperature {temperature}: mean difference {means[0]:.4f}, "
        f"largest {max(right):.4f}; mean difference to temperature {another}: {means[1]:.4f}"
    )
    assert means[0] < TOLERANCE_MEAN
    assert max(right) < TOLERANCE_MOST
    assert means[1] > OTHER_TEMPERATURE_MEAN


@pytest.mark.parametrize("kind", KINDS)
async def test_serve_feeds_a_trainer(
    kind: str, processed: str, tokenizer: Any, tmp_path: Path
) -> None:
    batches = await batches_of_serve(processed, kind, tmp_path, batch_size=8, steps=2)
    assert len(batches) == 2
    for group in (group for batch in batches for group in batch):
        check_rows(group, tokenizer)


@pytest.mark.parametrize("kind", KINDS)
async def test_process_writes_groups(
    kind: str, processed: str, tokenizer: Any, tmp_path: Path
) -> None:
    groups = tmp_path / "groups.jsonl"
    changes = {
        "data_path_to_save_groups": groups,
        "total_steps": 2,
        "include_messages": True,
        "dump_failed_rollouts": True,
    }
    await run_command("process", *options(processed, kind, tmp_path, **changes))
    rows = [json.loads(line) for line in groups.read_text().splitlines()]
    assert len(rows) == 2
    for row in rows:
        check_rows(row, tokenizer)


async def test_evaluate_counts_every_sample(processed: str, tmp_path: Path) -> None:
    await run_command("evaluate", *options(processed, "vllm", tmp_path))
    [metrics] = tmp_path.glob("evaluation_*/metrics.json")
    results = json.loads(metrics.read_text())["results"]["all"]
    assert results.get("eval/status/unscored", 0) == 0
    samples = metrics.with_name("samples.jsonl").read_text().splitlines()
    assert len(samples) == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_an_unknown_model_ends_the_start(
    kind: str, processed: str, tmp_path: Path
) -> None:
    config = ReasoningGymEnvConfig(**settings(tmp_path, tokenizer_name=MODEL))
    server = {**server_settings(processed, kind), "model_name": "nobody/knows"}
    env = ReasoningGymEnv(config, [APIServerConfig(**server)])
    try:
        with pytest.raises(ConfigurationError) as raised:
            await env.setup()
    finally:
        await env.close()
    assert (
        "refuses requests with status 404 (The model `nobody/knows` does not exist"
        in str(raised.value)
    )


async def test_a_context_that_is_too_short_ends_the_start(
    processed: str, tmp_path: Path
) -> None:
    with pytest.raises(
        ConfigurationError, match="takes 1024 tokens and max_token_length is 2048"
    ):
        async with environment(processed, "vllm", tmp_path, max_token_length=2048):
            pass


@pytest.mark.parametrize("kind", KINDS)
async def test_a_groups_tokens_and_logprobs_are_the_models(
    kind: str, processed: str, tokenizer: Any, tmp_path: Path
) -> None:
    changes = {"group_size": 10, "include_messages": True}
    async with environment(processed, kind, tmp_path, **changes) as env:
        group, _ = await env.collect_trajectories(await env.get_next_item())
    assert group is not None
    assert len(group["tokens"]) == 10
    assert len({tuple(tokens) for tokens in group["tokens"]}) > 5
    check_rows(group, tokenizer)
    check_logprobs(group, temperature=0.7, another=1.0)


async def test_a_server_of_another_type_shares_the_run(
    processed: str, tokenizer: Any, tmp_path: Path
) -> None:
    """A stand-in for SGLang, which needs CUDA."""
    config = ReasoningGymEnvConfig(
        **settings(tmp_path, group_size=32, include_messages=True)
    )
    async with SglangServer(
        ScriptedPolicy(["The answer is <answer>7</answer>"]), tokenizer
    ) as own:
        kinds = {"vllm": processed, "sglang": own.url}
        servers = [
            APIServerConfig(**server_settings(url, kind)) for kind, url in kinds.items()
        ]
        env = ReasoningGymEnv(config, servers)
        try:
            await env.setup()
            # Four requests.
            group, _ = await env.collect_trajectories(await env.get_next_item())
        finally:
            await env.close()
    assert group is not None
    check_rows(group, tokenizer)
    texts = [messages[-1]["content"] for messages in group["messages"]]
    assert own.requests == 2
    assert texts.count("The answer is <answer>7</answer>") == 16
    assert len(set(texts)) > 8


async def test_raw_logprobs_are_known_and_fit_temperature_1(
    tmp_path: Path, tokenizer: Any
) -> None:
    async with real_vllm(tmp_path) as url:
        for kind in KINDS:
            with pytest.raises(
                ConfigurationError, match="--logprobs-mode processed_logprobs"
            ):
                async with environment(url, kind, tmp_path):
                    pass
        async with environment(url, "vllm", tmp_path, temperature=1.0) as env:
            group, _ = await env.collect_trajectories(await env.get_next_item())
    assert group is not None
    check_rows(group, tokenizer)
    check_logprobs(group, temperature=1.0, another=0.7)


async def test_evaluate_and_process_need_no_tokenizer(
    processed: str, tmp_path: Path
) -> None:
    changes = {"tokenizer_name": "", "max_token_length": 200, "dump_all_rollouts": True}
    await run_command("evaluate", *options(processed, "openai", tmp_path, **changes))
    await run_command(
        "process", *options(processed, "openai", tmp_path, total_steps=1, **changes)
    )
    files = [
        *tmp_path.glob("evaluation_*/samples.jsonl"),
        *tmp_path.glob("*rollouts*.jsonl"),
    ]
    rollouts = [r for f in files for row in read_dump(f).rows for r in row["rollouts"]]
    assert len(rollouts) == 2 + 4
    assert all(0 < r["completion_tokens"] < len(str(r)) for r in rollouts)
    assert all(r["tokens"] > r["completion_tokens"] for r in rollouts)


async def test_a_base_models_tokenizer_works_with_the_plain_template(
    processed: str, tokenizer: Any, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    shutil.copytree(
        MODEL, base, ignore=shutil.ignore_patterns("*.jinja", "*.safetensors")
    )
    changes = {"tokenizer_name": str(base), "total_steps": 1}
    groups = tmp_path / "groups.jsonl"
    said = await run_command(
        "process", *options(processed, "vllm", tmp_path, **changes), status=2
    )
    assert said.splitlines()[-1] == (
        f"error: the tokenizer {base} has no chat template (base models have none): set "
        "--env.chat_template to plain for the built-in one, or to a file with another"
    )
    changes |= {"chat_template": "plain", "data_path_to_save_groups": str(groups)}
    await run_command("process", *options(processed, "vllm", tmp_path, **changes))
    [row] = [json.loads(line) for line in groups.read_text().splitlines()]
    [masks, *_] = row["masks"]
    prompt = tokenizer.decode(row["tokens"][0][: masks.count(-100)])
    assert prompt.startswith("<|im_start|>Solve the problem.")
    assert prompt.endswith("\n\nAssistant:")


@pytest.fixture(scope="module")
def thinking_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The model with think tags as tokens, and a template that opens the thought."""
    folder = tmp_path_factory.mktemp("thinking") / "model"
    shutil.copytree(MODEL, folder)
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    tags = {"<gh_stars>": "<think>", "<issue_start>": "</think>"}
    for token in content["added_tokens"]:
        token["special"] &= token["content"] not in tags
        token["content"] = tags.get(token["content"], token["content"])
    vocabulary = content["model"]["vocab"]
    content["model"]["vocab"] = {
        tags.get(name, name): n for name, n in vocabulary.items()
    }
    file.write_text(json.dumps(content))
    template = folder / "chat_template.jinja"
    template.write_text(
        template.read_text() + "{% if add_generation_prompt %}<think>{% endif %}"
    )
    return str(folder)


async def test_a_reasoning_parser_does_not_change_what_is_trained_on(
    thinking_model: str, tmp_path: Path
) -> None:
    """With the parser the thought is in a field of its own; the token ids are the same."""
    parser = (
        "--reasoning-parser",
        "deepseek_r1",
        "--logprobs-mode",
        "processed_logprobs",
    )
    tokenizer = AutoTokenizer.from_pretrained(thinking_model)
    changes = {"tokenizer_name": thinking_model, "include_messages": True}
    async with real_vllm(tmp_path, *parser, model=thinking_model) as url:
        for kind in KINDS:  # chats go through the parser, completions don't
            async with environment(
                url, kind, tmp_path, model=thinking_model, **changes
            ) as env:
                group, _ = await env.collect_trajectories(await env.get_next_item())
            assert group is not None
            for row, (tokens, masks, _) in enumerate(rows_of(group)):
                prompt = masks.count(-100)
                assert tokenizer.decode(tokens[:prompt]).endswith(
                    "<|im_start|>assistant\n<think>"
                )
                text = tokenizer.decode(tokens[prompt:], skip_special_tokens=True)
                assert "<think>" + text == group["messages"][row][-1]["content"]
            check_logprobs(group, temperature=0.7, another=1.0)
        unknown = {"tokenizer_name": "", "max_token_length": 200}
        given = options(url, "openai", tmp_path, model=thinking_model, **unknown)
        await run_command("evaluate", *given)
    [samples] = tmp_path.glob("evaluation_*/samples.jsonl")
    for row in read_dump(samples).rows:
        assert row["rollouts"][0]["conversation"][-1]["content"].startswith("<think>")
        assert row["rollouts"][0]["completion_tokens"] > 0
