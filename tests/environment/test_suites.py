"""`evaluate --suite`: the items of a file, with the settings that it fixes."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_settings import checked
from suite_values import RECIPES, manifest, problems_of, write_suite

from reasoning_gym_environment.commands import suite
from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.problems.suites import load_suite
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.settings import with_suite

SCRIPT = ScriptedPolicy(["<answer>1</answer>"])


async def test_evaluate_runs_a_suite_and_the_leaderboard_takes_it(
    bench: Any, tokenizer: Any, pool: TaskPool
) -> None:
    name = write_suite(bench.folder / "tiny.json", manifest(await problems_of(pool)))
    folder = {"data_dir_to_save_evals": "results"}
    settings = {**folder, "system_prompt": "Other.", "max_token_length": 99}
    async with PolicyServer(SCRIPT, tokenizer) as server:
        options = ("--suite", name, *bench.file(server.url, **settings))
        async with bench.command("evaluate", *options) as command:
            assert await command.exit_code() == 0, command.said()
    assert "The suite tiny fixes " in command.said()
    run = json.loads((bench.folder / "results" / "run.json").read_text())["settings"]
    assert run["suite"] == load_suite(name).identity
    assert (run["system_prompt"], run["max_token_length"]) == ("Answer.", 99)
    lines = (bench.folder / "results" / "samples.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["recipe"]["seed"] for row in rows] == [
        recipe.seed for recipe in RECIPES
    ]
    table = bench.folder / "table.md"
    arguments = [
        "table",
        str(bench.folder / "results"),
        "--suite",
        name,
        "-o",
        str(table),
    ]
    assert suite.main(arguments) == 0
    assert "| 1 | " in table.read_text()


async def test_a_suite_with_another_question_stops_before_the_first_request(
    bench: Any, tokenizer: Any, pool: TaskPool
) -> None:
    rest = manifest(await problems_of(pool))
    rest["sets"][0]["items"][0][1] = "0" * 64
    given = load_suite(write_suite(bench.folder / "tiny.json", rest))
    async with (
        PolicyServer(SCRIPT, tokenizer) as server,
        bench.unprepared(server.url, **with_suite({}, given)) as env,
    ):
        env.choose_evaluation(suite=given, limit=None)
        said = "1 of the 5 items of tiny have another quest"
        with pytest.raises(FixableError, match=said) as raised:
            await env._run_evaluate()
    assert raised.value.exit_status == 2
    assert server.requests == 0


@pytest.mark.parametrize("answer_format", ["boxed", "tags-or-boxed"])
def test_a_suite_takes_answers_in_tags_alone(answer_format: str) -> None:
    options = ("--suite", "small", "--env.answer_format", answer_format)
    with pytest.raises(ConfigurationError, match=f"must be tags .* '{answer_format}'"):
        checked("evaluate", *options)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("include_tasks", "gcd"),
        ("exclude_tasks", "gcd"),
        ("num_eval_samples_per_task", "2"),
        ("eval_difficulties", "0.5"),
        ("eval_seed", "7"),
    ],
)
def test_a_suite_refuses_options_that_choose_items(option: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"--env.{option}: .* leave it out"):
        checked("evaluate", "--suite", "small", f"--env.{option}", value)


def test_a_suite_ignores_the_tasks_in_the_file_of_a_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "training.yaml"
    file.write_text("env:\n  include_tasks: gcd\n")
    settings = checked("evaluate", "--config", str(file), "--suite", "small")
    assert settings.suite is not None
    assert settings.env.include_tasks == settings.suite.tasks
    assert "fixes include_tasks" in caplog.text


def test_a_suite_is_for_evaluate_alone() -> None:
    with pytest.raises(
        ConfigurationError, match="--suite is for `evaluate` alone, got 'small'"
    ):
        checked("serve", "--suite", "small")
