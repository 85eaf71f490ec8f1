"""Evaluations through the real command: killed and resumed, refused, compared."""

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from scripted_server import ScriptedServer
from serve_loop import registration

from reasoning_gym_environment import compare as compare_results
from reasoning_gym_environment import evaluate_async
from reasoning_gym_environment.atropos.output import redact_api_keys
from reasoning_gym_environment.commands import compare, problems
from reasoning_gym_environment.demo.policy import Sample, ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer, is_probe
from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.evaluation.run import IncompleteEvaluationError
from reasoning_gym_environment.evaluation.store import read_results
from reasoning_gym_environment.problems.identity import problem_identity
from reasoning_gym_environment.problems.split import belongs_to_evaluation
from reasoning_gym_environment.records import recipe_text
from reasoning_gym_environment.util.values import group_by

ONE = ScriptedPolicy(["<answer>1</answer>"])
ITEMS = 12


class Counting:
    """Answers 1, and knows how often each question was asked."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}

    def sample(self, question: str, n: int) -> list[Sample]:
        self.asked[question] = self.asked.get(question, 0) + 1
        return [Sample(text="<answer>1</answer>")] * n


class Numbering(Counting):
    """Answers each time another number, so that no two completions are alike."""

    def sample(self, question: str, n: int) -> list[Sample]:
        super().sample(question, n)
        number = sum(self.asked.values())
        return [Sample(text=f"<answer>{number}</answer>")] * n


class Fragile(Counting):
    """Can't answer any question but the first at its first two times."""

    def sample(self, question: str, n: int) -> list[Sample]:
        samples = super().sample(question, n)
        if self.asked[question] < 3 and question != next(iter(self.asked)):
            raise ValueError("not yet")
        return samples


def lines(file: Path) -> list[dict[str, Any]]:
    return (
        [json.loads(line) for line in file.read_text().splitlines()]
        if file.exists()
        else []
    )


def question_of(sample: dict[str, Any]) -> str:
    return str(sample["rollouts"][0]["conversation"][1]["content"])


def metrics_of(folder: Path) -> dict[str, float]:
    metrics: dict[str, float] = json.loads((folder / "metrics.json").read_text())[
        "results"
    ]["all"]
    return metrics


@pytest.mark.nightly
async def test_an_evaluation_that_is_killed_goes_on_where_it_was(
    bench: Any, tokenizer: Any
) -> None:
    folder, policy = bench.folder / "results", Counting()
    settings = {
        "num_eval_samples_per_task": ITEMS,
        "eval_attempts": 2,
        "max_eval_workers": 2,
    }
    settings |= {"data_dir_to_save_evals": str(folder)}
    async with ScriptedServer(policy, tokenizer, latency=0.5) as server:
        options = bench.options(server.url, **settings)
        async with bench.command("evaluate", *options) as command:
            await command.until(
                lambda: len(lines(folder / "samples.partial.jsonl")) >= 3
            )
            command.process.kill()
            await command.process.wait()
        kept = lines(folder / "samples.partial.jsonl")
        assert not (folder / "samples.jsonl").exists()
        async with bench.command("evaluate", *options) as command:
            assert await command.exit_code() == 0, command.said()
        assert f"{len(kept)} already finished" in command.said()
        async with bench.environment(server.url, **settings, eval_seed=9) as env:
            with pytest.raises(ConfigurationError, match="another eval_seed"):
                await env.evaluate()
    samples = lines(folder / "samples.jsonl")
    assert len(samples) == ITEMS
    assert [sample for sample in samples if sample in kept] == sorted(
        kept, key=samples.index
    )
    assert all(len(sample["rollouts"]) == 2 for sample in samples)
    assert not (folder / "samples.partial.jsonl").exists()
    assert "api_key: withheld" in (folder / "evaluate_config.yaml").read_text()
    finished = {sample["rollouts"][0]["conversation"][1]["content"] for sample in kept}
    assert [policy.asked[question] for question in finished] == [1] * len(finished)
    # At most one was under way at the kill.
    assert sum(policy.asked.values()) <= ITEMS + 1
    assert metrics_of(folder)["eval/items"] == ITEMS
    assert metrics_of(folder)["eval/pass@2"] == metrics_of(folder)["eval/solved"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_attempts_that_were_finished_are_not_asked_again(
    number: signal.Signals, bench: Any, tokenizer: Any
) -> None:
    folder, policy, attempts = bench.folder / "results", Numbering(), 8
    settings = {
        "num_eval_samples_per_task": 1,
        "eval_attempts": attempts,
        "max_eval_workers": attempts,
        "data_dir_to_save_evals": str(folder),
    }
    async with ScriptedServer(policy, tokenizer, ignores_n=True, latency=0.2) as server:
        options = [*bench.options(server.url, **settings)]
        options += ["--openai.num_requests_for_eval", "1"]
        async with bench.command("evaluate", *options) as command:
            await command.until(
                lambda: len(lines(folder / "attempts.partial.jsonl")) >= 3
            )
            command.process.send_signal(number)
            await command.process.wait()
        stored = lines(folder / "attempts.partial.jsonl")
        kept = [row["completions"][0]["text"] for row in stored]
        assert 3 <= len(kept) < attempts
        assert lines(folder / "samples.partial.jsonl") == []
        async with bench.command("evaluate", *options) as command:
            assert await command.exit_code() == 0, command.said()
    samples = lines(folder / "samples.jsonl")
    assert len(samples) == len(policy.asked)
    for sample in samples:
        assert len(sample["rollouts"]) == attempts
        assert all(rollout["completion_tokens"] for rollout in sample["rollouts"])
    [first] = (s for s in samples if question_of(s) == stored[0]["question"])
    texts = [rollout["conversation"][-1]["content"] for rollout in first["rollouts"]]
    assert texts[: len(kept)] == kept
    assert len(set(texts)) == attempts
    # One was in flight at the signal.
    assert attempts <= policy.asked[stored[0]["question"]] <= attempts + 1
    assert not (folder / "attempts.partial.jsonl").exists()


@pytest.mark.nightly
async def test_a_disk_that_hangs_does_not_keep_an_evaluation_from_ending(
    bench: Any, tokenizer: Any
) -> None:
    partial, pipe = (
        bench.folder / "results/samples.partial.jsonl",
        bench.folder / "pipe",
    )
    os.mkfifo(pipe)  # opening it blocks while nobody reads
    settings = {
        "num_eval_samples_per_task": 500,
        "data_dir_to_save_evals": str(partial.parent),
    }
    async with ScriptedServer(ONE, tokenizer, latency=0.1) as server:
        options = bench.options(server.url, max_eval_workers=2, **settings)
        async with bench.command("evaluate", *options) as command:
            await command.until(lambda: lines(partial))
            pipe.replace(partial)
            await command.until_logged("waiting in memory, the run waits")
            command.process.terminate()
            assert await asyncio.wait_for(command.exit_code(), 60) == 143, (
                command.said()
            )
    assert f"The disk of {partial.parent} does not respond: " in command.said()


async def test_the_api_key_is_taken_out_even_where_the_environment_cannot_be_made(
    bench: Any,
) -> None:
    redact_api_keys(None)
    file = bench.folder / "evaluate_config.yaml"
    file.write_text(
        yaml.safe_dump({"openai": [{"api_key": "k: #1", "model_name": "m"}]})
    )
    settings = {
        "data_dir_to_save_evals": str(bench.folder),
        "tokenizer_name": "./nowhere",
    }
    with pytest.raises(ConfigurationError, match="tokenizer_name"):
        async with bench.unprepared("http://localhost:1/v1", **settings):
            pass
    written = yaml.safe_load(file.read_text())
    assert written == {"openai": [{"api_key": "withheld", "model_name": "m"}]}


async def test_requests_that_fail_are_made_again_before_they_count_as_unscored(
    bench: Any,
) -> None:
    policy = Fragile()
    async with bench.playing(policy, "vllm", num_eval_samples_per_task=2) as env:
        await env.evaluate()
    assert sorted(policy.asked.values()) == [1, 3]
    assert metrics_of(env.evaluation.folder)["eval/unscored"] == 0


async def test_every_evaluation_of_one_process_has_its_own_folder(bench: Any) -> None:
    policy, folders = Counting(), []
    async with bench.playing(
        policy, data_dir_to_save_evals=str(bench.folder / "evals")
    ) as env:
        for number in range(4):
            if number == 2:  # as in `serve` from here on
                await env.run.begin(registration(bench.folder, step=25))
            await env.evaluate()
            folders.append(env.evaluation.folder)
    names = ["evals", "evals-2", "evals/step-25", "evals/step-25-2"]
    assert folders == [bench.folder / name for name in names]
    # The model may have changed under its name.
    assert list(policy.asked.values()) == [4]
    settings = [json.loads((f / "run.json").read_text())["settings"] for f in folders]
    assert [each["step"] for each in settings] == [None, None, 25, 25]
    rows = [read_results(folder).samples[0] for folder in folders]
    assert [each.step for each in rows] == [None, None, 25, 25]


async def test_evaluate_records_the_step_of_the_checkpoint_that_it_is_told(
    bench: Any,
) -> None:
    async with bench.playing(Counting(), eval_step=7) as env:
        await env.evaluate()
    assert {sample.step for sample in read_results(env.evaluation.folder).samples} == {
        7
    }
    settings = json.loads((env.evaluation.folder / "run.json").read_text())["settings"]
    assert (settings["step"], "eval_step" in settings) == (7, False)


async def test_the_command_ends_with_a_table(
    bench: Any, tokenizer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        PolicyServer(ONE, tokenizer) as server,
        bench.unprepared(
            server.url, include_tasks="gcd,lcm", num_eval_samples_per_task=3
        ) as env,
    ):
        env.choose_evaluation(suite=None, limit=4)
        await env._run_evaluate()
    samples = lines(env.evaluation.folder / "samples.jsonl")
    assert Counter(sample["recipe"]["task"] for sample in samples) == {
        "gcd": 2,
        "lcm": 2,
    }
    shown = capsys.readouterr().out
    assert "tasks, worst first" in shown
    folder = env.evaluation.folder
    assert f"results: {folder}" in shown
    end = shown[shown.index("\nsolved ") :]
    assert "\nA wrong answer, in " in end
    assert end.endswith(
        f"\nSee all answers: reasoning-gym-environment report {folder}\n"
    )


class RefusingAQuestion(PolicyServer):
    """Refuses the first question until it is told not to."""

    refused: str | None = ""

    async def _complete(self, request: Any) -> Any:
        if not is_probe(request) and self.refused is not None:
            self.refused = self.refused or request.question
            if request.question == self.refused:
                raise web.HTTPUnprocessableEntity(text="not this one")
        return await super()._complete(request)


async def test_the_command_ends_with_a_status_of_its_own_and_is_repeated(
    bench: Any, tokenizer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(bench.folder / "evals")
    settings = {"data_dir_to_save_evals": folder, "num_eval_samples_per_task": 3}
    async with RefusingAQuestion(ONE, tokenizer) as server:
        async with bench.unprepared(server.url, **settings) as env:
            with pytest.raises(
                IncompleteEvaluationError, match="repeat the command"
            ) as raised:
                await env._run_evaluate()
        assert raised.value.exit_status == 3
        assert (
            "the shares stand on 2 scored items; 1 of 3 not scored"
            in capsys.readouterr().out
        )
        server.refused = None
        async with bench.unprepared(server.url, **settings) as env:
            await env._run_evaluate()
        assert server.requests == 3
    assert env.evaluation.report.coverage == (3, 3)
    assert "INCOMPLETE" not in capsys.readouterr().out


async def evaluated(bench: Any, url: str, name: str, **changes: Any) -> Path:
    """The folder of an evaluation."""
    folder: Path = bench.folder / name
    async with bench.environment(
        url, data_dir_to_save_evals=str(folder), **changes
    ) as env:
        await env.evaluate()
    return folder


async def test_two_evaluations_are_compared(
    bench: Any, tokenizer: Any, script: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"num_eval_samples_per_task": 3}
    async with PolicyServer(script, tokenizer) as server:
        script.play("<answer>nope</answer>")
        before = await evaluated(bench, server.url, "before", **settings)
        script.play("<answer>1</answer>")
        after = await evaluated(
            bench, server.url, "after", eval_temperature=0.5, **settings
        )
        other = await evaluated(
            bench, server.url, "other", eval_seed=7, solved_threshold=0.9, **settings
        )
    for name in ("chance", "no_reasoning_floor", "above_chance"):
        assert f"eval/{name}" in metrics_of(after)
        # The floors are of another threshold.
        assert f"eval/{name}" not in metrics_of(other)
    solved = metrics_of(after)["eval/solved"]
    assert compare.main([str(before), str(after)]) == 0
    shown = capsys.readouterr().out
    assert "eval_temperature: 0.1 -> 0.5" in shown
    assert "too few items per task for a test" in shown
    assert compare.main([str(before / "samples.jsonl"), str(after), "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert compared["by_items"]["difference"]["value"] == pytest.approx(solved)
    assert compared["by_items"]["items"] == 3
    with pytest.raises(
        FixableError, match=r"no scored item in common.*eval_seed \(123, 7\)"
    ):
        compare.main([str(before), str(other)])


async def test_a_function_is_evaluated_as_a_served_model_is(
    bench: Any, tokenizer: Any, script: Any
) -> None:
    tasks = ["coin_flip", "gcd"]
    settings: dict[str, Any] = {
        "num_eval_samples_per_task": 2,
        "eval_attempts": 2,
        "eval_difficulties": [0.5],
    }
    reply = "<answer>1</answer>"
    script.play(reply)
    async with PolicyServer(script, tokenizer) as server:
        folder = await evaluated(
            bench, server.url, "served", include_tasks=tasks, **settings
        )
    served = read_results(folder)
    results = await evaluate_async(
        lambda messages: reply,
        folder=bench.folder / "function",
        tasks=tasks,
        **settings,
    )
    [change] = compare_results(served, results)
    assert (change.only_before, change.only_after, change.unscored) == (0, 0, 0)
    assert change.by_items.difference.value == 0
    for one, other in zip(served.samples, results.samples, strict=True):
        assert one.recipe == other.recipe
        assert one.sampled_at == other.sampled_at
        for mine, theirs in zip(one.rollouts, other.rollouts, strict=True):
            assert mine.conversation == theirs.conversation
            assert (mine.status, mine.raw_score) == (theirs.status, theirs.raw_score)
    counted = ("completion_tokens", "truncated", "reward")
    numbers = {
        name: number
        for name, number in results.report.numbers().items()
        if not name.endswith(counted)
    }
    assert numbers.items() <= metrics_of(folder).items()
    assert {file.name for file in folder.iterdir()} >= {
        file.name for file in results.path.iterdir()
    }


async def test_training_does_not_meet_the_evaluation_questions_of_the_tasks_it_draws(
    bench: Any,
) -> None:
    tasks = "coin_flip,gcd,simple_equations"
    settings = {"include_tasks": tasks, "num_eval_samples_per_task": 5, "eval_seed": 3}
    async with bench.playing(ONE, **settings) as env:
        assert len(env.evaluation.set) == 15
        drawn = [await env.get_next_item() for _ in range(200)]
        items = [item.problem for item in await env.evaluation.set.items()]
        assert env.statistics.counts["sampling/other_split"] > 20
    assert not any(belongs_to_evaluation(problem_identity(p)) for p in drawn)
    assert all(belongs_to_evaluation(problem_identity(p)) for p in items)
    assert [problem.recipe.task for problem in items] == sorted(tasks.split(",") * 5)


async def test_a_file_of_evaluation_items_has_what_an_evaluation_asks(
    bench: Any,
) -> None:
    tasks = ["chain_sum", "coin_flip", "gcd", "prime_factorization", "tower_of_hanoi"]
    difficulties = [0.0, 0.5, 1.0]
    settings: dict[str, Any] = {
        "include_tasks": ",".join(tasks),
        "num_eval_samples_per_task": 8,
        "eval_difficulties": difficulties,
    }
    async with bench.playing(ONE, **settings) as env:
        items = await env.evaluation.set.items()
    asked = group_by(lambda i: (i.problem.recipe.task, i.difficulty), items)
    options = ["--split", "eval", "--count", "8", "--env.task_processes", "1"]

    async def written(*more: str) -> list[tuple[str, str]]:
        out = bench.folder / f"{'-'.join(more)}.jsonl"
        command = [*options, *more, "-o", str(out)]
        assert await asyncio.to_thread(problems.main, command) == 0
        return [(row["recipe"], row["question"]) for row in lines(out)]

    def of(task: str, difficulty: float | None) -> list[tuple[str, str]]:
        made = [item.problem for item in asked[task, difficulty]]
        return [(recipe_text(one.recipe), one.question) for one in made]

    at = await written(*tasks, "--difficulties", "0,0.5,1")
    assert at == [
        row for each in difficulties for task in tasks for row in of(task, each)
    ]
    # The same items by their level, and those of the default configuration.
    easiest = await written(*tasks, "--levels", "0")
    assert easiest == [row for task in tasks for row in of(task, 0.0)]
    default = await written(*tasks)
    assert default == [row for task in tasks for row in of(task, None)]
