"""What is believed about the signal of groups."""

import json
import random
import statistics

import pytest

from reasoning_gym_environment.problems.sampler import FLOOR, HALF_LIFE, SignalEstimates

TASKS = ("gcd", "lcm")


def mean_chance(estimates: SignalEstimates, level: int | None = None, draw: int = 0) -> float:
    rng = random.Random(1)
    return statistics.mean(estimates.sample_signal("gcd", level, draw, rng) for _ in range(4000))


def told(results: list[bool], level: int | None = None, draw: int = 0) -> SignalEstimates:
    estimates = SignalEstimates(TASKS)
    for mixed in results:
        estimates.record("gcd", level, draw, mixed=mixed)
    return estimates


def test_an_unseen_task_is_as_likely_to_have_signal_as_not() -> None:
    assert mean_chance(SignalEstimates(TASKS)) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(("mixed", "flat"), [(9, 1), (5, 5), (2, 8)])
def test_the_estimate_follows_the_groups(mixed: int, flat: int) -> None:
    estimates = told([True] * mixed + [False] * flat)
    assert mean_chance(estimates) == pytest.approx((mixed + 0.5) / 11, abs=0.02)


def test_no_chance_falls_below_the_floor() -> None:
    estimates = told([False] * 1000)
    rng = random.Random(1)
    assert {estimates.sample_signal("gcd", None, 0, rng) for _ in range(50)} == {FLOOR}


def test_what_is_not_renewed_fades() -> None:
    estimates = told([False] * 8)
    half_life = HALF_LIFE * len(TASKS)
    after_one = mean_chance(estimates, draw=half_life)
    assert mean_chance(estimates) < after_one < mean_chance(estimates, draw=3 * half_life)
    assert after_one == pytest.approx(0.5 / 5, abs=0.02)
    assert mean_chance(estimates, draw=20 * half_life) == pytest.approx(0.5, abs=0.03)


def test_levels_are_known_apart() -> None:
    estimates = told([True] * 20, level=1)
    assert mean_chance(estimates, level=1) > 0.9
    assert mean_chance(estimates, level=2) == pytest.approx(0.5, abs=0.03)


def test_a_stored_state_is_the_same_knowledge() -> None:
    estimates = told([True, False, True], level=2, draw=7)
    other = SignalEstimates(TASKS)
    other.load_state_dict(json.loads(json.dumps(estimates.state_dict())))
    chances = [e.sample_signal("gcd", 2, 9, random.Random(1)) for e in (estimates, other)]
    assert chances[0] == chances[1]


def test_a_task_no_longer_used_is_forgotten() -> None:
    other = SignalEstimates(["lcm"])
    other.load_state_dict(told([True]).state_dict())
    assert other.state_dict() == []
