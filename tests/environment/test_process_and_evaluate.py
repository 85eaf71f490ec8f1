"""`process` and `evaluate`: as commands, and in process where the server must misbehave."""

import asyncio
import json
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from scripted_server import ScriptedServer
from taught_policy import process_taught
from trainer_api import until

from reasoning_gym_environment import (
    AsyncReasoningGym,
    ReasoningGymEnv,
    ReasoningGymEnvConfig,
)
from reasoning_gym_environment.atropos.output import describe_output
from reasoning_gym_environment.demo.policy import Sample, ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference.errors import InferenceError
from reasoning_gym_environment.inference.prompts import BOXED_SYSTEM_PROMPTS
from reasoning_gym_environment.problems.seeds import EVAL_SEED
from reasoning_gym_environment.records import Problem
from reasoning_gym_environment.storage.dumps import read_dump

# Atropos says so where there is no trainer.
pytestmark = pytest.mark.filterwarnings("ignore:Trainer requested to ignore max length")

WRONG = ScriptedPolicy(["<think>hm</think><answer>nope</answer>"])
GROUPS = 3


class Impatient(ReasoningGymEnv):
    """Gives up after two lost groups, each of them asked for for a second."""

    max_consecutive_losses = 2
    failing_seconds = 1.0


@asynccontextmanager
async def processing(
    bench: Any,
    url: str,
    of: type[ReasoningGymEnv],
    *,
    groups: int = GROUPS,
    **changes: Any,
) -> AsyncIterator[ReasoningGymEnv]:
    """An environment as Atropos's `process` command prepares it."""
    settings = {
        "ensure_scores_are_not_same": False,
        "include_messages": True,
        "data_path_to_save_groups": str(bench.folder / "groups.jsonl"),
        "dump_rollouts": True,
        **changes,
    }
    async with bench.unprepared(url, of=of, **settings) as env:
        env.n_groups_to_process = groups
        env.group_size_to_process = env.config.group_size
        yield env


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def dumped(folder: Path, pattern: str) -> list[dict[str, Any]]:
    return [
        row for file in folder.glob(f"dumps/{pattern}") for row in read_dump(file).rows
    ]


async def test_process_draws_other_problems_for_another_replica(bench: Any) -> None:
    drawn = []
    for replica in ("", "0", "1", "1"):
        async with bench.playing(WRONG, replica=replica) as env:
            drawn.append([(await env.get_next_item()).recipe.seed for _ in range(8)])
            assert env.run.state.replica == replica
    assert drawn[2] == drawn[3]
    assert len({seed for seeds in drawn for seed in seeds}) == 24


@pytest.mark.nightly
async def test_process_loses_no_group_to_a_rate_limit_and_ends_though_all_is_wrong(
    bench: Any, tokenizer: Any
) -> None:
    groups = bench.folder / "groups.jsonl"
    settings = {
        "data_path_to_save_groups": groups,
        "total_steps": 8,
        "dump_failed_rollouts": True,
    }
    async with ScriptedServer(WRONG, tokenizer, allowed=4, window=2) as server:
        options = bench.options(server.url, **settings)
        async with bench.started_command("process", *options) as command:
            assert await command.exit_code() == 0, command.said()
    assert server.refused > 0
    assert "8 started = 8 collected; 8 collected = 8 written" in command.said()
    assert [row["scores"] for row in rows_of(groups)] == [[0.0] * 4] * 8
    assert len(dumped(bench.folder, "*_FAILED_rollouts_*.jsonl")) == 8
    assert groups.with_suffix(".html").exists()


async def test_process_ends_with_a_policy_that_is_always_right(
    bench: Any, tokenizer: Any, knows_all: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        PolicyServer(knows_all, tokenizer) as server,
        processing(bench, server.url, ReasoningGymEnv) as env,
    ):
        await process_taught(env, knows_all.answers, monkeypatch)
    assert [row["scores"] for row in rows_of(bench.folder / "groups.jsonl")] == [
        [1.0] * 4
    ] * GROUPS
    assert len(dumped(bench.folder, "*environment_rollouts_*.jsonl")) == GROUPS


@pytest.mark.parametrize(
    ("collected", "wanted", "why"),
    [
        (0, {}, "no group was collected"),
        (3, {"dump_all_rollouts": True}, "see the log"),
        (3, {"dump_rollouts": True}, "set --env.dump_all_rollouts"),
        (3, {"dump_rollouts": True, "data_path_to_save_groups": "none"}, "see the log"),
    ],
)
def test_process_says_why_it_wrote_nothing(
    collected: int,
    wanted: Any,
    why: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = ReasoningGymEnvConfig(data_dumps_dir=str(tmp_path), **wanted)
    path = config.data_path_to_save_groups
    groups_path = Path(path) if path else None
    describe_output(config, "run", groups_path=groups_path, collected=collected)
    assert capsys.readouterr().out == f"Wrote nothing: {why}\n"


async def test_process_deletes_a_groups_file_without_groups_before_it_names_files(
    bench: Any, tokenizer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class LooksAtTheFile(ReasoningGymEnv):
        async def setup(self) -> None:
            await super().setup()
            assert (bench.folder / "groups.jsonl").read_text() == ""

    async with (
        PolicyServer(WRONG, tokenizer) as server,
        processing(bench, server.url, LooksAtTheFile, groups=0) as env,
    ):
        await env.process_manager()
    assert "Wrote nothing: no group was collected\n" in capsys.readouterr().out
    assert not (bench.folder / "groups.jsonl").exists()


async def test_process_without_messages_writes_groups_and_no_page(
    bench: Any, tokenizer: Any
) -> None:
    async with (
        PolicyServer(WRONG, tokenizer) as server,
        processing(bench, server.url, ReasoningGymEnv, include_messages=False) as env,
    ):
        await env.process_manager()
    assert [row["messages"] for row in rows_of(bench.folder / "groups.jsonl")] == [
        None
    ] * GROUPS
    assert not (bench.folder / "groups.html").exists()


async def test_process_names_its_files_though_the_page_cannot_be_written(
    bench: Any,
    tokenizer: Any,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    (bench.folder / "groups.html").mkdir()
    async with (
        PolicyServer(WRONG, tokenizer) as server,
        processing(bench, server.url, ReasoningGymEnv) as env,
    ):
        await env.process_manager()
    groups = bench.folder / "groups.jsonl"
    assert f"Wrote {groups} (Atropos's own format)" in capsys.readouterr().out
    assert f"The page of {groups} can't be written" in caplog.text


async def test_process_says_nothing_of_files_when_it_fails_before_the_first_group(
    bench: Any, tokenizer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class Raises(ReasoningGymEnv):
        async def get_next_item(self) -> Problem:
            raise ConfigurationError("no items")

    async with (
        PolicyServer(WRONG, tokenizer) as server,
        processing(bench, server.url, Raises) as env,
    ):
        with pytest.raises(ConfigurationError, match="no items"):
            await env.process_manager()
    assert "Wrote" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["openai", "vllm"])
async def test_process_ends_when_the_inference_server_dies(
    kind: str, bench: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        PolicyServer(WRONG, tokenizer) as server,
        processing(bench, server.url, Impatient, kind=kind, groups=10**6) as env,
    ):
        processing_groups = asyncio.create_task(env.process_manager())
        await until(lambda: env.statistics.counts["groups/collected"])
        await server.close()
        with pytest.raises(
            InferenceError, match="2 groups in a row were lost"
        ) as raised:
            await processing_groups
    assert server.url in str(raised.value)
    assert "nothing was collected" not in caplog.text  # the loss was said


def report_of(folder: Path) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """The metrics and the samples of an evaluation."""
    metrics = json.loads((folder / "metrics.json").read_text())["results"]["all"]
    return metrics, rows_of(folder / "samples.jsonl")


def question(sample: dict[str, Any]) -> str:
    return sample["rollouts"][0]["conversation"][1]["content"]


class ByQuestion:
    """Answers each question in its own way, every time."""

    def sample(self, question: str, n: int) -> list[Sample]:
        return [
            Sample(text=f"<answer>{zlib.crc32(question.encode()) % 2 + 1}</answer>")
        ] * n


@pytest.mark.nightly
async def test_evaluate_writes_the_same_in_every_process_and_with_a_rate_limit(
    bench: Any, tokenizer: Any
) -> None:
    settings = {"include_tasks": "coin_flip,gcd", "num_eval_samples_per_task": 20}
    async with (
        PolicyServer(ByQuestion(), tokenizer) as free,
        ScriptedServer(ByQuestion(), tokenizer, allowed=15, window=0.5) as limited,
    ):
        options = bench.options(limited.url, seed=1, data_dumps_dir="there", **settings)
        async with bench.started_command("evaluate", *options) as command:
            assert await command.exit_code() == 0, command.said()
        async with bench.environment(free.url, seed=2, **settings) as env:
            await env.evaluate()
            trained = [await env.get_next_item() for _ in range(200)]
    assert limited.refused > 0
    assert " Rate limit: 429 Too Many Requests from " in command.said()
    [there] = bench.folder.glob("there/evaluation_*")
    [here] = bench.folder.glob("dumps/evaluation_*")
    metrics, samples = report_of(there)
    assert report_of(here)[0] == metrics
    assert [question(sample) for sample in report_of(here)[1]] == [
        question(s) for s in samples
    ]
    assert [sample["item_id"] for sample in samples] == ["coin_flip"] * 20 + [
        "gcd"
    ] * 20
    assert not {question(sample) for sample in samples} & {p.question for p in trained}
    solved = [sample["rollouts"][0]["status"] == "solved" for sample in samples]
    assert 0 < sum(solved) < 40
    assert metrics["eval/percent_correct"] == pytest.approx(sum(solved) / 40)
    assert metrics["eval/task/gcd/solved"] == pytest.approx(sum(solved[20:]) / 20)
    assert metrics["eval/category/probability/solved"] == pytest.approx(
        sum(solved[:20]) / 20
    )


@pytest.mark.parametrize(
    "eval_seed", [EVAL_SEED, pytest.param(7, marks=pytest.mark.nightly)]
)
async def test_evaluate_problems_and_a_gym_have_the_same_items(
    bench: Any, tokenizer: Any, eval_seed: int
) -> None:
    """Of tasks with known copies, disguised answers and few questions, at three levels."""
    tasks = ["caesar_cipher", "gcd", "tower_of_hanoi"]
    count = 4
    chosen = ["--env.include_tasks", ",".join(tasks), "--env.task_processes", "1"]
    seed = ["--env.eval_seed", str(eval_seed)]
    async with PolicyServer(ByQuestion(), tokenizer) as server:
        options = bench.options(
            server.url,
            include_tasks=",".join(tasks),
            num_eval_samples_per_task=count,
            eval_difficulties="0,1",
            data_dumps_dir="there",
            eval_seed=eval_seed,
        )
        async with bench.command("evaluate", *options) as command:
            assert await command.exit_code() == 0, command.said()
    [folder] = bench.folder.glob("there/evaluation_*")
    _, samples = report_of(folder)
    evaluated = by_level(
        (sample["recipe"], question(sample), sample["oracle"]) for sample in samples
    )
    assert [len(items) for items in evaluated.values()] == [count] * 3 * len(tasks)

    written = []
    for levels in ([], ["--difficulties", "0,1"]):
        out = bench.folder / f"rows-{len(levels)}.jsonl"
        of_set = ["--split", "eval", "--count", str(count), *levels, "-o", str(out)]
        async with bench.command("problems", *chosen, *seed, *of_set) as command:
            assert await command.exit_code() == 0, command.said()
        written += [
            (json.loads(row["recipe"]), row["question"], row["oracle"])
            for row in rows_of(out)
        ]
    assert by_level(written) == evaluated

    async with AsyncReasoningGym(processes=1) as gym:
        for task, level in evaluated:
            problems = await gym.problems(
                task, level=level, count=count, seed=eval_seed, split="eval"
            )
            of_gym = [(p.recipe.to_json(), p.question, p.oracle) for p in problems]
            assert by_level(of_gym) == {(task, level): evaluated[task, level]}


Item = tuple[dict[str, Any], str, str | None]
"""A recipe, its question and its oracle."""


def by_level(items: Iterable[Item]) -> dict[tuple[str, int | None], list[Item]]:
    """Items by their task and level."""
    levels = defaultdict(list)
    for recipe, text, oracle in items:
        levels[recipe["task"], recipe.get("level")].append((recipe, text, oracle))
    return dict(levels)


async def test_training_and_evaluation_ask_for_boxes_and_read_them(bench: Any) -> None:
    policy = ScriptedPolicy([r"<think>\boxed{2}</think>So $\boxed{1}$."])
    settings = {
        "answer_format": "boxed",
        "dump_all_rollouts": True,
        "group_size": 2,
        "system_prompt": "direct",
    }
    async with bench.playing(policy, "vllm", **settings) as env:
        await env.collect_trajectories(await env.get_next_item())
        await env.evaluate()
    [folder] = bench.folder.glob("dumps/evaluation_*")
    metrics, samples = report_of(folder)
    run = json.loads((folder / "run.json").read_text())["settings"]
    assert run["answer_format"] == "boxed"
    assert metrics["eval/status/no_answer"] == 0
    [group] = dumped(bench.folder, "*.jsonl")
    for row in (group, *samples):
        assert row["scoring"]["answer_format"] == "boxed"
        for rollout in row["rollouts"]:
            assert rollout["answer"] == "1"
            system = rollout["conversation"][0]
            assert system["content"] == BOXED_SYSTEM_PROMPTS["direct"]


class FailsOnce:
    """A policy that can't answer the first question it is asked, ever."""

    broken = ""

    def sample(self, question: str, n: int) -> list[Sample]:
        self.broken = self.broken or question
        if question == self.broken:
            raise ValueError("can't answer this one")
        return [Sample(text="<answer>1</answer>")] * n


async def test_a_failing_request_is_one_unscored_sample(bench: Any) -> None:
    settings = {"num_eval_samples_per_task": 6, "max_eval_workers": 1}
    policy = FailsOnce()
    async with bench.playing(policy, "vllm", **settings) as env:
        await env.evaluate()
    [folder] = bench.folder.glob("dumps/evaluation_*")
    metrics, samples = report_of(folder)
    unscored = [s for s in samples if s["rollouts"][0]["status"] == "unscored"]
    assert [question(sample) for sample in unscored] == [policy.broken]
    assert len(samples) == 6
    solved = sum(s["rollouts"][0]["status"] == "solved" for s in samples)
    assert metrics["eval/percent_correct"] == solved / 5
    assert metrics["eval/status/unscored"] == pytest.approx(1 / 6)
    assert env.statistics.counts["evaluation/failed_requests"] == 1


class CrowdedServer(ScriptedServer):
    """Knows the largest number of requests it had to answer at the same time."""

    now = most = 0

    async def _complete(self, order: Any) -> Any:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await super()._complete(order)
        finally:
            self.now -= 1


async def test_evaluation_asks_a_bounded_number_of_requests_at_once(
    bench: Any, tokenizer: Any
) -> None:
    settings = {"num_eval_samples_per_task": 20, "max_eval_workers": 3}
    async with (
        CrowdedServer(WRONG, tokenizer, latency=0.05) as server,
        # Trl's client does not probe.
        bench.environment(server.url, "trl", **settings) as env,
    ):
        await env.evaluate()
    assert server.requests == 20
    assert server.most == 3
