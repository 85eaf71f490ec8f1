"""What wandb gets: the real one, offline."""

import contextlib
import json
import os
import re
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from page_blocks import ROOT
from process_tree import descendants, in_linux
from serve_loop import HONEST, registration, serving, status, until_pulled
from small_disks import memory_disk
from wandb.proto.wandb_internal_pb2 import Record

from reasoning_gym_environment import ReasoningGymEnv
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


def rows_of(run: Any, table: str) -> list[dict[str, Any]]:
    """The rows of the last table of this name, as wandb has stored it."""
    group, _, name = table.partition("/")
    files = sorted(
        Path(run.dir).glob(f"media/table/{group}/{name}_*.table.json"),
        key=os.path.getmtime,
    )
    stored = json.loads(files[-1].read_text())
    return [dict(zip(stored["columns"], row, strict=True)) for row in stored["data"]]


async def test_groups_and_rollouts_are_logged(
    bench: Any, script: Any, run: Any
) -> None:
    settings = {
        "use_wandb": True,
        "group_size": 2,
        "ensure_scores_are_not_same": False,
        "num_rollouts_per_group_for_logging": -1,
        "dump_failed_rollouts": True,
    }
    truncated = Sample(text="<think>hm", finish_reason="length")
    async with bench.playing(script, **settings) as env:
        problems = [await env.get_next_item() for _ in range(3)]
        right = [f"<answer>{problem.oracle}</answer>" for problem in problems]
        for problem, samples in zip(
            problems,
            [
                (right[0], right[0]),
                (right[1], "<answer>nope</answer>"),
                (truncated, "4"),
            ],
            strict=True,
        ):
            script.play(*samples)
            await env.run.groups.work_on(problem)
        await env.wandb_log()
    logged = summary(run)
    expected = {
        "train/percent_correct": 1 / 2,
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
        "perf/groups/collected": 3,
    }
    assert {name: logged.get(name) for name in expected} == pytest.approx(expected)
    solved = {
        (row["kind"], row["name"]): row["solved"] for row in rows_of(run, "train/tasks")
    }
    assert solved == {("category", "arithmetic"): 1 / 2, ("task", "gcd"): 1 / 2}
    counts = {row["event"]: row["count"] for row in rows_of(run, "perf/counts")}
    assert counts["groups/accepted"] == 3
    assert counts["dumps/FAILED_rollouts"] == 1
    rows = rows_of(run, "train/rollouts")
    shown = ("score", "expected_answer", "task_name", "status", "answer")
    first, second, third = (problem.oracle for problem in problems)
    assert [tuple(row[name] for name in shown) for row in rows] == [
        (1, first, "gcd", "solved", first),
        (1, first, "gcd", "solved", first),
        (1, second, "gcd", "solved", second),
        (0, second, "gcd", "wrong", "nope"),
        (0, third, "gcd", "no_answer", None),
        (0, third, "gcd", "no_answer", None),
    ]
    for row, problem in zip(rows, [p for p in problems for _ in range(2)], strict=True):
        assert problem.question in row["full_text"]
        assert (row["level"], row["step"]) == (problem.recipe.level, env.curr_step)
        assert 0 < row["tokens"] < 100
    assert right[1] in rows[2]["full_text"]


class KeepingTwoRows(ReasoningGymEnv):
    async def postprocess_histories(self, trajectories: Any) -> Any:
        columns = (
            "tokens",
            "masks",
            "scores",
            "overrides",
            "inference_logprobs",
            "messages",
        )
        kept = {name: (trajectories[name] or [])[:2] for name in columns}
        return {**trajectories, **kept, "group_overrides": {"group_size": 2}}


async def test_a_group_of_which_a_subclass_keeps_two_rows_is_in_the_table(
    bench: Any, script: Any, run: Any
) -> None:
    settings = {"use_wandb": True, "group_size": 4, "ensure_scores_are_not_same": False}
    script.play("<answer>1</answer>")
    async with bench.playing(script, of=KeepingTwoRows, **settings) as env:
        await env.run.groups.work_on(await env.get_next_item())
        await env.wandb_log()
    rows = rows_of(run, "train/rollouts")
    assert [(row["status"], row["answer"]) for row in rows] == [(None, None)] * 2


async def test_means_are_of_the_time_since_the_last_log(
    bench: Any, script: Any, run: Any
) -> None:
    async with bench.playing(script, use_wandb=True) as env:
        await env.run.begin(registration(bench.folder))
        for step, right in enumerate([True, False]):
            await env.run.take_status(status(step))
            problem = await env.get_next_item()
            script.play(f"<answer>{problem.oracle if right else 'nope'}</answer>")
            await env.run.groups.work_on(problem)  # equal scores, so nothing is sent
            await env.wandb_log()
            logged = summary(run)
            assert logged["train/percent_correct"] == float(right)
            assert logged["perf/groups/collected"] == step + 1


async def test_a_second_report_of_a_step_overwrites_nothing(
    bench: Any, script: Any, run: Any
) -> None:
    async with bench.playing(script, use_wandb=True) as env:
        await env.run.begin(registration(bench.folder, step=7))
        for right in (True, False):
            problem = await env.get_next_item()
            script.play(f"<answer>{problem.oracle if right else 'nope'}</answer>")
            await env.collect_trajectories(problem)
            await env.wandb_log()
            assert summary(run)["train/percent_correct"] == float(right)
        assert run.step == 9


async def test_rows_of_a_subclass_are_in_the_table(
    bench: Any, script: Any, run: Any
) -> None:
    async with bench.playing(script, use_wandb=True) as env:
        env.rollouts_for_wandb.append([("a text", 0.5, "8")])
        env.rollouts_for_wandb.append([("another", 1.0, *range(8))])
        await env.wandb_log()
    first, second = rows_of(run, "train/rollouts")
    assert (first["full_text"], first["score"], first["expected_answer"]) == (
        "a text",
        0.5,
        "8",
    )
    assert first["status"] is None
    assert second["column_10"] == 7


async def test_an_evaluation_is_logged_once(bench: Any, script: Any, run: Any) -> None:
    script.play("<answer>nope</answer>")
    async with bench.playing(script, use_wandb=True) as env:
        await env.run.begin(registration(bench.folder, step=4))
        await env.evaluate()
        await env.run.take_status(status(6))
        await env.wandb_log()
        logged = summary(run)
        assert logged["eval/step"] == 4
        await env.run.take_status(status(8))
        await env.wandb_log({"eval/percent_correct": 0.25})
    assert logged["eval/percent_correct"] == 0.0
    solved = {row["name"]: row["solved"] for row in rows_of(run, "eval/tasks")}
    assert solved == {"arithmetic": 0.0, "gcd": 0.0}
    assert summary(run)["eval/percent_correct"] == 0.25


async def test_a_replica_logs_the_curriculum_under_the_same_keys_as_any_other(
    bench: Any, script: Any, run: Any
) -> None:
    script.play("<answer>nope</answer>")
    settings = {"complexity_mode": "curriculum", "curriculum_target_accuracy": 0.6}
    async with bench.playing(script, use_wandb=True, **settings) as env:
        await env.run.begin(registration(bench.folder, name="env_1"))
        problem = await env.get_next_item()
        await env.collect_trajectories(problem)
        stats = env.get_curriculum_stats()
        await env.wandb_log()
    details = stats["task_details"]["gcd"]
    expected = {
        "curriculum/total_tasks_tracked": 1,
        "curriculum/tasks_with_adjustments": 1,
        "curriculum/target_accuracy": 0.6,
        "curriculum/avg_complexity": details["difficulty"],
        "curriculum/avg_expected_signal": details["expected_signal"],
        "sampling/asked_again": 0,
        "sampling/fresh_with_signal": 0,
    }
    logged = summary(run)
    assert {name: logged.get(name) for name in expected} == pytest.approx(expected)
    levels = {row["name"]: row["level"] for row in rows_of(run, "curriculum/tasks")}
    assert levels == {"gcd": details["level"], "arithmetic": None}
    [at_level] = [
        row for row in rows_of(run, "train/tasks") if row["level"] is not None
    ]
    assert (at_level["name"], at_level["level"]) == ("gcd", problem.recipe.level)
    assert at_level["groups/none_solved"] == 1


def logged_keys(file: Path) -> set[str]:
    """The keys in wandb's own file of an offline run: a log of records in blocks of 32 KiB."""
    content, keys, record, at = file.read_bytes(), set(), b"", 7
    while at + 7 <= len(content):
        if (left := -at % 2**15) and left < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            items = Record.FromString(record).history.item
            # A table is nested.
            keys |= {item.key or item.nested_key[0] for item in items}
            record = b""
    return {key for key in keys if not key.startswith("_")}


@pytest.mark.nightly
async def test_a_run_has_at_most_80_keys_and_each_is_explained(
    bench: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("WANDB_SERVICE", raising=False)  # that of this process
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    settings = {
        "use_wandb": True,
        "include_tasks": "arithmetic,games,logic",  # 42: keys are not one for each task
        "complexity_mode": "curriculum",
        "sampling": "signal",
        "steps_per_eval": 1,
        "eval_attempts": 2,
        "eval_difficulties": "0.25,0.5,0.75",
        "num_eval_samples_per_task": 2,
        "min_items_sent_before_logging": 0,
    }
    async with serving(bench, tokenizer, HONEST, **settings) as (command, trainer, _):
        await command.until_logged("Evaluation: ")
        await until_pulled(trainer, command, batches=trainer.batches + 3)
        command.process.send_signal(signal.SIGTERM)
        assert await command.exit_code() == 143
    [file] = tmp_path.glob("wandb/offline-run-*/*.wandb")
    keys = logged_keys(file)
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    explained = [
        re.sub("<.*?>", "[^/]+", name) for name in re.findall(r"`([a-z]+/[^`]+)`", page)
    ]
    assert {
        key for key in keys if not any(re.fullmatch(name, key) for name in explained)
    } == set()
    assert {key.partition("/")[0] for key in keys} == {
        *("train", "eval", "sampling", "curriculum", "perf", "figures")
    }
    assert 50 <= len(keys) <= 80


@pytest.mark.nightly
@in_linux
async def test_training_goes_on_without_wandb_whose_process_is_killed(
    bench: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_SERVICE", raising=False)  # that of this process
    async with serving(bench, tokenizer, HONEST, use_wandb=True) as (
        command,
        trainer,
        _,
    ):
        await until_pulled(trainer, command, batches=2)
        [service] = [
            pid
            for pid in descendants(command.process.pid)
            if b"wandb-core" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(service, signal.SIGKILL)
        await command.until_logged(
            "wandb fails, 1 reports lost so far, training continues: "
        )
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
    settings = {
        "use_wandb": True,
        "ensure_scores_are_not_same": False,
        "max_token_length": 512,
    }
    with memory_disk(bench.folder / "small", "8m") as disk:
        async with bench.playing(HONEST, **settings) as env:
            with wandb.init(project="test", dir=disk) as run:
                ballast = disk / "ballast"
                for report in range(3):
                    await env.run.groups.work_on(await env.get_next_item())
                    with (
                        ballast.open("wb", buffering=0) as file,
                        contextlib.suppress(OSError),
                    ):
                        while report == 1 and file.write(bytes(4096)):
                            pass
                    await env.wandb_log()
                logged = summary(run)
    assert logged["perf/groups/collected"] == 3
    [said] = [text for text in caplog.messages if text.startswith("wandb fails")]
    assert "1 reports lost so far, training continues: [Errno 28] No space left" in said
