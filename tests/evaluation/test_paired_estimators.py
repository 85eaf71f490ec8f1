"""Paired differences: against formulas and brute force, and against simulated policies."""

import itertools
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.evaluation.estimators import (
    discoveries,
    mean_difference,
    sign_flip_p,
)

quarters = st.integers(-4, 4).map(lambda n: n / 4)
RUNS = 400


@given(st.lists(quarters, min_size=2, max_size=20))
def test_the_paired_error_is_that_of_the_differences(differences: list[float]) -> None:
    expected = statistics.stdev(differences) / math.sqrt(len(differences))
    estimate = mean_difference(differences)
    assert estimate.value == pytest.approx(statistics.mean(differences))
    assert estimate.standard_error == pytest.approx(expected, abs=1e-9)


def test_items_that_all_agree_are_no_certainty() -> None:
    estimate = mean_difference([0.0] * 5)
    assert (estimate.low, estimate.high) == pytest.approx((-0.5553, 0.5553), abs=1e-4)


def test_one_item_says_nothing_about_the_others() -> None:
    assert mean_difference([0.5]) == (0.5, None, -1.0, 1.0)


def test_a_task_of_one_item_varies_like_an_item_of_the_others() -> None:
    """Where no task has two items, they are one sample."""
    many = [[0.0, 0.1] * 10] * 20
    variance = statistics.variance(many[0])
    estimate = mean_difference(*many, [0.5])
    assert estimate.standard_error == pytest.approx(
        math.sqrt(21 - 1 + 20) / 21 * (variance / 20) ** 0.5
    )
    assert mean_difference([0.5], [-0.5]).standard_error == pytest.approx(0.5)


def test_by_tasks_the_errors_of_the_tasks_add_up() -> None:
    tasks = [[0.0, 1.0, 0.0], [0.0, 0.0, -1.0, 0.0, 0.0]]
    errors = [statistics.stdev(task) / math.sqrt(len(task)) for task in tasks]
    estimate = mean_difference(*tasks)
    assert estimate.value == pytest.approx((1 / 3 - 1 / 5) / 2)
    assert estimate.standard_error == pytest.approx(math.hypot(*errors) / 2)


@given(st.lists(quarters, min_size=1, max_size=9))
def test_the_randomization_test_counts_all_signs(differences: list[float]) -> None:
    sums = [
        abs(sum(sign * d for sign, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((-1, 1), repeat=len(differences))
    ]
    expected = sum(s >= abs(sum(differences)) for s in sums) / len(sums)
    assert sign_flip_p(differences) == pytest.approx(expected)


def test_many_items_are_tested_by_the_normal_distribution() -> None:
    """60 gains against 41 losses; close to the binomial distribution's exact value."""
    exact = 2 * sum(math.comb(101, k) for k in range(60, 102)) / 2**101
    assert sign_flip_p([1.0] * 60 + [-1.0] * 41) == pytest.approx(exact, abs=0.02)


@given(st.dictionaries(st.text(max_size=3), st.floats(0.0, 1.0), min_size=1))
def test_discoveries_are_the_most_that_the_rate_allows(
    p_values: dict[str, float],
) -> None:
    found = discoveries(p_values)
    ranked = sorted(p_values.values())
    allowed = [
        n for n in range(1, len(ranked) + 1) if ranked[n - 1] <= 0.05 * n / len(ranked)
    ]
    assert len(found) == max(allowed, default=0)
    rest = [p for name, p in p_values.items() if name not in found]
    assert all(p_values[name] <= p for name in found for p in rest)


def evaluations(
    rng: random.Random, items: int, attempts: int, gain: float
) -> tuple[list[float], float]:
    """Differences of two simulated policies on the same items, and the true mean difference.

    On an item of skill s, the better policy turns the share `gain` of its failures into successes;
    skills are uniform, so the true difference is gain / 2.
    """

    def solved(skill: float) -> float:
        return sum(rng.random() < skill for _ in range(attempts)) / attempts

    skills = [rng.random() for _ in range(items)]
    return [solved(s + (1 - s) * gain) - solved(s) for s in skills], gain / 2


@pytest.mark.parametrize(
    ("items", "attempts", "gain"),
    [(5, 4, 0.4), (20, 1, 0.2), (20, 8, 0.0), (100, 4, 0.1)],
)
def test_intervals_cover_the_true_difference_at_the_promised_rate(
    items: int, attempts: int, gain: float
) -> None:
    """95 %, give or take 4 standard errors of 400 comparisons."""
    rng, covered = random.Random(f"{items} {attempts}"), 0
    for _ in range(RUNS):
        differences, truth = evaluations(rng, items, attempts, gain)
        estimate = mean_difference(differences)
        covered += estimate.low <= truth <= estimate.high
    slack = 4 * math.sqrt(0.95 * 0.05 / RUNS)
    assert covered / RUNS >= 0.95 - slack
    # With fewer, the smallest error that is taken makes intervals wider.
    if items >= 20:
        assert covered / RUNS <= 0.95 + slack


@pytest.mark.parametrize(
    ("items", "changed"), [(30, 0.03), (10, 0.05), (5, 0.1), (30, 0.1)]
)
def test_equal_attempts_do_not_make_intervals_too_narrow(
    items: int, changed: float
) -> None:
    """A policy that answers alike each time solves the share `changed` of items that it didn't."""
    rng, covered, tasks_covered = random.Random(f"{items} {changed}"), 0, 0
    for _ in range(RUNS):
        tasks = [
            [float(rng.random() < changed) for _ in range(items)] for _ in range(2)
        ]
        alone, both = mean_difference(tasks[0]), mean_difference(*tasks)
        covered += alone.low <= changed <= alone.high
        tasks_covered += both.low <= changed <= both.high
    assert min(covered, tasks_covered) / RUNS >= 0.95 - 4 * math.sqrt(
        0.95 * 0.05 / RUNS
    )


def test_equal_policies_are_rarely_told_apart() -> None:
    """In at most 5 % of comparisons of 20 tasks is any discovered, give or take 4 errors."""
    rng, wrong = random.Random(5), 0
    for _ in range(100):
        p_values = {
            str(n): sign_flip_p(evaluations(rng, 10, 2, 0.0)[0]) for n in range(20)
        }
        wrong += bool(discoveries(p_values))
    assert wrong / 100 <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 100)


def test_policies_that_differ_much_are_told_apart() -> None:
    rng = random.Random(6)
    p_values = {str(n): sign_flip_p(evaluations(rng, 20, 4, 0.0)[0]) for n in range(10)}
    p_values["better"] = sign_flip_p(evaluations(rng, 20, 4, 0.8)[0])
    assert discoveries(p_values) == {"better"}
