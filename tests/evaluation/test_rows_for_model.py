"""Which levels of an evaluation count, and how problems are shared out among tasks."""

from dataclasses import replace

from evaluation_values import sampled
from msgspec.structs import replace as with_fields

from reasoning_gym_environment.evaluation.rows_for_model import (
    groups_by_level,
    recipe_at,
    rows_for_model,
    shared_out,
)
from reasoning_gym_environment.problems.expected_signal import Counts

LADDER = tuple(sampled("gcd", level, 1.0).recipe.parameters for level in range(4))


def test_groups_are_those_of_todays_levels() -> None:
    samples = [
        sampled("gcd", None, 1.0, 0.0),
        sampled("gcd", 0, 1.0, 1.0),
        sampled("gcd", 3, 0.0, 1.0, None),
        sampled("gcd", 5, 1.0),  # beyond this version's ladder
    ]
    changed = replace(samples[1].recipe, parameters={"min_value": 5})
    samples.append(with_fields(samples[1], recipe=changed))
    assert groups_by_level(samples, LADDER) == {
        None: [Counts(1, 2)],
        0: [Counts(2, 2)],
        3: [Counts(1, 2)],
    }


def test_a_suites_parameters_stay_where_it_has_no_levels() -> None:
    sample = sampled("gcd", None, 1.0, 0.0)
    hard = replace(sample.recipe, parameters={"max_value": 10**6})
    samples = [with_fields(sample, recipe=hard)]
    assert groups_by_level(samples, LADDER) == {None: [Counts(1, 2)]}
    assert recipe_at(None, samples, LADDER) == replace(hard, seed=0)


def test_a_category_keeps_its_problems_if_tasks_are_left_out() -> None:
    categories = {"a": "one", "b": "one", "c": "one", "d": "two"}
    sizes = shared_out([*categories], categories, kept={"a", "b"}, count=5)
    assert sizes == {"a": 7, "b": 8}


def test_the_table_has_what_to_expect_before_and_after() -> None:
    flat = [(1.0,) * 8, (0.0,) * 8]
    samples = [
        *(sampled("gcd", None, *scores) for scores in 50 * flat),
        *(sampled("gcd", 1, *(1.0, 0.0) * 4) for _ in range(100)),
    ]
    rows = rows_for_model(
        samples,
        {"gcd": LADDER},
        {"gcd": "arithmetic"},
        target=0.5,
        count=4,
        group_size=8,
    )
    [table] = rows.lines(8)
    assert table.splitlines() == [
        "task  default: solved  signal  level  rows: solved  signal",
        "gcd               50%      5%   1.00           50%     99%",
        "of all rows the evaluated model solves 50%; 99% of groups of 8 have signal",
    ]
