"""Intervals cover what they promise to cover."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.core.intervals import effective_count, share_interval, wilson

GROUPS = st.lists(
    st.integers(1, 8).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=1
)


@given(share=st.floats(0, 1), count=st.floats(1, 1e6))
def test_the_interval_holds_the_share_and_stays_between_0_and_1(share: float, count: float) -> None:
    low, high = wilson(share, count)
    assert 0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1


@pytest.mark.parametrize(
    ("solved", "count", "low", "high"),
    [(9, 10, 0.5958, 0.9821), (0, 20, 0.0, 0.1611), (50, 100, 0.4038, 0.5962)],
)
def test_wilsons_interval_is_the_published_one(
    solved: int, count: int, low: float, high: float
) -> None:
    assert wilson(solved / count, count) == pytest.approx((low, high), abs=1e-4)


@given(groups=GROUPS)
def test_rollouts_are_worth_no_less_than_their_problems_and_no_more_than_themselves(
    groups: list[tuple[int, int]],
) -> None:
    assert len(groups) <= effective_count(groups) <= sum(count for _, count in groups)


def test_rollouts_that_agree_within_their_problem_count_once() -> None:
    assert effective_count([(8, 8), (0, 8)] * 20) == pytest.approx(40, rel=0.05)


def test_the_interval_covers_the_true_share_of_alike_rollouts_at_the_promised_rate() -> None:
    rng = random.Random(0)

    def covers() -> bool:
        groups = [
            (sum(rng.random() < skill for _ in range(8)), 8)
            for skill in (rng.choice((0.1, 0.7)) for _ in range(30))
        ]
        low, high = share_interval(groups)
        return low <= 0.4 <= high

    assert sum(covers() for _ in range(1000)) / 1000 == pytest.approx(0.95, abs=0.025)
