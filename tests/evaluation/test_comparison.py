"""Evaluations are paired by item; what can't be paired is counted."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable
from random import Random

import pytest
from evaluation_values import item
from msgspec.structs import replace

from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.evaluation.comparison import (
    Comparison,
    compare_samples,
    comparison_table,
)
from reasoning_gym_environment.evaluation.leaderboard import (
    Standing,
    common_items,
    leaderboard_table,
    trained_questions,
)
from reasoning_gym_environment.problems.suites import NAMES, load_suite
from reasoning_gym_environment.storage.rows import StoredGroup

Scores = list[float | None]


def evaluation(**tasks: Scores) -> list[StoredGroup]:
    """One item with one attempt for each score."""
    return [
        item(score, task=task, key=f"{task} {n}")
        for task, scores in tasks.items()
        for n, score in enumerate(scores)
    ]


def compare(before: Iterable[StoredGroup], after: Iterable[StoredGroup]) -> Comparison:
    [comparison] = compare_samples(before, after)
    return comparison


def test_differences_are_of_the_second_from_the_first() -> None:
    compared = compare(
        evaluation(gcd=[1.0, 0.0, 0.0], lcm=[0.0]),
        evaluation(gcd=[1.0, 1.0, 0.0], lcm=[1.0]),
    )
    assert (compared.by_items.before, compared.by_items.after) == (0.25, 0.75)
    assert compared.by_items.difference.value == 0.5
    assert compared.by_tasks.difference.value == pytest.approx((1 / 3 + 1) / 2)
    assert compared.tasks["gcd"].difference.value == pytest.approx(1 / 3)
    assert compared.tasks["gcd"].items == 3


def test_items_pair_by_their_key_wherever_they_stand() -> None:
    before = evaluation(gcd=[1.0, 0.0, 1.0, 0.0])
    compared = compare(before, reversed(before))
    assert compared.by_items.difference.value == 0.0
    assert compared.by_items.difference.standard_error == 0.0


def test_what_only_one_has_and_what_was_not_scored_is_left_out_and_counted() -> None:
    compared = compare(
        evaluation(gcd=[1.0, 1.0, 1.0]), evaluation(gcd=[0.0, None], lcm=[1.0])
    )
    assert (compared.only_before, compared.only_after, compared.unscored) == (1, 1, 1)
    assert compared.by_items.items == 1
    assert compared.tasks.keys() == {"gcd"}


def test_attempts_of_an_item_are_averaged_without_unscored_ones() -> None:
    compared = compare([item(1.0, None, 0.0, 0.0, key="a")], [item(1.0, 0.2, key="a")])
    assert compared.by_items.before == pytest.approx(1 / 3)
    assert compared.by_items.after == 0.5
    assert compared.score.after == pytest.approx(0.6)


def test_items_that_ask_the_same_question_count_as_one() -> None:
    def repeated(*scores: float) -> list[StoredGroup]:
        made = [item(score, key="twice") for score in scores[:2]]
        recipe = made[1].recipe
        made[1] = replace(made[1], recipe=dataclasses.replace(recipe, seed=5))
        return [*made, item(scores[2], key="once")]

    compared = compare(repeated(1.0, 1.0, 0.0), repeated(1.0, 0.0, 1.0))
    assert compared.by_items.items == compared.tasks["gcd"].items == 2
    assert (compared.by_items.before, compared.by_items.after) == (0.5, 0.75)
    assert (compared.only_before, compared.unscored) == (0, 0)


def test_evaluations_without_a_scored_item_in_common_cannot_be_compared() -> None:
    assert compare_samples(evaluation(gcd=[1.0]), evaluation(lcm=[1.0])) == []
    assert compare_samples(evaluation(gcd=[1.0]), evaluation(gcd=[None])) == []


def test_a_task_that_changed_beyond_noise_comes_first_in_the_table() -> None:
    before = evaluation(gcd=[0.0] * 12, lcm=[0.0] * 12, ab=[1.0] * 12)
    after = evaluation(
        gcd=[1.0] * 12, lcm=[0.0] * 11 + [1.0], ab=[0.0] * 2 + [1.0] * 10
    )
    compared = compare(before, after)
    assert [t for t, change in compared.tasks.items() if change.beyond_noise] == ["gcd"]
    lines = comparison_table(compared).splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ")]
    assert names[1:] == ["gcd", "ab", "lcm"]
    assert (
        "1 of 3 tasks changed beyond noise (solved); 2 have too few items to tell"
        in lines
    )
    assert "Excluded: 0 items only before, 0 only after, 0 unscored in one." in lines


def test_an_incomplete_evaluation_stands_above_the_table() -> None:
    compared = compare(
        evaluation(gcd=[0.0, None, None]), evaluation(gcd=[1.0, 1.0, 0.0])
    )
    lines = comparison_table(compared).splitlines()
    assert lines[0] == "INCOMPLETE: before stands on 1 scored items; 2 of 3 not scored"
    assert "after stands" not in "\n".join(lines)
    assert compared.to_json()["coverage"] == {
        "before": {"scored": 1, "items": 3},
        "after": {"scored": 3, "items": 3},
    }


def test_too_few_items_are_not_said_to_show_no_change() -> None:
    compared = compare(
        evaluation(gcd=[0.0] * 5, lcm=[0.0]), evaluation(gcd=[1.0] * 5, lcm=[1.0])
    )
    lines = comparison_table(compared).splitlines()
    [said] = [
        line for line in lines if line.startswith("too few items per task for a test")
    ]
    assert said.endswith(
        "(at least 6): evaluate both with a higher --limit (--env.num_eval_samples_per_task)"
    )
    start = lines.index(said)
    assert lines[start + 1 : start + 3] == ["", "can't tell"]
    assert [line.split()[0] for line in lines[start + 3 : start + 5]] == ["gcd", "lcm"]
    assert not any("within noise" in line or "changed" in line for line in lines)


@pytest.mark.parametrize("items", [1, 12])
def test_of_many_tasks_within_noise_only_the_largest_changes_are_listed(
    items: int,
) -> None:
    tasks = [f"t{n:03}" for n in range(100)]
    compared = compare(
        evaluation(**dict.fromkeys(tasks, [0.0] * items)),
        evaluation(
            **{t: [float(t in ("t007", "t093"))] + [0.0] * (items - 1) for t in tasks}
        ),
    )
    assert len(compared.tasks) == 100
    lines = comparison_table(compared).splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  t")]
    assert names == ["t007", "t093"]
    assert "  98 tasks with a smaller change or none; --json has all" in lines


def test_a_comparison_is_plain_json() -> None:
    compared = compare(evaluation(gcd=[0.0, 1.0]), evaluation(gcd=[1.0, 1.0]))
    plain = json.loads(json.dumps(compared.to_json()))
    assert plain["by_items"]["difference"]["value"] == 0.5
    assert plain["tasks"]["gcd"]["p_value"] == 1.0
    assert plain["tasks"]["gcd"]["beyond_noise"] is False


def standing(model: str, **tasks: list[int | None]) -> Standing:
    """One attempt for each 0 or 1, none where there is None."""
    items = {
        task: " ".join("0/0" if right is None else f"{right}/1" for right in own)
        for task, own in tasks.items()
    }
    return Standing(model=model, tokens=None, items=items)


CATEGORIES = {"gcd": "arithmetic", "lcm": "arithmetic", "ab": "algorithmic"}


def test_models_that_no_paired_test_tells_apart_share_a_rank() -> None:
    """The second has one item more than the first, and both half as many again as the third."""
    standings = [
        standing("third", gcd=[1, 0] * 20),
        standing("second", gcd=[1] * 38 + [0] * 2),
        standing("first", gcd=[1] * 39 + [0]),
    ]
    _, _, *rows, _, _ = leaderboard_table(
        standings, CATEGORIES, {"gcd": 0.25}
    ).splitlines()
    cells = [row.split(" | ") for row in rows]
    assert [(row[0], row[1], row[4]) for row in cells] == [
        ("| 1", "first", "72.5%"),
        ("| 1", "second", "70.0%"),
        ("| 3", "third", "25.0%"),
    ]


def test_a_task_without_twenty_common_items_has_neither_weight_nor_column() -> None:
    """Of `lcm` one model has 19; of `gcd` the other lacks an item, which counts for neither."""
    one = standing("one", gcd=[1] * 20 + [None], lcm=[0] * 20, ab=[0])
    other = standing("other", gcd=[0] + [1] * 20, lcm=[0] * 19 + [None], ab=[1])
    table = leaderboard_table([one, other], CATEGORIES, {"gcd": 0.0})
    head, _, first, second, _, said = table.splitlines()
    assert (
        head
        == "| rank | model | solved (20) | 95 % | above chance | tokens | arithmetic (20) |"
    )
    assert first.startswith("| 1 | one | 100.0% |")
    assert second.startswith("| 1 | other | 95.0% |")
    assert said == (
        "In brackets: items, the same for all models. 1 tasks weigh alike. Fewer than 20 items of "
        "all models, and so no weight: `lcm` 19, `ab` 1."
    )


def test_the_share_without_what_training_asks_stands_beside_the_share_of_all() -> None:
    """It leaves items out, and no task that keeps one."""
    one = standing("one", gcd=[1] * 20, lcm=[1] * 10 + [0] * 10, ab=[0] * 20)
    trained = {"lcm": [False] * 5 + [True] * 15, "ab": [True] * 20, "gcd": [False] * 20}
    table = leaderboard_table([one], CATEGORIES, {}, trained=trained)
    head, _, row, _, said = table.splitlines()
    assert head.startswith(
        "| rank | model | solved (60) | 95 % | without trained (25) | above chance |"
    )
    cells = row.split(" | ")
    assert (cells[2], cells[4]) == ("50.0%", "100.0%")
    assert said.endswith(": `lcm` 15, `ab` 20.")
    plain = leaderboard_table([one], CATEGORIES, {}, trained={"gcd": [False] * 20})
    assert plain == leaderboard_table([one], CATEGORIES, {})


@pytest.mark.parametrize("name", NAMES)
def test_a_suites_items_of_few_questions_are_those_that_training_asks(
    name: str,
) -> None:
    """Of the library's defaults, only `tower_of_hanoi` has few."""
    suite = load_suite(name)
    trained = trained_questions(suite)
    assert {task: len(marks) for task, marks in trained.items()} == Counter(
        recipe.task for recipe, _, _ in suite.items()
    )
    assert all(trained["tower_of_hanoi"])
    assert not any(trained["gcd"])
    expected = {
        "medium": {"syllogism"},
        "full": {"syllogism"},
        "paper-hard": {"syllogism", "sentence_reordering"},
    }
    marked = {task for task, marks in trained.items() if any(marks)}
    assert marked == {"tower_of_hanoi"} | expected.get(name, set())


def test_a_task_that_pays_any_answer_does_not_count() -> None:
    pays = {"game_of_life_halting": [1] * 40}
    one = standing("one", gcd=[0] * 20, **pays)
    other = standing("other", gcd=[1] * 10 + [0] * 10, **pays)
    common, too_few = common_items([one, other])
    assert (list(common), too_few) == (["gcd"], {})
    table = leaderboard_table([one, other], CATEGORIES, {"gcd": 0.0})
    assert "| 2 | one | 0.0% |" in table
    assert "| 1 | other | 50.0% |" in table


def test_where_no_task_of_a_suite_has_twenty_items_all_have_a_weight() -> None:
    """A category has a column from twenty items on."""
    tasks = {f"t{number}": [1] * 4 + [0] for number in range(4)}
    table = leaderboard_table(
        [standing("one", **tasks, gcd=[0] * 5)], CATEGORIES, {"gcd": 0.0}
    )
    head, _, row, _, said = table.splitlines()
    assert (
        head
        == "| rank | model | solved (25) | 95 % | above chance | tokens | other (20) |"
    )
    assert row.startswith("| 1 | one | 64.0% | ")
    assert row.endswith(" |  |  | 80.0% |")
    assert said == "In brackets: items, the same for all models. 5 tasks weigh alike."
    with pytest.raises(
        FixableError, match="no task has 20 items that all evaluations have scored"
    ):
        common_items([standing("one", gcd=[1] * 20), standing("none", gcd=[None] * 20)])


def many(share: float, items: int, attempts: int, random: Random) -> list[StoredGroup]:
    """Items of gcd that are solved with a probability."""
    return [
        item(*(float(random.random() < share) for _ in range(attempts)), key=str(n))
        for n in range(items)
    ]


def test_no_change_is_told_only_where_the_interval_has_none() -> None:
    random = Random(1)
    for items, verdict in ((10, "can't tell"), (400, "within noise")):
        compared = compare(many(0.5, items, 2, random), many(0.5, items, 2, random))
        assert compared.tasks["gcd"].verdict == verdict
        assert f"\n{verdict}\n" in comparison_table(compared)
        assert compared.to_json()["tasks"]["gcd"]["verdict"] == verdict


def test_the_advised_number_of_items_shows_the_change_four_times_of_five() -> None:
    random = Random(2)
    power = compare(many(0.5, 200, 4, random), many(0.65, 200, 4, random)).power
    assert power.by_questions < 0.02
    need = power.questions_for(0.15, 4)
    assert need == pytest.approx(42, abs=4)
    assert power.questions_for(0.15, 1) == pytest.approx(4 * need, rel=0.2)
    assert f"takes about {need} questions of it with 4 attempts each." in power.advice
    found = 0
    for _ in range(200):
        before, after = many(0.5, need, 4, random), many(0.65, need, 4, random)
        found += bool(compare(before, after).tasks["gcd"].beyond_noise)
    assert found / 200 == pytest.approx(0.8, abs=0.09)  # 3 standard errors


def test_one_attempt_tells_how_many_items_it_takes_but_not_what_others_do() -> None:
    random = Random(3)
    power = compare(many(0.5, 100, 1, random), many(0.5, 100, 1, random)).power
    assert power.by_attempts is None
    need = power.questions_for(0.15, 1)
    assert power.advice == (
        "To see 15 points on one task with a probability of 80% takes about "
        f"{need} questions of it with 1 attempt each; more attempts take fewer."
    )
    assert compare([item(1.0, key="a")], [item(0.0, key="a")]).power is None
