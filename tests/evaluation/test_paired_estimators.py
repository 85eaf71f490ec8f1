"""Paired differences: against formulas and brute force, and against simulated policies."""

import itertools
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.evaluation.estimators import (
    SIGNIFICANCE,
    difference_p,
    mean_difference,
    paired_difference,
    sign_flip_p,
    significance_among,
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
    """43.4 % is the upper end of Wilson's interval for none of 5."""
    estimate = mean_difference([0.0] * 5)
    assert (estimate.low, estimate.high) == pytest.approx((-0.4345, 0.4345), abs=1e-4)


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


@given(st.lists(st.floats(0.0, 1.0), min_size=1))
def test_discoveries_are_the_most_that_the_rate_allows(p_values: list[float]) -> None:
    significance = significance_among(p_values)
    ranked = sorted(p_values)
    allowed = [
        n for n in range(1, len(ranked) + 1) if ranked[n - 1] <= 0.05 * n / len(ranked)
    ]
    assert sum(p <= significance for p in p_values) == max(allowed, default=0)
    assert 0.05 / len(p_values) <= significance <= 0.05 + 1e-12


@given(
    st.lists(quarters, min_size=1, max_size=30),
    st.sampled_from([0.05, 0.05 / 3, 0.05 / 18, 0.05 / 100]),
)
def test_an_interval_excludes_zero_exactly_if_both_its_tests_do(
    differences: list[float], significance: float
) -> None:
    estimate = paired_difference(differences, significance)
    plain = mean_difference(differences, significance=significance)
    excludes = not estimate.low <= 0 <= estimate.high
    assert excludes == (
        sign_flip_p(differences) <= significance and not plain.low <= 0 <= plain.high
    )
    assert estimate.low <= plain.low <= estimate.value <= plain.high <= estimate.high
    # Rounding may decide where the interval ends at 0.
    distance = min(abs(plain.low), abs(plain.high))
    if distance > 1e-6:
        assert excludes == (difference_p(differences) <= significance)


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


def found(tasks: list[list[float]]) -> list[int]:
    """Places of the tasks whose interval excludes 0, corrected for their number."""
    significance = significance_among([difference_p(task) for task in tasks])
    estimates = [paired_difference(task, significance) for task in tasks]
    return [n for n, e in enumerate(estimates) if not e.low <= 0 <= e.high]


@pytest.mark.parametrize(
    ("items", "gain", "significance"),
    [
        (10, 0.15, SIGNIFICANCE),
        (30, 0.05, SIGNIFICANCE),
        (30, 0.15, SIGNIFICANCE / 18),
    ],
)
def test_intervals_of_rare_gains_without_a_loss_cover_the_true_difference(
    items: int, gain: float, significance: float
) -> None:
    """The t-interval alone misses 21, 21 and 5 %; give or take 4 standard errors."""
    rng, missed = random.Random(f"{items} {gain}"), 0
    runs = 3 * RUNS
    for _ in range(runs):
        differences = [float(rng.random() < gain) for _ in range(items)]
        estimate = mean_difference(differences, significance=significance)
        missed += not estimate.low <= gain <= estimate.high
    assert missed / runs <= significance + 4 * math.sqrt(significance / runs)


@pytest.mark.parametrize("significance", [SIGNIFICANCE, SIGNIFICANCE / 18])
@pytest.mark.parametrize(("items", "share"), [(6, 0.5), (12, 0.02), (12, 1.0)])
def test_equal_policies_have_an_interval_with_zero_at_the_promised_rate(
    items: int, share: float, significance: float
) -> None:
    """With few items, and where nearly none or all are solved; give or take 4 errors."""
    rng, alarms = random.Random(f"{items} {share}"), 0
    for _ in range(RUNS):
        solved = [[float(rng.random() < share) for _ in range(items)] for _ in "ab"]
        differences = [b - a for a, b in zip(*solved, strict=True)]
        estimate = paired_difference(differences, significance)
        alarms += not estimate.low <= 0 <= estimate.high
    assert alarms / RUNS <= significance + 4 * math.sqrt(significance / RUNS)


def test_equal_policies_are_rarely_told_apart() -> None:
    """In at most 5 % of comparisons of 20 tasks is any discovered, give or take 4 errors."""
    rng, wrong = random.Random(5), 0
    for _ in range(100):
        tasks = [evaluations(rng, 10, 2, 0.0)[0] for _ in range(20)]
        wrong += bool(found(tasks))
    assert wrong / 100 <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 100)


def test_policies_that_differ_much_are_told_apart() -> None:
    rng = random.Random(6)
    tasks = [evaluations(rng, 20, 4, 0.0)[0] for _ in range(10)]
    tasks.append(evaluations(rng, 20, 4, 0.8)[0])
    assert found(tasks) == [10]
