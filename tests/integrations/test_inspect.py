"""Inspect runs our task, from its command line and from Python."""

import ast
import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from injected import UNSCORED as UNSCORED_COUNT
from injected import injected_scores
from integration_programs import (
    ATROPOS,
    OWN_TASKS,
    PROGRAMS,
    UNMAKABLE,
    WITH_OWN_TASKS,
    environment,
    loaded,
    page_program,
    run,
    run_python,
    shown_output,
)
from scripted_server import answering
from suite_values import RECIPES, manifest, write_suite

from reasoning_gym_environment import ReasoningGym
from reasoning_gym_environment.inference.prompts import (
    BOXED_SYSTEM_PROMPTS,
    SYSTEM_PROMPTS,
)
from reasoning_gym_environment.integrations.shared import evaluation_problems
from reasoning_gym_environment.problems.suites import load_suite

pytestmark = [pytest.mark.integration, pytest.mark.processes]

UNSCORED = f"""
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from reasoning_gym_environment.integrations.inspect_ai import verifier

def reply(*_):
    return ModelOutput(choices=ModelOutput.from_content("", "x").choices, usage=ModelUsage())

sample = Sample(input="?", metadata={{"recipe": {UNMAKABLE!r}}})
model = get_model("mockllm/model", custom_outputs=reply)
[log] = eval(Task([sample], scorer=verifier()), model=model, display="none")
[score] = log.samples[0].scores.values()
print(log.status, score.value, score.reason, score.metadata["status"])
"""


INJECTED = """
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from reasoning_gym_environment.integrations.inspect_ai import verifier
from reasoning_gym_environment.integrations.shared import recipe_text, shared_gym

[problem] = shared_gym().problems("gcd", level=1)
recipes = {True: recipe_text(problem.recipe), False: UNMAKABLE}


def reply(messages, *_):
    answer = problem.oracle if messages[-1].text == "1.0" else "no idea"
    choices = ModelOutput.from_content("", f"<answer>{answer}</answer>").choices
    return ModelOutput(choices=choices, usage=ModelUsage())


samples = [
    Sample(input=str(score), metadata={"recipe": recipes[score is not None]})
    for score in SCORES
]
model = get_model("mockllm/model", custom_outputs=reply)
[log] = eval(Task(samples, scorer=verifier()), model=model, display="none")
print(
    {
        score.name: (
            score.metrics["mean"].value, score.metrics["stderr"].value, score.unscored_samples
        )
        for score in log.results.scores
    }
)
"""


EPOCHS = """
from itertools import cycle
from inspect_ai import Epochs, eval
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from reasoning_gym_environment.integrations.inspect_ai import reasoning_gym

task = reasoning_gym(tasks=["gcd"], per_task=1)
[sample] = task.dataset
right = cycle([False, True, True, True])

def reply(*_):
    answer = sample.target if next(right) else "no idea"
    choices = ModelOutput.from_content("", f"<answer>{answer}</answer>").choices
    return ModelOutput(choices=choices, usage=ModelUsage())

model = get_model("mockllm/model", custom_outputs=reply)
epochs = Epochs(4, ["mean", "pass_at_2"])
[log] = eval(task, model=model, epochs=epochs, max_connections=1, display="none")
print([
    f"{score.reducer} {score.name} {score.metrics['mean'].value}"
    for score in log.results.scores
])
"""


BOXED = """
from inspect_ai import eval
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from reasoning_gym_environment.integrations.inspect_ai import reasoning_gym

task = reasoning_gym(tasks=["gcd"], per_task=1)
[sample] = task.dataset

def reply(*_):
    choices = ModelOutput.from_content("", "\\\\boxed{" + sample.target + "}").choices
    return ModelOutput(choices=choices, usage=ModelUsage())

model = get_model("mockllm/model", custom_outputs=reply)
[log] = eval(task, model=model, display="none")
[score] = log.samples[0].scores.values()
try:
    reasoning_gym(suite="small")
except ValueError as error:
    refused = str(error).partition(" on ")[0]
print([sample.input[0].content, score.value["score"], refused])
"""


def means(log: dict[str, Any]) -> dict[str, float]:
    return {
        score["name"]: score["metrics"]["mean"]["value"]
        for score in log["results"]["scores"]
    }


def test_answers_in_boxes_are_asked_for_and_scored_where_a_variable_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REASONING_GYM_ANSWER_FORMAT", "boxed")
    assert ast.literal_eval(run_python(BOXED, tmp_path)) == [
        BOXED_SYSTEM_PROMPTS["think"],
        1.0,
        "answer_format must be tags",
    ]


def test_all_epochs_count_for_each_number(tmp_path: Path) -> None:
    """Of four attempts the first is wrong: metadata would have kept that one alone."""
    assert ast.literal_eval(run_python(EPOCHS, tmp_path)) == [
        "mean score 0.75",
        "mean solved 0.75",
        "pass_at_2 score 1.0",
        "pass_at_2 solved 1.0",
    ]


def test_the_page_program_scores_half_of_the_answers_as_right(tmp_path: Path) -> None:
    assert run_python(page_program("Inspect"), tmp_path) == shown_output("Inspect")


async def test_the_command_evaluates_held_out_problems_and_logs_statuses(
    tmp_path: Path,
) -> None:
    with ReasoningGym(processes=1, task_modules=[OWN_TASKS]) as gym:
        problems = evaluation_problems(
            gym, ["gcd", "due_date"], per_task=2, difficulty=0.5
        )
    replies = {p.question: f"<answer>{p.oracle}</answer>" for p in problems}
    replies[problems[0].question] = "no idea"
    async with answering(replies) as (url, asked):
        env = (
            environment(tmp_path)
            | WITH_OWN_TASKS
            | {"OURS_BASE_URL": url, "OURS_API_KEY": "x"}
        )
        inspect = str(PROGRAMS / "inspect")
        task = "reasoning_gym_environment/reasoning_gym"
        options = [
            "-T",
            "tasks=gcd,due_date",
            "-T",
            "per_task=2",
            "-T",
            "difficulty=0.5",
        ]
        model = ["--model", "openai-api/ours/simulated", "--display", "none"]
        await run(inspect, "eval", task, *options, *model, cwd=tmp_path, env=env)
        assert [messages[0]["role"] for messages in asked] == ["system"] * 4
        assert {messages[0]["content"] for messages in asked} == {
            SYSTEM_PROMPTS["think"]
        }
        [file] = (tmp_path / "logs").glob("*.eval")
        log = json.loads(
            await run(inspect, "log", "dump", str(file), cwd=tmp_path, env=env)
        )
    scores = {
        sample["input"][-1]["content"]: sample["scores"] for sample in log["samples"]
    }
    statuses = [scores[p.question]["verifier"]["metadata"]["status"] for p in problems]
    assert statuses == ["no_answer", "solved", "solved", "solved"]
    first = scores[problems[0].question]["verifier"]
    assert first["value"] == {"score": 0, "solved": 0}
    assert first["reason"] == "invalid_response_format"
    assert means(log) == {"score": 0.75, "solved": 0.75}


def test_failures_of_ours_change_no_metric(tmp_path: Path) -> None:
    scores = [score for group in injected_scores() for score in group]
    scored = [score for score in scores if score is not None]
    program = f"SCORES = {scores!r}\nUNMAKABLE = {UNMAKABLE!r}\n{INJECTED}"
    printed = ast.literal_eval(run_python(program, tmp_path))
    error = stdev(scored) / len(scored) ** 0.5
    expected = (pytest.approx(fmean(scored)), pytest.approx(error), UNSCORED_COUNT)
    assert printed == {"score": expected, "solved": expected}


def test_an_unscored_reply_does_not_count_as_zero(tmp_path: Path) -> None:
    assert run_python(UNSCORED, tmp_path) == "success nan scoring_failed unscored"


def test_it_does_not_import_atropos(tmp_path: Path) -> None:
    names = loaded("reasoning_gym_environment.integrations.inspect_ai", tmp_path)
    assert "inspect_ai" in names
    assert not names & ATROPOS


async def test_a_suite_runs_with_its_settings_and_its_hash_is_in_the_log(
    tmp_path: Path,
) -> None:
    with ReasoningGym(processes=1) as gym:
        problems = [gym.problem(recipe) for recipe in RECIPES]
    suite = write_suite(tmp_path / "tiny.json", manifest(problems))
    replies = {p.question: f"<answer>{p.oracle}</answer>" for p in problems}
    replies[problems[0].question] = "no idea"
    async with answering(replies) as (url, asked):
        env = {**environment(tmp_path), "OURS_BASE_URL": url, "OURS_API_KEY": "x"}
        task = "reasoning_gym_environment/reasoning_gym"
        model = ["--model", "openai-api/ours/simulated", "--display", "none"]
        inspect = str(PROGRAMS / "inspect")
        options = ["-T", f"suite={suite}", "--log-dir", "logs", "--log-format", "json"]
        await run(inspect, "eval", task, *options, *model, cwd=tmp_path, env=env)
        assert {messages[0]["content"] for messages in asked} == {"Answer."}
    [path] = (tmp_path / "logs").glob("*.json")
    log = json.loads(path.read_text())
    assert log["eval"]["metadata"] == {"suite": load_suite(suite).identity}
    assert log["eval"]["model_generate_config"] is not None
    assert means(log)["solved"] == 0.8
