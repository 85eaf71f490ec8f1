"""What is on disk when `collect_trajectories` returns."""

import asyncio
import json
import math
import os
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from command_settings import checked
from serve_loop import registration
from trainer_api import until

from reasoning_gym_environment import ReasoningGymEnv, ReasoningGymEnvConfig
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference.prompts import SYSTEM_PROMPTS
from reasoning_gym_environment.records import Completion, GroupResult, Problem
from reasoning_gym_environment.report.live import LiveIndex
from reasoning_gym_environment.settings import RunFlags, Settings, default_settings
from reasoning_gym_environment.storage.dumps import (
    FAILED,
    PARTIAL,
    SUCCESSFUL,
    DumpKind,
    read_dump,
)
from reasoning_gym_environment.storage.run_record import read_record, record_path

BOTH = {
    "dump_rollouts": True,
    "dump_failed_rollouts": True,
    "include_tasks": "number_sorting",
}


def deserving(score: float, answer: str | None) -> str:
    """A completion that says which score it deserves."""
    return f"<think>deserves {score}</think><answer>{answer}</answer>"


async def collect(env: ReasoningGymEnv, script: Any, *scores: float) -> str:
    """A group with these scores; returns its question."""
    problem = await env.get_next_item()
    answers = {1.0: problem.oracle, 0.0: "nope"}
    script.play(*(deserving(score, answers[score]) for score in scores))
    await env.collect_trajectories(problem)
    return problem.question


def dumped(folder: Path, env: ReasoningGymEnv, kind: str) -> list[dict[str, Any]]:
    """The rows of the first file of a kind; none where there is no file."""
    file = (
        folder / "dumps" / f"reasoning_gym_environment_{kind}_{env.run_id}_0000.jsonl"
    )
    return read_dump(file).rows if file.exists() else []


@pytest_asyncio.fixture(scope="module")
async def dumping(
    module_bench: Any, module_script: Any
) -> AsyncIterator[ReasoningGymEnv]:
    """An environment that dumps all groups and whose policy plays `module_script`."""
    async with module_bench.playing(module_script, **BOTH) as env:
        yield env


async def test_the_run_says_who_it_is_beside_its_dumps(
    dumping: ReasoningGymEnv, module_bench: Any
) -> None:
    path = record_path(module_bench.folder / "dumps", dumping.run_id)
    await until(path.exists)
    record = read_record(path)
    assert record is not None
    assert record.settings["model_name"] == dumping.inference.model
    assert record.settings["server_type"] == "openai"
    assert record.settings["tasks"] == ["number_sorting"]
    assert record.settings["library_versions"].keys() >= {
        "reasoning-gym",
        "transformers",
    }
    assert (record.failures, record.lost, record.ended) == (0, 0, "")


async def test_each_score_stands_by_its_conversation(
    dumping: ReasoningGymEnv, module_bench: Any, module_script: Any
) -> None:
    question = await collect(dumping, module_script, 0.0, 1.0, 1.0, 0.0)
    rollouts = dumped(module_bench.folder, dumping, "rollouts")[-1]["rollouts"]
    assert [rollout["score"] for rollout in rollouts] == [0.0, 1.0, 1.0, 0.0]
    for rollout in rollouts:
        system, user, assistant = rollout["conversation"]
        assert system == {"role": "system", "content": SYSTEM_PROMPTS["think"]}
        assert user == {"role": "user", "content": question}
        assert assistant["role"] == "assistant"
        assert f"deserves {rollout['score']}" in assistant["content"]


async def test_a_group_is_on_disk_in_the_file_of_its_kind_when_it_is_done(
    dumping: ReasoningGymEnv, module_bench: Any, module_script: Any
) -> None:
    kinds = {
        (0.0, 0.0): "FAILED_rollouts",
        (1.0, 0.0): "rollouts",
        (1.0, 1.0): "rollouts",
    }
    for scores, kind in kinds.items():
        before = dumped(module_bench.folder, dumping, kind)
        question = await collect(dumping, module_script, *scores)
        *earlier, last = dumped(module_bench.folder, dumping, kind)
        assert earlier == before
        assert last["rollouts"][0]["conversation"][1]["content"] == question


async def test_a_row_says_which_run_made_it_and_how_to_make_its_problem_again(
    dumping: ReasoningGymEnv, module_bench: Any, module_script: Any
) -> None:
    problem = await dumping.get_next_item()
    module_script.play("<answer>nope</answer>")
    await dumping.collect_trajectories(problem)
    row = dumped(module_bench.folder, dumping, "FAILED_rollouts")[-1]
    assert row["item_id"] == "number_sorting"
    assert row["recipe"] == problem.recipe.to_json()
    assert row["oracle"] == problem.oracle
    assert row["run"] == dumping.run_id
    assert row["scoring"] == {
        "scoring_version": 2,
        "answer_format": "tags",
        "score_mode": "partial",
        "solved_threshold": None,
        "length_penalty_start": 0.75,
        "max_token_length": dumping.config.max_token_length,
        "verify_timeout": 5.0,
    }
    assert datetime.fromisoformat(row["time"]).tzinfo is not None
    libraries = {
        "reasoning-gym-environment",
        "reasoning-gym",
        "atroposlib",
        "transformers",
    }
    assert row["library_versions"].keys() == libraries
    assert {rollout["status"] for rollout in row["rollouts"]} == {"wrong"}
    assert {rollout["finish_reason"] for rollout in row["rollouts"]} == {"stop"}


@pytest.mark.parametrize(("threshold", "groups"), [(0.0, 1), (0.9, 0)])
async def test_only_a_score_above_the_threshold_makes_a_group_successful(
    threshold: float, groups: int, bench: Any, script: Any
) -> None:
    settings = {"rollout_save_score_threshold": threshold, "include_tasks": "gcd"}
    async with bench.playing(script, **{**BOTH, **settings}) as env:
        problem = await env.get_next_item()
        script.play(f"<answer>{problem.oracle} or so</answer>", "<answer></answer>")
        group, _ = await env.collect_trajectories(problem)
        assert group is not None
        assert 0.0 < max(group["scores"]) <= 0.9  # partly right
        assert len(dumped(bench.folder, env, "rollouts")) == groups
        assert not dumped(bench.folder, env, "FAILED_rollouts")


class TellingEnv(ReasoningGymEnv):
    """Tells when a group is scored."""

    scored: asyncio.Event

    async def score(
        self, problem: Problem, completions: Sequence[Completion]
    ) -> GroupResult:
        result = await super().score(problem, completions)
        self.scored.set()
        return result


async def test_a_worker_cancelled_while_it_dumps_leaves_its_row(
    bench: Any, script: Any
) -> None:
    async with bench.playing(script, of=TellingEnv, **BOTH) as env:
        env.scored = asyncio.Event()
        (bench.folder / "dumps").mkdir(exist_ok=True)
        name = f"reasoning_gym_environment_FAILED_rollouts_{env.run_id}_0000.jsonl"
        file = bench.folder / "dumps" / name
        os.mkfifo(file)  # while nobody reads, writing to it blocks
        problem = await env.get_next_item()
        script.play("<answer>first</answer>")
        worker = asyncio.create_task(env.run.groups.work_on(problem))
        await env.scored.wait()
        # As at the end of a run, when nothing waits for a worker.
        worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await worker
        script.play("<answer>second</answer>")
        again = asyncio.create_task(env.run.groups.work_on(problem))
        await until(lambda: env.statistics.counts["groups/started"] == 2)
        await asyncio.sleep(0.2)
        assert not again.done()
        with os.fdopen(os.open(file, os.O_RDWR | os.O_NONBLOCK), "rb") as read:
            assert await again
            rows = [json.loads(line) for line in read.read().splitlines()]
    answers = [[rollout["answer"] for rollout in row["rollouts"]] for row in rows]
    assert answers == [["first"] * 4, ["second"] * 4]
    counts = env.statistics.counts
    assert (counts["groups/interrupted"], counts["groups/collected"]) == (1, 1)
    assert counts["dumps/FAILED_rollouts"] == 2


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({}, []),
        (
            {"dump_all_rollouts": True, "dump_rollouts": False},
            ["rollouts", "FAILED_rollouts"],
        ),
        ({"dump_rollouts": True}, ["rollouts"]),
        ({"dump_failed_rollouts": True}, ["FAILED_rollouts"]),
        ({"dump_all_rollouts": False}, []),
        ({"dump_rollouts": False}, []),
    ],
)
async def test_python_dumps_the_groups_that_an_option_asks_for(
    settings: dict[str, Any], kinds: list[str], bench: Any, script: Any
) -> None:
    async with bench.playing(script, **settings) as env:
        await collect(env, script, 0.0, 0.0)
        await collect(env, script, 1.0, 0.0)
    assert len(list(bench.folder.rglob("*.jsonl"))) == len(kinds)
    assert (bench.folder / "dumps").exists() == bool(kinds)
    numbers = {"FAILED_rollouts": 1, "rollouts": 2}
    for kind in kinds:
        [row] = dumped(bench.folder, env, kind)
        assert row["number"] == numbers[kind]


async def test_a_row_has_the_trainers_step(bench: Any, script: Any) -> None:
    async with bench.playing(script, dump_all_rollouts=True) as env:
        await collect(env, script, 1.0, 0.0)
        await env.run.begin(registration(bench.folder, step=3))
        await collect(env, script, 1.0, 0.0)
    steps = [row.get("step") for row in dumped(bench.folder, env, "rollouts")]
    assert steps == [None, 3]


async def test_a_run_whose_oldest_dumps_were_deleted_is_shown_as_one(
    bench: Any, script: Any
) -> None:
    async with bench.playing(script, dump_all_rollouts=True, max_dump_gb=1e-7) as env:
        await collect(env, script, 0.0, 0.0)
        await collect(env, script, 1.0, 0.0)
    live = LiveIndex([bench.folder])
    live.update()
    [run] = live.batch()["runs"]
    about = "a selection: 1 of 2; oldest dump files deleted: 1 (max_dump_gb)"
    assert ["groups", about] in run["header"]


ALL = {SUCCESSFUL, FAILED, PARTIAL}


@pytest.mark.parametrize(
    ("command", "options", "kinds", "max_bytes"),
    [
        ("serve", [], ALL, 2e9),
        ("process", [], ALL, math.inf),
        ("serve", ["--env.max_dump_gb", "5"], ALL, 5e9),
        ("serve", ["--env.dump_all_rollouts"], ALL, math.inf),
        ("serve", ["--env.dump_rollouts"], {SUCCESSFUL}, math.inf),
        ("process", ["--env.dump_failed_rollouts"], {FAILED}, math.inf),
        ("serve", ["--env.dump_rollouts", "false"], set(), math.inf),
        ("serve", ["--env.dump_all_rollouts", "false"], set(), math.inf),
    ],
)
def test_a_command_dumps_all_groups_unless_an_option_says_which(
    command: str, options: list[str], kinds: set[DumpKind], max_bytes: float
) -> None:
    """Only what nobody asked for has a limit."""
    env = checked(command, "--env.use_wandb", "false", *options).env
    assert (env.dumped_kinds, env.max_dump_bytes) == (kinds, max_bytes)


def test_what_a_subclass_sets_about_dumps_stays_on_the_command_line() -> None:
    for changes, kinds, max_bytes in (
        ({"max_dump_gb": 7.0}, ALL, 7e9),
        ({"dump_failed_rollouts": True}, {FAILED}, math.inf),
        ({"dump_rollouts": False}, set(), math.inf),
    ):
        of_class = Settings(
            env=ReasoningGymEnvConfig(**changes), servers=[], flags=RunFlags()
        )
        env = default_settings("serve", of_class).env
        assert (env.dumped_kinds, env.max_dump_bytes) == (kinds, max_bytes), changes


async def test_process_collects_nothing_that_it_would_not_store(bench: Any) -> None:
    options = ["--env.use_wandb", "false", "--env.dump_rollouts", "false"]
    with pytest.raises(ConfigurationError, match="data_path_to_save_groups to a file"):
        checked("process", *options)
    groups = ["--env.data_path_to_save_groups", str(bench.folder / "groups.jsonl")]
    checked("process", *options, *groups)
    async with bench.unprepared("http://127.0.0.1:1") as env:
        env.n_groups_to_process = 1
        with pytest.raises(ConfigurationError, match="set dump_all_rollouts"):
            await env.process_manager()
