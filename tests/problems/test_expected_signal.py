"""The estimate of signal that sampling, the curriculum's report and rows for one model share."""

import random
from statistics import fmean

import pytest

from reasoning_gym_environment.problems.expected_signal import (
    BetaPrior,
    Counts,
    GroupSums,
    SolvedShares,
    correlation,
)

SIZE = 8


def groups_of(rng: random.Random, mean: float, rho: float, number: int) -> list[Counts]:
    """Groups of problems whose solve probability has a Beta distribution."""
    prior = BetaPrior.of(mean, rho)
    chances = [rng.betavariate(*prior) for _ in range(number)]
    return [
        Counts(sum(rng.random() < chance for _ in range(SIZE)), SIZE)
        for chance in chances
    ]


@pytest.mark.parametrize(("mean", "rho"), [(0.5, 0.6), (0.3, 0.3), (0.8, 0.05)])
def test_mean_spread_and_signal_are_those_of_the_problems(
    mean: float, rho: float
) -> None:
    groups = groups_of(random.Random(1), mean, rho, 3000)
    sums = GroupSums.of(groups)
    assert sums.mean == pytest.approx(mean, abs=0.02)
    assert correlation([sums]) == pytest.approx(rho, abs=0.03)
    with_signal = fmean(0 < solved < SIZE for solved, _ in groups)
    expected = BetaPrior.of(sums.mean, correlation([sums])).signal(SIZE)
    assert expected == pytest.approx(with_signal, abs=0.03)


def test_single_rollouts_say_nothing_of_the_spread() -> None:
    assert GroupSums.of([Counts(1, 1), Counts(0, 1)]).pairs == 0
    shares = SolvedShares(["gcd"])
    shares.report_result("gcd", 0, 1, solved=1, scored=1)
    assert shares.expected_signal("gcd", 0.0, SIZE) is None


def test_signal_between_two_levels_is_that_of_their_mix() -> None:
    shares = SolvedShares(["gcd"])
    for draw in range(40):
        shares.report_result("gcd", 0, draw, solved=SIZE, scored=SIZE)
    easy = shares.expected_signal("gcd", 0.75, SIZE)  # as far as is known
    assert easy == shares.expected_signal("gcd", 0.0, SIZE)
    for draw in range(40, 80):
        shares.report_result("gcd", 1, draw, solved=4, scored=SIZE)
    low, high = (shares.expected_signal("gcd", float(n), SIZE) for n in (0, 1))
    assert low is not None
    assert high is not None
    assert low < 0.3 < 0.9 < high
    mixed = shares.expected_signal("gcd", 0.75, SIZE)
    assert mixed == pytest.approx(0.25 * low + 0.75 * high)
