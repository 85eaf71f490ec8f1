"""Estimators against brute force, and intervals against simulated truth."""

import itertools
import math
import random
import statistics

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reasoning_gym_environment.evaluation.estimators import (
    macro_share,
    pass_at_k,
    share,
    student_quantile,
    wilson,
)

values = st.floats(0.0, 1.0)
clusters = st.lists(st.lists(values, min_size=1, max_size=6), min_size=2, max_size=8)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_is_the_share_of_all_draws_that_hold_a_solved_attempt(
    solved: list[bool], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(solved)))
    draws = list(itertools.combinations(solved, k))
    expected = sum(any(draw) for draw in draws) / len(draws)
    assert pass_at_k(len(solved), sum(solved), k) == pytest.approx(expected)


@given(clusters)
def test_the_clustered_error_sums_over_all_pairs_of_one_item(
    groups: list[list[float]],
) -> None:
    count = sum(map(len, groups))
    mean = sum(map(sum, groups)) / count
    pairs = sum(
        (one - mean) * (other - mean) for g in groups for one in g for other in g
    )
    expected = math.sqrt(max(0.0, pairs) * len(groups) / (len(groups) - 1)) / count
    estimate = share(groups)
    assert estimate.value == pytest.approx(mean)
    assert estimate.standard_error == pytest.approx(expected, abs=1e-7)


@given(st.lists(values, min_size=2, max_size=20))
def test_with_one_attempt_an_item_the_error_is_the_usual_one(
    scores: list[float],
) -> None:
    expected = statistics.stdev(scores) / math.sqrt(len(scores))
    assert share([[s] for s in scores]).standard_error == pytest.approx(
        expected, abs=1e-7
    )


@example([0.09425126312031121] * 2, 3)  # their mean is another number, by rounding
@given(st.lists(values, min_size=2, max_size=10), st.integers(2, 5))
def test_equal_attempts_do_not_narrow_the_interval(scores: list[float], k: int) -> None:
    once, repeated = share([[s] for s in scores]), share([[s] * k for s in scores])
    assert repeated == pytest.approx(once, abs=1e-7)


@given(st.lists(clusters, min_size=1, max_size=5))
def test_by_tasks_every_task_has_the_same_weight(
    tasks: list[list[list[float]]],
) -> None:
    each = [share(groups) for groups in tasks]
    errors = [e.standard_error or 0.0 for e in each]
    estimate = macro_share(tasks)
    assert estimate.value == pytest.approx(statistics.mean(e.value for e in each))
    expected = math.sqrt(sum(error**2 for error in errors)) / len(tasks)
    assert estimate.standard_error == pytest.approx(expected, abs=1e-7)


@given(clusters)
def test_an_interval_holds_its_value_and_stays_between_0_and_1(
    groups: list[list[float]],
) -> None:
    for estimate in (share(groups), macro_share([groups, groups])):
        assert 0.0 <= estimate.low <= estimate.value + 1e-9
        assert estimate.value - 1e-9 <= estimate.high <= 1.0


def test_one_item_has_no_error_but_an_interval() -> None:
    assert share([[1.0, 1.0]]).standard_error is None
    assert share([[1.0, 1.0]]).low == pytest.approx(0.2065, abs=1e-4)
    assert macro_share([[[1.0]]]) == share([[1.0]])


def test_a_task_of_one_item_varies_like_an_item_of_the_others() -> None:
    """Where no task has two items, they are one sample."""
    many = [[1.0], [0.0], [1.0], [0.0]]
    expected = math.sqrt(1 / 3 / 4 + 1 / 3) / 2
    assert macro_share([many, [[1.0]]]).standard_error == pytest.approx(expected)
    alone = macro_share([[[1.0]], [[0.0]], [[0.5, 0.0]]])
    assert alone.standard_error == pytest.approx(
        share([[1.0], [0.0], [0.25]]).standard_error
    )


@pytest.mark.parametrize("sizes", [[50] * 40 + [1] * 5, [10] * 8 + [1]])
def test_tasks_of_one_item_do_not_double_the_interval(sizes: list[int]) -> None:
    rng, covered, width, error = random.Random(f"{sizes}"), 0, 0.0, 0.0
    for _ in range(200):
        skills = [rng.betavariate(0.5, 0.5) for _ in sizes]
        pairs = list(zip(skills, sizes, strict=True))
        estimate = macro_share(
            [[[float(rng.random() < s)] for _ in range(n)] for s, n in pairs]
        )
        covered += estimate.low <= statistics.mean(skills) <= estimate.high
        width += (estimate.high - estimate.low) / 200
        error += math.sqrt(sum(s * (1 - s) / n for s, n in pairs)) / len(sizes) / 200
    assert covered / 200 >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 200)
    assert width < 1.25 * 2 * 1.96 * error


@pytest.mark.parametrize(
    ("items", "chance", "covered"),
    [(3, 0.05, 0.857), (5, 0.02, 0.904), (20, 0.02, 0.940)],
)
def test_how_often_an_interval_of_few_items_covers_a_small_share(
    items: int, chance: float, covered: float
) -> None:
    """As docs/evaluation.md says, by all outcomes with their probability."""
    found = 0.0
    for right in range(items + 1):
        estimate = share([[1.0]] * right + [[0.0]] * (items - right))
        if estimate.low <= chance <= estimate.high:
            found += (
                math.comb(items, right)
                * chance**right
                * (1 - chance) ** (items - right)
            )
    assert found == pytest.approx(covered, abs=0.001)


def test_few_items_that_agree_are_no_certainty() -> None:
    """Wilson's interval of 5 of 5: 1 / (1 + 1.96² / 5)."""
    estimate = share([[1.0]] * 5)
    assert (estimate.low, estimate.high) == pytest.approx((0.5655, 1.0), abs=1e-4)


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.7062), (2, 4.3027), (9, 2.2622), (30, 2.0423), (10**6, 1.96)],
)
def test_the_quantiles_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert student_quantile(freedom) == pytest.approx(expected, abs=1e-4)


def test_wilsons_interval_is_that_of_his_formula() -> None:
    """12 of 40: the roots of (p - 0.3)² = 1.96² p (1 - p) / 40."""
    error = math.sqrt(0.3 * 0.7 / 39)
    for end in wilson(0.3, error, freedom=39, least=40):
        assert (end - 0.3) ** 2 == pytest.approx(1.959964**2 * end * (1 - end) / 40)


@pytest.mark.parametrize(
    ("items", "attempts", "a", "b"),
    [(5, 4, 1.0, 1.0), (20, 1, 0.2, 2.0), (60, 4, 0.3, 0.3)],
)
def test_intervals_cover_the_true_share_at_the_promised_rate(
    items: int, attempts: int, a: float, b: float
) -> None:
    """Items differ in difficulty (Beta(a, b)); 400 evaluations, 4 standard errors of slack."""
    rng, covered = random.Random(f"{items} {attempts} {a}"), 0
    for _ in range(400):
        skills = [rng.betavariate(a, b) for _ in range(items)]
        estimate = share(
            [[float(rng.random() < s) for _ in range(attempts)] for s in skills]
        )
        covered += estimate.low <= a / (a + b) <= estimate.high
    assert covered / 400 >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 400)


@pytest.mark.parametrize(("a", "b"), [(0.05, 0.05), (0.3, 0.3), (1.0, 1.0)])
def test_items_with_more_attempts_do_not_make_intervals_too_narrow(
    a: float, b: float
) -> None:
    """As above, with 10 items of 8 attempts and 30 of which a single one was scored."""
    rng, covered, tasks_covered = random.Random(f"{a} {b}"), 0, 0
    for _ in range(400):
        tasks: list[list[list[float]]] = [[], []]
        for task, size in itertools.product(tasks, [8] * 10 + [1] * 30):
            skill = rng.betavariate(a, b)
            task.append([float(rng.random() < skill) for _ in range(size)])
        alone, both = share(tasks[0]), macro_share(tasks)
        covered += alone.low <= a / (a + b) <= alone.high
        tasks_covered += both.low <= a / (a + b) <= both.high
    assert min(covered, tasks_covered) / 400 >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 400)
