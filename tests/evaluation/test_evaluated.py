"""Samples read back are what was evaluated."""

from typing import Any

import pytest

from reasoning_gym_environment.evaluation.evaluated import item_from_row
from reasoning_gym_environment.records import Status


def row(**changes: Any) -> dict[str, Any]:
    rollout = {
        "conversation": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "2+2?"},
            {"role": "assistant", "content": "<answer>4</answer>"},
        ],
        "score": 0.5,
        "raw_score": 1.0,
        "status": "solved",
        "finish_reason": "length",
        "tokens": 12,
        "completion_tokens": 7,
    }
    recipe = {"task": "gcd", "seed": 3, "level": None, "parameters": {}}
    return {"rollouts": [rollout], "recipe": recipe, "difficulty": 0.5, **changes}


def test_a_row_becomes_an_item() -> None:
    read = item_from_row(row())
    [outcome] = read.outcomes
    assert (read.task, read.difficulty) == ("gcd", 0.5)
    assert (outcome.status, outcome.score, outcome.reward) == (Status.SOLVED, 1.0, 0.5)
    assert (outcome.tokens, outcome.truncated, outcome.solved) == (7, True, 1.0)


def test_a_completion_that_never_came_has_no_length() -> None:
    missing = {**row()["rollouts"][0], "tokens": 0, "completion_tokens": 0}
    assert item_from_row(row(rollouts=[missing])).outcomes[0].tokens is None


def test_the_same_recipe_and_question_make_the_same_item() -> None:
    said = {**row()["rollouts"][0], "status": "wrong", "raw_score": 0.0}
    assert item_from_row(row()).key == item_from_row(row(rollouts=[said])).key
    asked = {**said, "conversation": [{"role": "user", "content": "2+3?"}]}
    assert item_from_row(row()).key != item_from_row(row(rollouts=[asked])).key
    other = {**row()["recipe"], "seed": 5}
    assert item_from_row(row()).key != item_from_row(row(recipe=other)).key


@pytest.mark.parametrize("score", ["x", -0.1, 2, [], float("nan")])
def test_a_score_that_is_none_is_refused(score: object) -> None:
    scored = {**row()["rollouts"][0], "raw_score": score}
    with pytest.raises((TypeError, ValueError)):
        item_from_row(row(rollouts=[scored]))


def test_a_row_of_another_kind_is_refused() -> None:
    dumped = row()
    del dumped["difficulty"]
    with pytest.raises(KeyError, match="difficulty"):
        item_from_row(dumped)
