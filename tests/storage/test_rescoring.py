"""Scoring stored rollouts again gives what training would give, or says why it can't."""

import copy
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from stored_values import as_stored, attempt, said, stored

from reasoning_gym_environment.evaluation.run import unscored_group
from reasoning_gym_environment.records import GroupResult, Problem, Recipe
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.scoring.channels import CHANNELS, Channel
from reasoning_gym_environment.scoring.grading import ScoringSettings, grade
from reasoning_gym_environment.storage.rescoring import (
    REASONS,
    Rescored,
    describe_changes,
    describe_rescoring,
    rescore,
)
from reasoning_gym_environment.storage.rows import StoredGroup

pytestmark = pytest.mark.asyncio(loop_scope="session")

SETTINGS = ScoringSettings(max_token_length=100, length_penalty_start=0.75)
TASKS = (
    "gcd",
    "arc_agi",
    "rearc",
    "countdown",
    "graph_color",
    "spell_backward",
    "list_functions",
)
TEXTS = (
    "<think>hm</think><answer>{}</answer>",
    "<answer>{} or so</answer>",
    "<answer>**{}**</answer>",
    "no answer",
    "<answer>{}</answer><answer>nope</answer>",
    "<answer>\ud800</answer>",
)


async def trained(
    pool: TaskPool, problem: Problem, *texts: str, tokens: int = 4, **extra: Any
) -> dict[str, Any]:
    """A row as training stores it."""
    completions = [said(text.format(problem.oracle), tokens=tokens) for text in texts]
    return as_stored(await grade(problem, completions, pool, SETTINGS), **extra)


async def again(
    pool: TaskPool, *rows: dict[str, Any], settings: ScoringSettings = SETTINGS
) -> list[Rescored]:
    groups = [StoredGroup.from_json(row) for row in rows]
    results = await rescore(groups, pool, settings, concurrency=2)
    assert [group.to_json() for group in groups] == list(rows)
    return results


def row_of(result: Rescored) -> dict[str, Any]:
    return result.after.to_json()


def without_seconds(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**rollout, "verify_seconds": 0.0} for rollout in row["rollouts"]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def gcd(pool: TaskPool) -> Problem:
    return await pool.generate(Recipe(task="gcd", seed=2))


@pytest.mark.parametrize("task", TASKS)
async def test_rows_as_training_stores_them_come_out_the_same(
    pool: TaskPool, task: str
) -> None:
    problem = await pool.generate(Recipe(task=task, seed=6))
    row = await trained(pool, problem, *TEXTS)
    [result] = await again(pool, row)
    assert result.kept == ""
    assert without_seconds(row_of(result)) == without_seconds(row)
    assert [change.reason for change in result.changes] == [None] * len(TEXTS)


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.name)
async def test_thoughts_of_every_family_are_left_out_again(
    pool: TaskPool, gcd: Problem, channel: Channel
) -> None:
    draft = f"{channel.opens}maybe <answer>-5</answer>"
    answer = "<answer>{}</answer>"
    row = await trained(
        pool,
        gcd,
        f"{draft}{channel.closes}{answer}",
        f"{channel.opens}maybe {answer}, let me check",
        answer,
        f"{draft}{channel.closes}so {draft}{channel.closes}{answer}",
        f"{channel.opens}{answer}{channel.closes}<answer>-5</answer>",
    )
    [result] = await again(pool, row)
    statuses = [rollout["status"] for rollout in row_of(result)["rollouts"]]
    assert statuses == ["solved", "no_answer", "solved", "solved", "wrong"]
    assert without_seconds(row_of(result)) == without_seconds(row)


async def test_scores_that_were_tampered_with_are_restored(
    pool: TaskPool, gcd: Problem
) -> None:
    row = await trained(pool, gcd, *TEXTS)
    tampered = copy.deepcopy(row)
    for rollout in tampered["rollouts"]:
        rollout.update(
            score=0.9, raw_score=0.9, status="solved", answer="forged", detail="x"
        )
    tampered["oracle"] = "forged"
    [result] = await again(pool, tampered)
    assert without_seconds(row_of(result)) == without_seconds(row)
    assert row_of(result)["oracle"] == gcd.oracle
    assert result.before.oracle != result.after.oracle
    assert {change.reason for change in result.changes} == {REASONS["answer"]}
    headline, *lines = describe_changes(result.changes)
    assert headline.startswith("6 of 6 scores changed, 2 up, 4 down; mean 0.900 -> ")
    assert lines[:3] == ["reasons:", f"  6  {REASONS['answer']}", "statuses:"]
    assert "  2  solved -> wrong" in lines
    assert lines[-2:] == ["tasks:", f"  gcd: {headline}"]


async def test_a_row_whose_question_changed_stays_as_it_is(
    pool: TaskPool, gcd: Problem
) -> None:
    row = await trained(pool, gcd, *TEXTS)
    row["recipe"]["seed"] = 4
    same_version, other_version = copy.deepcopy(row), copy.deepcopy(row)
    same_version["library_versions"]["reasoning-gym"] = version("reasoning-gym")
    other_version["recipe"]["library_version"] = "0.0.7"
    with pytest.warns(
        UserWarning, match=r"made with reasoning-gym 0\.0\.7 are generated with"
    ):
        same, other = await again(pool, same_version, other_version)
    assert (row_of(same), row_of(other)) == (same_version, other_version)
    assert not same.changes
    installed = version("reasoning-gym")
    assert same.kept.endswith(
        f"another question with the same reasoning-gym {installed}"
    )
    assert other.kept.endswith(
        f"generated with reasoning-gym 0.0.7, installed is {installed}"
    )


async def test_rows_without_version_are_rescored_and_counted(
    pool: TaskPool, gcd: Problem
) -> None:
    row = await trained(pool, gcd, *TEXTS)
    del row["recipe"]["library_version"]
    row["library_versions"]["reasoning-gym"] = "0.1.24"
    [result] = await again(pool, row)
    installed = version("reasoning-gym")
    assert row_of(result)["recipe"] == {**row["recipe"], "library_version": installed}
    assert (
        f"  1  were generated with reasoning-gym 0.1.24, scored with {installed}"
        in [*describe_rescoring([result], SETTINGS, torn=0)]
    )


async def test_a_row_whose_problem_cant_be_made_stays_as_it_is(pool: TaskPool) -> None:
    row = stored(attempt(1.0), task="no_such_task")
    [result] = await again(pool, row)
    assert (row_of(result), len(result.changes)) == (row, 0)
    assert result.kept.startswith("the problem can't be regenerated: no_such_task: ")


async def test_another_score_mode_is_a_reason_for_changes(
    pool: TaskPool, gcd: Problem
) -> None:
    row = await trained(pool, gcd, *TEXTS[:2])
    binary = ScoringSettings(
        max_token_length=100, length_penalty_start=0.75, score_mode="binary"
    )
    [result] = await again(pool, row, settings=binary)
    assert 0.0 < row["rollouts"][1]["score"] < 1.0
    assert [rollout["score"] for rollout in row_of(result)["rollouts"]] == [1.0, 0.0]
    assert [change.reason for change in result.changes] == [None, REASONS["score"]]
    assert (row_of(result)["scoring"], row.get("scoring")) == (binary.to_json(), None)


async def test_full_credit_for_a_right_answer_applies_to_stored_ones(
    pool: TaskPool, gcd: Problem
) -> None:
    row = await trained(pool, gcd, "<answer>**{}**</answer>")
    library = ScoringSettings(max_token_length=100, score_mode="library")
    [result] = await again(pool, row, settings=library)
    [before], [after] = row["rollouts"], row_of(result)["rollouts"]
    assert (before["score"], after["score"]) == (1.0, after["raw_score"])
    assert before["raw_score"] == after["raw_score"] < 1.0
    assert [change.reason for change in result.changes] == [REASONS["score"]]


async def test_the_length_penalty_goes_by_the_stored_lengths(
    pool: TaskPool, gcd: Problem
) -> None:
    row = await trained(pool, gcd, TEXTS[0], TEXTS[0], tokens=87)
    assert [rollout["score"] for rollout in row["rollouts"]] == pytest.approx(
        [0.48, 0.48], abs=0.1
    )
    [same] = await again(pool, row)
    [long] = await again(
        pool,
        row,
        settings=ScoringSettings(max_token_length=1000, length_penalty_start=0.75),
    )
    assert without_seconds(row_of(same)) == without_seconds(row)
    assert [rollout["score"] for rollout in row_of(long)["rollouts"]] == [1.0, 1.0]


async def test_a_rollout_without_a_completion_stays_unscored(
    pool: TaskPool, gcd: Problem
) -> None:
    [lost] = unscored_group(gcd, "server down", attempts=1).attempts
    answered = await grade(
        gcd, [said(f"<answer>{gcd.oracle}</answer>")], pool, SETTINGS
    )
    row = as_stored(GroupResult(problem=gcd, attempts=(lost, *answered.attempts)))
    [result] = await again(pool, row)
    assert without_seconds(row_of(result)) == without_seconds(row)
    assert [change.after.status.value for change in result.changes] == ["solved"]


async def test_what_this_version_does_not_know_is_kept(
    pool: TaskPool, gcd: Problem
) -> None:
    row = await trained(pool, gcd, TEXTS[0], later={"step": 3})
    row["rollouts"][0]["note"] = "seen"
    [result] = await again(pool, row)
    assert (row_of(result)["later"], row_of(result)["rollouts"][0]["note"]) == (
        {"step": 3},
        "seen",
    )
    assert row_of(result)["library_versions"]["atroposlib"] == "0.4.0"
    assert json.loads(json.dumps(row_of(result))) == row_of(result)


@pytest.mark.parametrize(
    ("task", "parameters", "named"),
    [
        ("simple_integration", {"symbols": ["CODE"]}, "symbols can't be"),
        ("polynomial_multiplication", {"variables": ["CODE"]}, "variables can't be"),
        (
            "spell_backward",
            {"data_file": "../../../../etc/passwd"},
            "data_file can't be",
        ),
        ("ab", {"length": 10**9}, "length can't be"),
        ("composite", {"datasets": []}, "unknown task"),
    ],
)
async def test_a_row_whose_recipe_is_hostile_is_kept_as_it_was_and_runs_nothing(
    pool: TaskPool,
    gcd: Problem,
    short_path: Path,
    task: str,
    parameters: dict[str, Any],
    named: str,
) -> None:
    code = f"__import__('os').system('id > {short_path}/ran')"
    parameters = json.loads(json.dumps(parameters).replace("CODE", code))
    row = await trained(pool, gcd, *TEXTS)
    row["item_id"] = task
    row["recipe"] = {"task": task, "seed": 1, "level": None, "parameters": parameters}
    [result] = await again(pool, row)
    assert row_of(result) == row
    assert result.kept.startswith(f"the problem can't be regenerated: {task}: ")
    assert named in result.kept
    assert list(short_path.iterdir()) == []


@pytest.mark.parametrize(
    "recipe",
    [
        {"seed": 2**60},
        {"level": 10**300},
        {"parameters": {"max_value": [[[[[[1]]]]]]}},
        {"parameters": {"max_value": 10**300}},
    ],
)
async def test_a_row_with_an_invalid_recipe_is_refused(recipe: dict[str, Any]) -> None:
    row = stored(attempt(1.0))
    row["recipe"] = {**row["recipe"], **recipe}
    with pytest.raises(ValueError, match=r"seed|level|max_value"):
        StoredGroup.from_json(row)
