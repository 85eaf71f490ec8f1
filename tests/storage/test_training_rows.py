"""Selection of examples and of preference pairs."""

import json
from typing import Any

from stored_values import attempt, stored

from reasoning_gym_environment.storage.export import dpo_rows, record_rows, sft_rows
from reasoning_gym_environment.storage.rows import StoredGroup

SYSTEM = {"role": "system", "content": "Think."}
USER = {"role": "user", "content": "Question 2?"}


def scores(group: dict[str, Any], min_score: float) -> list[Any]:
    rows = sft_rows(StoredGroup.from_json(group), min_score=min_score)
    return [item.row["score"] for item in rows]


def by_assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def test_solved_completions_are_examples_with_their_whole_conversation() -> None:
    group = stored(attempt(1.0, "good"), attempt(0.0, "bad"), attempt(0.5, "fair"))
    rows = [item.row for item in sft_rows(StoredGroup.from_json(group))]
    assert [row["messages"] for row in rows] == [
        [SYSTEM, USER, by_assistant("good")],
        [SYSTEM, USER, by_assistant("fair")],
    ]
    assert [row["score"] for row in rows] == [1.0, 0.5]
    assert list(rows[0]) == ["messages", "task", "recipe", "score"]
    assert (rows[0]["task"], json.loads(rows[0]["recipe"])) == ("gcd", group["recipe"])


def test_a_minimum_score_replaces_the_status_solved() -> None:
    group = stored(attempt(1.0), attempt(0.25), attempt(0.1))
    assert scores(group, min_score=0.25) == [1.0, 0.25]


def test_unscored_and_truncated_completions_are_no_examples_at_any_reward() -> None:
    group = stored(attempt(None), attempt(1.0, finish_reason="length"), attempt(0.0))
    assert group["rollouts"][0]["score"] == 0.75
    assert scores(group, min_score=0.5) == []
    assert list(dpo_rows(StoredGroup.from_json(group))) == []


def test_a_pair_is_the_best_solved_and_the_worst_unsolved_completion() -> None:
    said = {
        "poor": 0.25,
        "fair": 0.5,
        "best": 1.0,
        "worst": 0.0,
        "as good": 1.0,
        "as bad": 0.0,
    }
    group = stored(*(attempt(score, text) for text, score in said.items()))
    [item] = dpo_rows(StoredGroup.from_json(group))
    assert item.row == {
        "prompt": [SYSTEM, USER],
        "chosen": [by_assistant("best")],
        "rejected": [by_assistant("worst")],
        "task": "gcd",
        "recipe": json.dumps(group["recipe"], sort_keys=True),
        "chosen_score": 1.0,
        "rejected_score": 0.0,
    }


def test_a_group_that_is_all_solved_or_all_unsolved_gives_no_pair() -> None:
    for given in ((1.0, 0.5), (0.0, 0.25), (1.0, None)):
        group = StoredGroup.from_json(stored(*map(attempt, given)))
        assert list(dpo_rows(group)) == []


def test_records_hold_all_that_is_stored() -> None:
    group = {
        **stored(attempt(1.0, "a"), attempt(None, "b")),
        "new": {"key": 1},
        "replica": "3",
    }
    group |= {"time": "2026-01-01T00:00:00+00:00", "difficulty": 0.5}
    rows = [item.row for item in record_rows(StoredGroup.from_json(group))]
    shared = {key: value for key, value in group.items() if key != "rollouts"}
    for name in ("recipe", "library_versions", "new"):
        shared[name] = json.dumps(shared[name], sort_keys=True)
    assert rows == [
        {**shared, **rollout, "rollout": number}
        for number, rollout in enumerate(group["rollouts"])
    ]


def test_rows_are_the_same_only_when_recipe_and_text_are() -> None:
    def identities(*rows: dict[str, object]) -> set[str]:
        return {
            item.identity
            for row in rows
            for item in sft_rows(StoredGroup.from_json(row))
        }

    assert len(identities(stored(attempt(1.0)), stored(attempt(0.5)))) == 1
    assert len(identities(stored(attempt(1.0)), stored(attempt(1.0), seed=4))) == 2
    assert len(identities(stored(attempt(1.0, "a")), stored(attempt(1.0, "b")))) == 2
