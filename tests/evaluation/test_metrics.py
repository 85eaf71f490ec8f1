"""Metrics by task, category, difficulty and overall; unscored attempts never count as 0."""

import dataclasses
import math

import pytest
from evaluation_values import item, outcome, sample, sampled
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from reasoning_gym_environment.evaluation.estimators import pass_at_k, share
from reasoning_gym_environment.evaluation.metrics import (
    Baselines,
    EvaluationReport,
    evaluation_report,
)
from reasoning_gym_environment.evaluation.tables import evaluation_table, headline
from reasoning_gym_environment.records import Recipe, Status
from reasoning_gym_environment.storage.rows import StoredGroup, StoredRollout
from reasoning_gym_environment.tasks.facts import (
    Floor,
    all_level_floors,
    stored_snapshot,
)

CATEGORIES = {"gcd": "arithmetic", "lcm": "arithmetic", "sudoku": "games"}


def floor(solved: float, low: float, high: float) -> Floor:
    return Floor(label="a", items=100, solved=solved, low=low, high=high)


FLOORS = {"gcd": floor(0.4, 0.3, 0.5), "sudoku": floor(0.0, 0.0, 0.04)}

items = st.builds(
    lambda scores, task: item(*scores, task=task),
    st.lists(st.sampled_from([None, 0.0, 0.2, 1.0]), min_size=3, max_size=3),
    st.sampled_from(sorted(CATEGORIES)),
)


def measured(*items: StoredGroup, attempts: int = 2) -> EvaluationReport:
    baselines = Baselines(
        categories=CATEGORIES, chance_floors=FLOORS, attempts=attempts
    )
    return evaluation_report(items, baselines)


def report(*items: StoredGroup, attempts: int = 2) -> dict[str, float]:
    return measured(*items, attempts=attempts).numbers()


def test_shares_are_given_overall_by_category_and_by_task() -> None:
    metrics = report(
        item(1.0), item(0.0), item(1.0, task="lcm"), item(0.2, task="sudoku")
    )
    assert metrics["eval/percent_correct"] == metrics["eval/solved"] == 0.5
    assert metrics["eval/score"] == pytest.approx(0.55)
    assert metrics["eval/category/arithmetic/solved"] == pytest.approx(2 / 3)
    assert metrics["eval/category/games/solved"] == 0.0
    assert metrics["eval/task/gcd/solved"] == 0.5
    assert metrics["eval/task/sudoku/score"] == pytest.approx(0.2)
    assert metrics["eval/status/wrong"] == 0.5
    assert metrics["eval/items"] == 4


@pytest.mark.parametrize("temperature", [0.0, 0.1, 0.4])
def test_pass_at_k_of_attempts_at_a_low_temperature_is_marked(
    temperature: float,
) -> None:
    low = dataclasses.replace(measured(item(1.0, 0.0)), temperature=temperature)
    *rows, legend = evaluation_table(low).splitlines()
    assert all("100.0%~" in row for row in rows if "gcd" in row or "mean over" in row)
    assert f"pass@2: ~: attempts at temperature {temperature:g} " in legend
    assert "--env.eval_temperature" in legend
    single = dataclasses.replace(
        measured(item(1.0), attempts=1), temperature=temperature
    )
    warm = dataclasses.replace(low, temperature=0.6)
    unknown = dataclasses.replace(low, temperature=None)
    for report in (single, warm, unknown):
        assert "~" not in evaluation_table(report)


def test_replies_with_a_box_and_no_tags_are_told_where_tags_count() -> None:
    texts = [r"\boxed{4}", r"It is $\boxed{4}$.", "four", r"<think>\boxed{4}</think>"]
    replies = [sample(unanswered(text)) for text in texts] + [item(1.0)]
    assert measured(*replies).boxed_share == 0.4
    shown = evaluation_table(measured(*replies))
    assert r"40% of the replies have \boxed{} and no tags: --env.answer_format" in shown
    for quiet in (
        [replace(each, scoring={"answer_format": "boxed"}) for each in replies],
        [*replies[:1], *(item(1.0) for _ in range(150))],
    ):
        assert "boxed" not in evaluation_table(measured(*quiet))


def unanswered(text: str) -> StoredRollout:
    """A reply without an answer in tags."""
    reply = {"role": "assistant", "content": text}
    asked = {"role": "user", "content": f"What led to {text!r}?"}
    return replace(outcome(0.0), status=Status.NO_ANSWER, conversation=[asked, reply])


def test_items_and_tasks_weigh_differently() -> None:
    metrics = report(*(item(1.0) for _ in range(3)), item(0.0, task="sudoku"))
    assert metrics["eval/solved"] == 0.75
    assert metrics["eval/macro/solved"] == 0.5
    assert metrics["eval/macro/tasks"] == 2


def test_shares_of_attempts_are_averaged_over_tasks_too() -> None:
    cut = sample(outcome(0.0, tokens=30, truncated=True), task="lcm")
    metrics = report(*(item(1.0) for _ in range(3)), cut, item(None, task="sudoku"))
    assert metrics["eval/macro/truncated"] == pytest.approx(1 / 3)
    assert metrics["eval/macro/unscored"] == pytest.approx(1 / 3)
    assert metrics["eval/macro/completion_tokens"] == pytest.approx((10 + 30 + 10) / 3)
    assert metrics["eval/macro/format_failures"] == 0.0
    assert metrics["eval/macro/reward"] == 0.5


def test_every_estimate_comes_with_its_error_and_interval() -> None:
    metrics = report(item(1.0, 0.0), item(1.0, 1.0), item(0.0, 0.0))
    expected = share([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    assert metrics["eval/task/gcd/solved_stderr"] == expected.standard_error
    assert metrics["eval/task/gcd/solved_low"] == expected.low
    assert metrics["eval/task/gcd/solved_high"] == expected.high


@given(st.lists(items, min_size=1, max_size=5))
def test_pass_at_k_is_the_mean_over_items_with_enough_attempts(
    several: list[StoredGroup],
) -> None:
    metrics = report(*several, attempts=3)
    counts = [(len(i.scored), sum(o.solved for o in i.scored)) for i in several]
    for k in (1, 2, 3):
        known = [pass_at_k(made, right, k) for made, right in counts if made >= k]
        expected = sum(known) / len(known) if known else math.nan
        got = metrics.get(f"eval/pass@{k}", math.nan)
        assert got == pytest.approx(expected, nan_ok=True)
    first = metrics.get("eval/pass@1", math.nan)
    assert metrics.get("eval/avg@3", math.nan) == pytest.approx(first, nan_ok=True)


@given(st.lists(items, min_size=1, max_size=5))
def test_unscored_attempts_count_in_their_own_share_alone(
    several: list[StoredGroup],
) -> None:
    lost = item(None, None, task=several[0].task)
    alone, beside = report(*several), report(*several, lost)
    for name, value in alone.items():
        kind = name.rpartition("/")[2]
        if kind not in (
            "unscored",
            "items",
            "truncated",
            "completion_tokens",
            "format_failures",
        ):
            assert "/status/" in name or beside[name] == pytest.approx(value), name
    assert (
        beside["eval/unscored"] > alone["eval/unscored"]
        or alone["eval/unscored"] == 1.0
    )


def test_lengths_are_those_of_existing_completions() -> None:
    lost = sample(outcome(None, tokens=None), outcome(None, tokens=None))
    cut = sample(outcome(0.0, tokens=30, truncated=True))
    metrics = report(lost, cut, item(1.0))
    assert metrics["eval/completion_tokens"] == 20
    assert metrics["eval/truncated"] == 0.5
    assert metrics["eval/unscored"] == 0.5


def test_an_evaluation_without_any_score_has_no_share_of_correct_answers() -> None:
    metrics = report(item(None, None))
    assert "eval/percent_correct" not in metrics
    assert metrics["eval/unscored"] == metrics["eval/status/unscored"] == 1.0


def test_what_is_solved_is_set_against_the_best_constant_answer() -> None:
    metrics = report(
        item(1.0), item(0.0), item(1.0, task="lcm"), item(1.0, task="sudoku")
    )
    assert metrics["eval/task/gcd/chance"] == 0.4
    assert metrics["eval/task/gcd/above_chance"] == pytest.approx(0.1)
    assert "eval/task/lcm/chance" not in metrics  # nothing is known of it
    assert metrics["eval/chance"] == pytest.approx(0.8 / 3)
    assert metrics["eval/macro/above_chance"] == pytest.approx((0.1 + 1.0) / 2)


def against(*items: StoredGroup) -> EvaluationReport:
    baselines = Baselines(
        categories=CATEGORIES,
        chance_floors=FLOORS,
        no_reasoning_floors={
            "gcd": floor(0.1, 0.05, 0.2),
            "sudoku": floor(0.3, 0.2, 0.4),
            "lcm": floor(0.2, 0.1, 0.3),
        },
        attempts=2,
    )
    return evaluation_report(items, baselines)


def test_what_is_solved_is_set_against_the_higher_floor() -> None:
    numbers = against(
        item(1.0), item(0.0), item(1.0, task="lcm"), item(1.0, task="sudoku")
    ).numbers()
    assert numbers["eval/task/gcd/no_reasoning_floor"] == 0.1
    assert numbers["eval/task/gcd/above_chance"] == pytest.approx(0.5 - 0.4)
    assert numbers["eval/task/sudoku/above_chance"] == pytest.approx(1.0 - 0.3)
    assert numbers["eval/task/lcm/above_chance"] == pytest.approx(1.0 - 0.2)
    assert numbers["eval/no_reasoning_floor"] == pytest.approx(
        (0.1 + 0.1 + 0.2 + 0.3) / 4
    )
    assert numbers["eval/above_chance"] == pytest.approx(
        0.75 - (0.4 + 0.4 + 0.2 + 0.3) / 4
    )
    assert "eval/task/gcd/no_reasoning_floor" not in report(item(1.0))


def test_the_table_shows_both_floors_and_marks_what_is_not_above_them() -> None:
    lines = evaluation_table(
        against(*(item(0.0, task="sudoku") for _ in range(2)), item(1.0))
    ).splitlines()
    [gcd, sudoku] = (
        next(li for li in lines if task in li) for task in ("  gcd", "  sudoku")
    )
    assert "  40.0% (30.0 to 50.0)!   10.0% (5.0 to 20.0) " in gcd
    assert "  0.0% (0.0 to 4.0)!  30.0% (20.0 to 40.0)!" in sudoku
    [all_solved] = [
        line
        for line in evaluation_table(
            against(*(item(1.0, task="sudoku") for _ in range(40)))
        ).splitlines()
        if "  sudoku" in line
    ]
    assert "  0.0% (0.0 to 4.0)   30.0% (20.0 to 40.0) " in all_solved


def test_the_error_of_a_floor_is_shared_by_the_rollouts_of_its_task_alone() -> None:
    one_task = against(*(item(1.0) for _ in range(9))).numbers()
    assert (one_task["eval/chance_low"], one_task["eval/chance_high"]) == (0.3, 0.5)
    two = against(item(1.0), item(1.0, 0.0), item(1.0, task="sudoku")).numbers()
    # Of four rollouts, gcd's three and sudoku's one, each with a distance of 0.1.
    assert two["eval/no_reasoning_floor_low"] == pytest.approx(
        0.15 - math.hypot(0.75 * 0.05, 0.25 * 0.1)
    )
    assert two["eval/no_reasoning_floor_high"] == pytest.approx(
        0.15 + math.hypot(0.75 * 0.1, 0.25 * 0.1)
    )
    assert two["eval/macro/no_reasoning_floor_high"] == pytest.approx(
        0.2 + math.hypot(0.5 * 0.1, 0.5 * 0.1)
    )


def test_other_difficulties_leave_the_plain_numbers_as_they_are() -> None:
    plain = [item(1.0), item(0.0, task="sudoku")]
    hard = [item(0.0, difficulty=0.75), item(0.5, difficulty=1.0, task="lcm")]
    alone, beside = report(*plain), report(*plain, *hard)
    assert alone.items() <= beside.items()
    assert beside["eval/difficulty/0.75/solved"] == 0.0
    assert beside["eval/difficulty/0.75/task/gcd/solved"] == 0.0
    assert beside["eval/difficulty/1/macro/solved"] == 1.0
    # The floors are of default items.
    assert "eval/difficulty/0.75/chance" not in beside


def test_items_with_parameters_of_their_own_have_no_floor() -> None:
    harder = replace(
        item(1.0), recipe=Recipe(task="gcd", seed=0, parameters={"min_numbers": 3})
    )
    assert "eval/chance" not in report(harder)
    assert "eval/chance" in report(harder, item(1.0))


def test_at_a_difficulty_the_floors_are_those_of_the_levels() -> None:
    levels = stored_snapshot()["ladders"]["gcd"]["levels"]
    recipes = [
        Recipe(task="gcd", seed=0, level=n, parameters=p) for n, p in enumerate(levels)
    ]
    drawn = [
        replace(item(1.0, difficulty=0.5), recipe=recipe) for recipe in recipes[:2]
    ]
    known = all_level_floors()["gcd"][:2]
    numbers = report(*drawn, item(0.0, difficulty=0.5))
    at = "eval/difficulty/0.5"
    chances = [floors.chance.solved for floors in known]
    copies = [floors.no_reasoning.solved for floors in known]
    assert 0 < numbers[f"{at}/chance"] == pytest.approx(sum(chances) / 2)
    assert 0 < numbers[f"{at}/no_reasoning_floor"] == pytest.approx(sum(copies) / 2)
    highest = sum(map(max, zip(chances, copies, strict=True))) / 2
    assert numbers[f"{at}/above_chance"] == pytest.approx(1 - highest)
    lenient = [replace(one, scoring={"solved_threshold": 0.5}) for one in drawn]
    assert "eval/difficulty/0.5/chance" not in report(*lenient)


@given(st.lists(items, max_size=6))
def test_all_numbers_are_finite(several: list[StoredGroup]) -> None:
    assert all(math.isfinite(value) for value in report(*several).values())


def test_curves_are_kept_of_what_single_tasks_solve_and_score() -> None:
    kept = measured(item(1.0), item(0.5)).curves()
    for of in ("task/gcd", "category/arithmetic"):
        assert {name for name in kept if of in name} == {
            f"eval/{of}/solved",
            f"eval/{of}/score",
        }
    assert {"eval/solved_low", "eval/macro/solved"} <= kept.keys()
    assert "eval/macro/score_high" not in kept


def test_the_headline_says_what_is_known() -> None:
    expected = "solved 50.0%, score 0.500, truncated 0.0%, of 2 items"
    assert headline(measured(item(1.0), item(0.0))) == expected
    assert headline(measured()) == ""
    expected = "truncated 0.0%, of 0 scored items; 1 of 1 not scored"
    assert headline(measured(item(None))) == expected


def test_every_headline_says_how_many_items_it_stands_on() -> None:
    some = measured(
        item(1.0), item(0.0), item(None), item(None, 1.0), item(None, task="lcm")
    )
    stands_on = "3 scored items; 2 of 5 not scored"
    assert headline(some).endswith(f", of {stands_on}")
    lines = evaluation_table(some).splitlines()
    assert lines[0] == f"INCOMPLETE: the shares stand on {stands_on}"
    [overall] = [line for line in lines if line.startswith("mean over items")]
    assert overall.split()[3:5] == ["3/5", "66.7%"]
    for numbers in (some.numbers(), some.curves()):
        assert (numbers["eval/scored_items"], numbers["eval/items"]) == (3, 5)
    assert some.numbers()["eval/macro/scored_tasks"] == 1
    assert some.numbers()["eval/macro/tasks"] == 2
    assert "INCOMPLETE" not in evaluation_table(measured(item(1.0)))


def table(*items: StoredGroup, **categories: str) -> list[str]:
    floors = dict.fromkeys(categories, floor(0.25, 0.2, 0.3))
    baselines = Baselines(categories=categories, chance_floors=floors, attempts=1)
    return evaluation_table(evaluation_report(items, baselines)).splitlines()


def test_own_tasks_have_figures_by_source_and_chance_from_their_proof() -> None:
    own = replace(item(1.0, 0.0, task="mine"), source="my_tasks", chance=0.125)
    metrics = report(own, item(1.0))
    assert metrics["eval/source/my_tasks/solved"] == 0.5
    assert metrics["eval/source/reasoning-gym/solved"] == 1.0
    assert metrics["eval/task/mine/chance"] == 0.125
    assert "eval/task/mine/chance_low" not in metrics  # the row doesn't say it
    assert "eval/chance_low" not in metrics
    assert metrics["eval/task/gcd/chance_low"] == 0.3
    assert metrics["eval/task/mine/above_chance"] == 0.375
    assert not any("source" in name for name in report(item(1.0)))
    lines = evaluation_table(measured(own, item(1.0))).splitlines()
    assert [line.split()[0] for line in lines[lines.index("by source") + 1 :][:2]] == [
        "my_tasks",
        "reasoning-gym",
    ]


def test_the_table_begins_with_the_worst_tasks_and_ends_with_the_best() -> None:
    lines = table(item(1.0, task="b"), item(0.0, task="a"), a="x", b="y")
    start = lines.index("tasks, worst first")
    assert [line.split()[0] for line in lines[start + 1 : start + 3]] == ["a", "b"]
    columns = ["items", "solved", "95", "%", "chance", "no", "reasoning"]
    assert lines[0].split() == [
        *columns,
        *["score", "pass@1", "unscored", "format", "cut", "tokens"],
    ]
    assert lines[1].split()[3:5] == ["2", "50.0%"]


def test_of_many_tasks_the_table_shows_the_ends() -> None:
    several = [item(n / 30, task=f"t{n:02}") for n in range(30)]
    lines = table(*several, **{f"t{n:02}": "x" for n in range(30)})
    names = [line.split()[0] for line in lines if line.startswith("  t")]
    assert names == [f"t{n:02}" for n in [*range(10), *range(29, 19, -1)]]


@pytest.mark.parametrize(
    ("solved", "unscored", "headings"),
    [
        (0, 0, ["worst 10 of 30 tasks"]),
        (0, 5, ["worst 10 of 30 tasks"]),
        (3, 0, ["worst 10 of 30 tasks", "best 3"]),
        (28, 0, ["worst 2 of 30 tasks", "best 10"]),
        (30, 0, ["best 10"]),
    ],
)
def test_the_best_have_no_unsolved_task(
    solved: int, unscored: int, headings: list[str]
) -> None:
    scores = [1.0] * solved + [0.0] * (30 - solved - unscored) + [None] * unscored
    lines = table(
        *(item(score, task=f"t{n:02}") for n, score in enumerate(scores)), t00="x"
    )
    assert [line for line in lines if line.startswith(("worst", "best"))] == headings


def test_the_table_marks_what_a_constant_answer_may_have_earned() -> None:
    lines = table(
        *(item(1.0, task="a") for _ in range(20)), item(0.0, task="b"), a="x", b="x"
    )
    rows = {line.split()[0]: line for line in lines if line.startswith("  ")}
    assert "25.0% (20.0 to 30.0)!" in rows["b"]
    assert "25.0% (20.0 to 30.0) " in rows["a"]


def test_the_table_has_rows_for_other_difficulties_and_for_what_is_unknown() -> None:
    lines = table(item(None, task="a"), item(1.0, task="a", difficulty=0.5), a="x")
    [at_half] = [line for line in lines if line.startswith("  0.5 ")]
    assert "100.0%" in at_half
    [overall] = [line for line in lines if line.startswith("mean over items")]
    assert overall.split()[3:6] == ["0/1", "-", "-"]


def test_items_that_ask_the_same_question_are_one_cluster() -> None:
    repeated = [item(score, key=key) for key in "abc" for score in (1.0, 0.0)]
    alone = [item(1.0, key="d"), item(0.0, key="e")]
    numbers = report(*repeated, *alone)
    assert (numbers["eval/items"], numbers["eval/solved"]) == (8, 0.5)
    # Of five questions: 1/8 * sqrt(5/4 * (1/4 + 1/4)); of eight items it would be 0.189.
    assert numbers["eval/solved_stderr"] == pytest.approx(0.0988, abs=1e-4)


def test_items_that_training_asks_too_are_named_and_left_out_of_a_second_mean() -> None:
    trained = replace(sampled("tower_of_hanoi", 0, 1.0), also_trained_on=True)
    others = [sampled("gcd", 0, 0.0), sampled("gcd", 0, 1.0, seed=5)]
    mixed = measured(trained, *others, attempts=1)
    assert mixed.also_trained_on == {"tower_of_hanoi 0": 1}
    numbers = mixed.numbers()
    assert numbers["eval/with_trained/solved"] == pytest.approx(2 / 3)
    assert numbers["eval/without_trained/solved"] == 0.5
    assert "also trained on: tower_of_hanoi 0 (1)" in evaluation_table(mixed)
    assert measured(*others, attempts=1).without_trained is None
