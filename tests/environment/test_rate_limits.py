"""A server that limits the rate of requests changes how long a run takes, and nothing else."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedServer

from reasoning_gym_environment.demo.policy import Sample
from reasoning_gym_environment.demo.server import PolicyServer

# Atropos says so where there is no trainer.
pytestmark = pytest.mark.filterwarnings("ignore:Trainer requested to ignore max length")

ITEMS = {"num_eval_samples_per_task": 60}


class ByQuestion:
    """Answers each question in its own way, every time."""

    def sample(self, question: str, n: int) -> list[Sample]:
        return [Sample(text=f"<answer>{zlib.crc32(question.encode()) % 2 + 1}</answer>")] * n


def metrics_of(folder: Path) -> dict[str, float]:
    numbers = json.loads((folder / "metrics.json").read_text())["results"]["all"]
    return dict(numbers)


async def test_an_evaluation_has_the_same_result_with_a_rate_limit(
    bench: Any, tokenizer: Any
) -> None:
    async with (
        PolicyServer(ByQuestion(), tokenizer) as free,
        ScriptedServer(ByQuestion(), tokenizer, allowed=20, window=0.5) as limited,
    ):
        async with bench.environment(
            free.url, data_dir_to_save_evals=str(bench.folder / "free"), **ITEMS
        ) as env:
            await env.evaluate()
        expected = metrics_of(env.evaluation.folder)
        folder = bench.folder / "limited"
        options = bench.options(limited.url, data_dir_to_save_evals=folder, **ITEMS)
        async with bench.command("evaluate", *options) as command:
            assert await command.exit_code() == 0, command.said()
    assert limited.refused > 0
    assert metrics_of(folder) == expected
    assert 0.1 < expected["eval/solved"] < 0.6
    assert " Rate limit: 429 Too Many Requests from " in command.said()


async def test_a_rate_limit_loses_no_training_group(bench: Any, tokenizer: Any) -> None:
    async with ScriptedServer(ByQuestion(), tokenizer, allowed=4, window=2) as server:
        options = bench.options(
            server.url,
            total_steps=8,
            data_path_to_save_groups=bench.folder / "groups.jsonl",
            ensure_scores_are_not_same=False,
        )
        async with bench.command("process", *options) as command:
            assert await command.exit_code() == 0, command.said()
    assert server.refused > 0
    assert "8 started = 8 collected + 0 lost + 0 interrupted" in command.said()
