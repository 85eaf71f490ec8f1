"""The environment against a real vLLM with a real model, on a CPU: `make test-real`."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from atroposlib.envs.base import APIServerConfig
from transformers import AutoTokenizer

from reasoning_gym_environment import ReasoningGymEnv, ReasoningGymEnvConfig
from reasoning_gym_environment.demo.trainer import ApiServer, Trainer
from reasoning_gym_environment.errors import ConfigurationError

pytestmark = [pytest.mark.real, pytest.mark.processes]

HERE = Path(__file__).parent
PYTHON = os.environ.get("REAL_PYTHON", "python")
MODEL = os.environ.get("REAL_MODEL", "model")
START_SECONDS = 400
KINDS = ["vllm", "openai"]
MAX_LENGTH = 256
COMPARED_ROWS = 4
TOLERANCE_MEAN = 0.05
TOLERANCE_MOST = 0.5
"""Of logprobs between vLLM in bfloat16 and transformers in float32, with the same weights."""
OTHER_TEMPERATURE_MEAN = 0.1
"""The least mean difference to logprobs of another temperature: the comparison can tell."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def real_vllm(folder: Path, *options: str) -> AsyncIterator[str]:
    """The URL of a vLLM that is up, ended afterwards."""
    port = free_port()
    command = [str(HERE / "serve_vllm.sh"), PYTHON, MODEL, str(port), *options]
    with (folder / "vllm.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        for _ in range(START_SECONDS):
            assert server.poll() is None, (folder / "vllm.log").read_text()[-4000:]
            if await is_healthy(f"http://127.0.0.1:{port}"):
                break
            await asyncio.sleep(1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=60)


async def is_healthy(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/health") as response:
            return bool(response.ok)
    except aiohttp.ClientError:
        return False


@pytest_asyncio.fixture(scope="module")
async def processed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("processed")
    async with real_vllm(folder, "--logprobs-mode", "processed_logprobs") as url:
        yield url


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(MODEL)


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "tokenizer_name": MODEL,
        "system_prompt": "direct",
        "include_tasks": "gcd",
        "task_processes": 1,
        "group_size": 4,
        "max_token_length": MAX_LENGTH,
        "temperature": 0.7,
        "max_num_workers": 2,
        "num_eval_samples_per_task": 2,
        "steps_per_eval": 0,
        "use_wandb": False,
        "ensure_scores_are_not_same": False,
        "data_dumps_dir": str(folder),
        **changes,
    }


def server_settings(url: str, kind: str) -> dict[str, Any]:
    return {"server_type": kind, "base_url": f"{url}/v1", "model_name": MODEL, "api_key": "x"}


@asynccontextmanager
async def environment(
    url: str, kind: str, folder: Path, **changes: Any
) -> AsyncIterator[ReasoningGymEnv]:
    config = ReasoningGymEnvConfig(**settings(folder, **changes))
    env = ReasoningGymEnv(config, [APIServerConfig(**server_settings(url, kind))])
    try:
        await env.setup()
        yield env
    finally:
        await env.close()


def options(url: str, kind: str, folder: Path, **changes: Any) -> list[str]:
    groups = {"env": settings(folder, **changes), "openai": server_settings(url, kind)}
    return [
        part
        for prefix, values in groups.items()
        for name, value in values.items()
        for part in (f"--{prefix}.{name}", str(value))
    ]


async def run_command(*arguments: str, timeout: float = 300) -> str:
    """What the command says; fails where its exit status isn't 0."""
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "reasoning_gym_environment", *arguments),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, said = await asyncio.wait_for(command.communicate(), timeout)
    finally:
        if command.returncode is None:
            command.kill()
    assert command.returncode == 0, said.decode()[-4000:]
    return said.decode()


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


def reference(rows: list[list[Any]], temperatures: list[float]) -> list[list[list[float]]]:
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


def check_logprobs(group: dict[str, Any], *, temperature: float, another: float) -> None:
    """They are those of transformers at this temperature, and not those at another."""
    chosen = rows_of(group)[:COMPARED_ROWS]
    rows = [[masks.count(-100), tokens] for tokens, masks, _ in chosen]
    ours = [logprobs[masks.count(-100) :] for _, masks, logprobs in chosen]
    right, wrong = (differences(ours, those) for those in reference(rows, [temperature, another]))
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
    batches: list[Any] = []

    class Keeping(Trainer):
        def _train(self, batch: list[dict[str, Any]]) -> None:
            super()._train(batch)
            batches.append(batch)

    async with ApiServer() as api:
        trainer = Keeping(
            api.url, batch_size=8, max_token_len=512, num_steps=2, checkpoint_dir=tmp_path
        )
        training = asyncio.create_task(trainer.run())
        changes = {"rollout_server_url": api.url, "total_steps": 2}
        serving = asyncio.create_task(
            run_command("serve", *options(processed, kind, tmp_path, **changes))
        )
        await asyncio.wait({training, serving}, timeout=300, return_when="FIRST_COMPLETED")
        if serving.done():
            serving.result()
        await asyncio.wait_for(training, timeout=60)
        serving.cancel()
        await asyncio.wait({serving})
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
async def test_an_unknown_model_ends_the_start(kind: str, processed: str, tmp_path: Path) -> None:
    config = ReasoningGymEnvConfig(**settings(tmp_path, tokenizer_name=MODEL))
    server = {**server_settings(processed, kind), "model_name": "nobody/knows"}
    env = ReasoningGymEnv(config, [APIServerConfig(**server)])
    try:
        with pytest.raises(ConfigurationError) as raised:
            await env.setup()
    finally:
        await env.close()
    assert "refuses requests with status 404 (The model `nobody/knows` does not exist" in str(
        raised.value
    )


async def test_a_context_that_is_too_short_ends_the_start(processed: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="takes 1024 tokens and max_token_length is 2048"):
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


async def test_raw_logprobs_are_known_and_right_at_temperature_1(
    tmp_path: Path, tokenizer: Any
) -> None:
    async with real_vllm(tmp_path) as url:
        for kind in KINDS:
            with pytest.raises(ConfigurationError, match="--logprobs-mode processed_logprobs"):
                async with environment(url, kind, tmp_path):
                    pass
        async with environment(url, "vllm", tmp_path, temperature=1.0) as env:
            group, _ = await env.collect_trajectories(await env.get_next_item())
    assert group is not None
    check_rows(group, tokenizer)
    check_logprobs(group, temperature=1.0, another=0.7)
