"""The fitted curve: near the truth with evidence, sensible without."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.problems.curriculum import Curve, fit_curve

heights = st.integers(2, 36)
targets = st.floats(0.05, 0.95)


def logistic(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))


@given(heights, targets)
def test_without_evidence_the_target_is_expected_mid_ladder(height: int, target: float) -> None:
    curve = fit_curve({}, height, target)
    assert curve.at_level((height - 1) / 2) == pytest.approx(target)


@given(st.floats(-1.0, 1.0), st.floats(0.7, 1.5), heights)
def test_much_evidence_outweighs_the_prior(shift: float, steepness: float, height: int) -> None:
    slope = steepness * min(2.0, 6 / (height - 1))
    shares = {
        level: logistic(shift + slope * ((height - 1) / 2 - level)) for level in range(height)
    }
    evidence = {level: (10_000 * share, 10_000.0) for level, share in shares.items()}
    curve = fit_curve(evidence, height, 0.7)
    assert curve.slope == pytest.approx(slope, rel=0.02)
    assert [curve.at_level(level) for level in shares] == pytest.approx(
        [*shares.values()], abs=0.01
    )


answered = st.floats(0.1, 100.0)
evidence = st.dictionaries(
    st.integers(0, 9),
    st.tuples(st.sampled_from([0.0, 0.3, 1.0]), answered).map(lambda e: (e[0] * e[1], e[1])),
)


@given(evidence, targets)
def test_harder_levels_are_never_solved_more_often(
    evidence: dict[int, tuple[float, float]], target: float
) -> None:
    curve = fit_curve(evidence, 10, target)
    shares = [curve.at_level(level) for level in range(10)]
    assert shares == sorted(shares, reverse=True)
    assert math.isfinite(curve.log_odds)


@given(evidence, targets, st.integers(1, 9))
def test_the_target_is_met_where_the_curve_says(
    evidence: dict[int, tuple[float, float]], target: float, top: int
) -> None:
    curve = fit_curve(evidence, 10, target)
    position = curve.position(target, top)
    assert 0 <= position <= top
    if 0 < position < top:
        assert curve.at(position) == pytest.approx(target, abs=1e-6)
    else:
        assert (curve.at(0) <= target + 1e-6) if position == 0 else curve.at(top) >= target - 1e-6


def test_between_levels_the_shares_of_both_mix() -> None:
    curve = Curve(middle=1.0, log_odds=0.0, slope=2.0)
    mixed = 0.75 * curve.at_level(1) + 0.25 * curve.at_level(2)
    assert curve.at(1.25) == pytest.approx(mixed)
    assert curve.at(2.0) == curve.at_level(2)
