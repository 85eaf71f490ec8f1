"""Rows read back are what was stored."""

from dataclasses import replace
from typing import Any

import pytest
from group_values import group

from reasoning_gym_environment.records import Status
from reasoning_gym_environment.storage.rows import StoredGroup


def row(**changes: Any) -> dict[str, Any]:
    rollout = {
        "conversation": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "2+2?"},
            {"role": "assistant", "content": "<answer>4</answer>"},
        ],
        "score": 0.5,
        "answer": "4",
        "status": "solved",
        "detail": "",
        "raw_score": 1.0,
        "raw_form_score": 1.0,
        "tagged_form_score": None,
        "length_factor": 0.5,
        "verify_seconds": 0.25,
        "finish_reason": "length",
        "tokens": 12,
        "completion_tokens": 7,
    }
    recipe = {"task": "gcd", "seed": 3, "level": None, "parameters": {}}
    known = {
        "item_id": "gcd",
        "rollouts": [rollout],
        "schema_version": 1,
        "recipe": recipe,
    }
    return {**known, "oracle": "4", "difficulty": 0.5, **changes}


def test_a_row_becomes_a_group() -> None:
    read = StoredGroup.from_json(row())
    [outcome] = read.rollouts
    assert (read.task, read.difficulty) == ("gcd", 0.5)
    assert (outcome.status, outcome.raw_score, outcome.score) == (
        Status.SOLVED,
        1.0,
        0.5,
    )
    assert (outcome.length, outcome.truncated, outcome.solved) == (7, True, 1.0)


def test_a_missing_completion_has_no_length() -> None:
    missing = {**row()["rollouts"][0], "tokens": 0, "completion_tokens": 0}
    assert StoredGroup.from_json(row(rollouts=[missing])).rollouts[0].length is None


def test_a_row_of_an_earlier_version_has_no_step() -> None:
    assert StoredGroup.from_json(row()).step is None
    assert StoredGroup.from_json(row()).to_json() == row()
    assert StoredGroup.from_json(row(step=0)).to_json()["step"] == 0


@pytest.mark.parametrize("asked_again", [True, False])
def test_a_row_tells_whether_its_problem_was_asked_again(asked_again: bool) -> None:
    fresh = group(0.0, 1.0)
    result = replace(fresh, problem=replace(fresh.problem, replayed=asked_again))
    stored = StoredGroup.from_result(result, [], {}).to_json()
    assert stored.get("asked_again", False) is asked_again
    assert StoredGroup.from_json(stored).asked_again is asked_again


def test_a_row_of_an_own_task_names_its_module_and_its_chance() -> None:
    fresh = group(0.0, 1.0)
    own = replace(
        fresh, problem=replace(fresh.problem, source="my_tasks", constant_baseline=0.0)
    )
    stored = StoredGroup.from_result(own, [], {}).to_json()
    assert (stored["source"], stored["chance"]) == ("my_tasks", 0.0)
    assert StoredGroup.from_json(stored).chance == 0.0
    assert (
        not {"source", "chance"}
        & StoredGroup.from_result(fresh, [], {}).to_json().keys()
    )


def test_the_same_recipe_and_question_make_the_same_item() -> None:
    def key(**changes: Any) -> str:
        return StoredGroup.from_json(row(**changes)).item_key

    said = {**row()["rollouts"][0], "status": "wrong", "raw_score": 0.0}
    asked = {**said, "conversation": [{"role": "user", "content": "2+3?"}]}
    assert key() == key(rollouts=[said]) != key(rollouts=[asked])
    assert key() == key(recipe={**row()["recipe"], "library_version": "0.1.25"})
    assert key() != key(recipe={**row()["recipe"], "seed": 5})


@pytest.mark.parametrize("score", ["x", -0.1, 2, [], float("nan")])
def test_an_invalid_score_condition_is_refused(score: object) -> None:
    scored = {**row()["rollouts"][0], "raw_score": score}
    with pytest.raises((TypeError, ValueError)):
        StoredGroup.from_json(row(rollouts=[scored]))


@pytest.mark.parametrize(
    ("scoring", "says"),
    [
        (
            {"solved_threshold": []},
            r"scoring.solved_threshold must be .*, got \[\]",
        ),
        (
            {"solved_threshold": {}},
            r"scoring.solved_threshold must be .*, got \{\}",
        ),
        ({"scoring_version": "2"}, "scoring.scoring_version must be int, got '2'"),
    ],
)
def test_scoring_that_readers_cannot_use_is_refused(
    scoring: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        StoredGroup.from_json(row(scoring=scoring))
    others = {"solved_threshold": 0.5, "later": []}
    assert StoredGroup.from_json(row(scoring=others)).to_json()["scoring"] == others


def test_keys_that_this_version_does_not_know_stay() -> None:
    [known] = row()["rollouts"]
    known["conversation"][0]["name"] = "a name"
    later = row(
        rollouts=[{**known, "note": "seen", "other": 5}], later={"step": 3}, file=[]
    )
    assert StoredGroup.from_json(row()).to_json() == row()
    assert StoredGroup.from_json(later).to_json() == later


def test_a_row_of_another_task_than_its_recipe_is_refused() -> None:
    with pytest.raises(
        ValueError, match="item_id must be its recipe's task, got 'lcm'"
    ):
        StoredGroup.from_json(row(item_id="lcm"))
