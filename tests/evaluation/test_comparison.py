"""Evaluations are paired by item; what can't be paired is counted."""

import json

import pytest
from evaluation_values import item

from reasoning_gym_environment.evaluation.comparison import compare, comparison_table
from reasoning_gym_environment.storage.rows import StoredGroup

Scores = list[float | None]


def evaluation(**tasks: Scores) -> list[StoredGroup]:
    """One item with one attempt for each score."""
    return [
        item(score, task=task, key=f"{task} {n}")
        for task, scores in tasks.items()
        for n, score in enumerate(scores)
    ]


def test_differences_are_of_the_second_from_the_first() -> None:
    compared = compare(
        evaluation(gcd=[1.0, 0.0, 0.0], lcm=[0.0]), evaluation(gcd=[1.0, 1.0, 0.0], lcm=[1.0])
    )
    assert compared is not None
    assert (compared.by_items.before, compared.by_items.after) == (0.25, 0.75)
    assert compared.by_items.difference.value == 0.5
    assert compared.by_tasks.difference.value == pytest.approx((1 / 3 + 1) / 2)
    assert compared.tasks["gcd"].difference.value == pytest.approx(1 / 3)
    assert compared.tasks["gcd"].items == 3


def test_items_pair_by_their_key_wherever_they_stand() -> None:
    before = evaluation(gcd=[1.0, 0.0, 1.0, 0.0])
    compared = compare(before, reversed(before))
    assert compared is not None
    assert compared.by_items.difference.value == 0.0
    assert compared.by_items.difference.standard_error == 0.0


def test_what_only_one_has_and_what_was_not_scored_is_left_out_and_counted() -> None:
    compared = compare(evaluation(gcd=[1.0, 1.0, 1.0]), evaluation(gcd=[0.0, None], lcm=[1.0]))
    assert compared is not None
    assert (compared.only_before, compared.only_after, compared.unscored) == (1, 1, 1)
    assert compared.by_items.items == 1
    assert compared.tasks.keys() == {"gcd"}


def test_attempts_of_an_item_are_averaged_without_unscored_ones() -> None:
    compared = compare([item(1.0, None, 0.0, 0.0)], [item(1.0, 0.2)])
    assert compared is not None
    assert compared.by_items.before == pytest.approx(1 / 3)
    assert compared.by_items.after == 0.5
    assert compared.score.after == pytest.approx(0.6)


def test_evaluations_without_a_scored_item_in_common_cannot_be_compared() -> None:
    assert compare(evaluation(gcd=[1.0]), evaluation(lcm=[1.0])) is None
    assert compare(evaluation(gcd=[1.0]), evaluation(gcd=[None])) is None


def test_a_task_that_changed_beyond_noise_comes_first_in_the_table() -> None:
    before = evaluation(gcd=[0.0] * 12, lcm=[0.0] * 12, ab=[1.0] * 12)
    after = evaluation(gcd=[1.0] * 12, lcm=[0.0] * 11 + [1.0], ab=[0.0] * 2 + [1.0] * 10)
    compared = compare(before, after)
    assert compared is not None
    assert [t for t, change in compared.tasks.items() if change.beyond_noise] == ["gcd"]
    lines = comparison_table(compared).splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ")]
    assert names[1:] == ["gcd", "ab", "lcm"]
    assert "1 of 3 tasks changed beyond noise (solved)" in lines
    assert "Excluded: 0 items only before, 0 only after, 0 unscored in one." in lines


def test_an_incomplete_evaluation_stands_above_the_table() -> None:
    compared = compare(evaluation(gcd=[0.0, None, None]), evaluation(gcd=[1.0, 1.0, 0.0]))
    assert compared is not None
    lines = comparison_table(compared).splitlines()
    assert lines[0] == "INCOMPLETE: before stands on 1 scored items; 2 of 3 not scored"
    assert "after stands" not in "\n".join(lines)
    assert compared.to_json()["coverage"] == {
        "before": {"scored": 1, "items": 3},
        "after": {"scored": 3, "items": 3},
    }


def test_too_few_items_are_not_said_to_show_no_change() -> None:
    compared = compare(evaluation(gcd=[0.0] * 5, lcm=[0.0]), evaluation(gcd=[1.0] * 5, lcm=[1.0]))
    assert compared is not None
    lines = comparison_table(compared).splitlines()
    [said] = [line for line in lines if line.startswith("too few items per task for a test")]
    assert said.endswith(
        "(at least 6): evaluate both with a higher --env.num_eval_samples_per_task"
    )
    start = lines.index(said)
    assert [line.split()[0] for line in lines[start + 1 : start + 3]] == ["gcd", "lcm"]
    assert not any("within noise" in line or "changed" in line for line in lines)


@pytest.mark.parametrize("items", [1, 12])
def test_of_many_tasks_within_noise_only_the_largest_changes_are_listed(items: int) -> None:
    tasks = [f"t{n:03}" for n in range(100)]
    compared = compare(
        evaluation(**dict.fromkeys(tasks, [0.0] * items)),
        evaluation(**{t: [float(t in ("t007", "t093"))] + [0.0] * (items - 1) for t in tasks}),
    )
    assert compared is not None
    assert len(compared.tasks) == 100
    lines = comparison_table(compared).splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  t")]
    assert names == ["t007", "t093"]
    assert "  98 tasks with a smaller change or none; --json has all" in lines


def test_a_comparison_is_plain_json() -> None:
    compared = compare(evaluation(gcd=[0.0, 1.0]), evaluation(gcd=[1.0, 1.0]))
    assert compared is not None
    plain = json.loads(json.dumps(compared.to_json()))
    assert plain["by_items"]["difference"]["value"] == 0.5
    assert plain["tasks"]["gcd"]["p_value"] == 1.0
    assert plain["tasks"]["gcd"]["beyond_noise"] is False
