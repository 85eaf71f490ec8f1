"""What wandb gets: the real one, offline."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from process_tree import descendants, in_linux
from serve_loop import HONEST, serving, until_pulled
from small_disks import memory_disk

from reasoning_gym_environment.demo.policy import Sample


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(project="test", dir=tmp_path) as run:
        yield run


def summary(run: Any) -> dict[str, Any]:
    """The last value of everything logged; the last step counts only when it is complete."""
    run.log({}, commit=True)
    return dict(run.summary)


def rollout_table(run: Any) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of the table as wandb has stored it."""
    [file] = Path(run.dir).glob("media/table/**/*.table.json")
    table = json.loads(file.read_text())
    return table["columns"], table["data"]


async def test_groups_and_rollouts_are_logged(bench: Any, script: Any, run: Any) -> None:
    settings = {
        "use_wandb": True,
        "group_size": 2,
        "ensure_scores_are_not_same": False,
        "num_rollouts_per_group_for_logging": -1,
        "dump_failed_rollouts": True,
    }
    truncated = Sample(text="<think>hm", finish_reason="length")
    async with bench.playing(script, **settings) as env:
        env.max_token_len = 4096  # as Atropos reads it from the trainer
        problems = [await env.get_next_item() for _ in range(3)]
        right = [f"<answer>{problem.oracle}</answer>" for problem in problems]
        for problem, samples in zip(
            problems,
            [(right[0], right[0]), (right[1], "<answer>nope</answer>"), (truncated, "4")],
            strict=True,
        ):
            script.play(*samples)
            group, _ = await env.collect_trajectories(problem)
            await env.handle_send_to_api(group, problem, do_send_to_api=False)
        await env.wandb_log()
    logged = summary(run)
    expected = {
        "train/percent_correct": 1 / 2,
        "train/category/arithmetic/solved": 1 / 2,
        "train/task/gcd/solved": 1 / 2,
        "train/status/solved": 1 / 2,
        "train/status/wrong": 1 / 6,
        "train/status/no_answer": 1 / 3,
        "train/status/several_answers": 0,
        "train/status/timeout": 0,
        "train/status/verifier_error": 0,
        "train/truncated": 1 / 6,
        "train/groups/mixed": 1 / 3,
        "train/groups/all_solved": 1 / 3,
        "train/groups/none_solved": 1 / 3,
        "counts/groups/collected": 3,
        "counts/groups/accepted": 3,
        "counts/dumps/FAILED_rollouts": 1,
    }
    assert {name: logged.get(name) for name in expected} == pytest.approx(expected)
    columns, rows = rollout_table(run)
    assert columns == ["full_text", "score", "expected_answer", "task_name", "status"]
    assert [row[1:] for row in rows] == [
        [1, problems[0].oracle, "gcd", "solved"],
        [1, problems[0].oracle, "gcd", "solved"],
        [1, problems[1].oracle, "gcd", "solved"],
        [0, problems[1].oracle, "gcd", "wrong"],
        [0, problems[2].oracle, "gcd", "no_answer"],
        [0, problems[2].oracle, "gcd", "no_answer"],
    ]
    for row, problem in zip(rows, [p for p in problems for _ in range(2)], strict=True):
        assert problem.question in row[0]
    assert right[1] in rows[2][0]


async def test_a_group_of_which_a_subclass_keeps_two_rows_is_in_the_table(
    bench: Any, script: Any, run: Any
) -> None:
    settings = {"use_wandb": True, "group_size": 4, "ensure_scores_are_not_same": False}
    script.play("<answer>1</answer>")
    async with bench.playing(script, **settings) as env:
        problem = await env.get_next_item()
        group, _ = await env.collect_trajectories(problem)
        columns = ("tokens", "masks", "scores", "overrides", "inference_logprobs", "messages")
        kept = {name: (group[name] or [])[:2] for name in columns}
        kept["group_overrides"] = {"group_size": 2}
        await env.handle_send_to_api({**group, **kept}, problem, do_send_to_api=False)
        await env.wandb_log()
    assert [row[4] for row in rollout_table(run)[1]] == [None, None]


async def test_means_are_of_the_time_since_the_last_log(bench: Any, script: Any, run: Any) -> None:
    async with bench.playing(script, use_wandb=True) as env:
        for env.curr_step, right in enumerate([True, False]):
            problem = await env.get_next_item()
            script.play(f"<answer>{problem.oracle if right else 'nope'}</answer>")
            await env.collect_trajectories(problem)
            await env.wandb_log()
            logged = summary(run)
            assert logged["train/percent_correct"] == float(right)
            assert logged["counts/groups/collected"] == env.curr_step + 1


async def test_an_evaluation_is_logged_once(bench: Any, script: Any, run: Any) -> None:
    script.play("<answer>nope</answer>")
    async with bench.playing(script, use_wandb=True) as env:
        await env.evaluate()
        await env.wandb_log()
        logged = summary(run)
        env.curr_step = 1
        await env.wandb_log({"eval/percent_correct": 0.25})
    assert logged["eval/percent_correct"] == 0.0
    assert logged["eval/task/gcd/solved"] == 0.0
    assert logged["eval/category/arithmetic/solved"] == 0.0
    assert logged["eval/status/wrong"] == 1.0
    assert summary(run)["eval/percent_correct"] == 0.25


async def test_a_replica_logs_the_curriculum_under_its_name(
    bench: Any, script: Any, run: Any
) -> None:
    script.play("<answer>nope</answer>")
    settings = {"complexity_mode": "curriculum", "curriculum_target_accuracy": 0.6}
    async with bench.playing(script, use_wandb=True, **settings) as env:
        problem = await env.get_next_item()
        await env.collect_trajectories(problem)
        stats = env.get_curriculum_stats()
        env.wandb_prepend = "env_1"  # as `register_env` names a replica
        await env.wandb_log()
    details = stats["task_details"]["gcd"]
    expected = {
        "curriculum/total_tasks_tracked": 1,
        "curriculum/tasks_with_adjustments": 1,
        "curriculum/target_accuracy": 0.6,
        "curriculum/avg_complexity": details["difficulty"],
        "curriculum/category/arithmetic": details["difficulty"],
        "curriculum/task/gcd/level": details["level"],
        f"train/task/gcd/level/{problem.recipe.level}/groups/none_solved": 1,
        "train/category/arithmetic/groups/mixed": 0,
        "sampling/asked_again": 0,
        "sampling/fresh_with_signal": 0,
    }
    logged = summary(run)
    assert {name: logged.get(f"env_1_{name}") for name in expected} == pytest.approx(expected)


@in_linux
async def test_training_goes_on_without_wandb_whose_process_is_killed(
    bench: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_SERVICE", raising=False)  # that of this process
    async with serving(bench, tokenizer, HONEST, use_wandb=True) as (command, trainer, _):
        await until_pulled(trainer, command, batches=2)
        [service] = [
            pid
            for pid in descendants(command.process.pid)
            if b"wandb-core" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(service, signal.SIGKILL)
        await command.until_logged("wandb fails, 1 reports lost so far, training continues: ")
        await until_pulled(trainer, command, batches=trainer.batches + 3)
        command.process.send_signal(signal.SIGTERM)
        assert await command.exit_code() == 143
    assert "The end of the wandb run is missing: " in command.said()
    assert "Traceback" not in command.said()
    assert "mismatch" not in command.said()


async def test_a_full_disk_of_wandb_costs_only_what_is_logged_meanwhile(
    bench: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    settings = {"use_wandb": True, "ensure_scores_are_not_same": False, "max_token_length": 512}
    with memory_disk(bench.folder / "small", "8m") as disk:
        async with bench.playing(HONEST, **settings) as env:
            with wandb.init(project="test", dir=disk) as run:
                ballast = disk / "ballast"
                for env.curr_step in range(3):
                    problem = await env.get_next_item()
                    group, _ = await env.collect_trajectories(problem)
                    await env.handle_send_to_api(group, problem, do_send_to_api=False)
                    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                        while env.curr_step == 1 and file.write(bytes(4096)):
                            pass
                    await env.wandb_log()
                logged = summary(run)
    assert logged["counts/groups/accepted"] == 3
    [said] = [text for text in caplog.messages if text.startswith("wandb fails")]
    assert "1 reports lost so far, training continues: [Errno 28] No space left" in said
