"""Where the mean of a series changes, and where it does not."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.rollouts.change_points import (
    episodes,
    least_sigmas,
    noise,
    splits,
)

SIGMAS = least_sigmas(100, 400)


def series(*means: float, size: int = 100, seed: int = 0) -> np.ndarray:
    """Normal values with a standard deviation of 1 around each mean in turn."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.normal(mean, 1.0, size) for mean in means])


@pytest.mark.parametrize("seed", range(10))
def test_a_step_is_found_within_a_few_values(seed: int) -> None:
    [place] = splits(series(0.0, 2.0, seed=seed), deviation=1.0, sigmas=SIGMAS)
    assert abs(place - 100) <= 5


@pytest.mark.parametrize("seed", range(10))
def test_what_is_over_has_both_ends(seed: int) -> None:
    values = series(0.0, 2.0, 0.0, seed=seed)
    [found] = episodes(values, least_rise=1.0, deviation=1.0, sigmas=SIGMAS)
    assert found.end is not None
    assert abs(found.begin - 100) <= 5
    assert abs(found.end - 200) <= 5
    assert found.within - found.before == pytest.approx(2.0, abs=0.5)


def test_a_fall_is_no_episode_of_a_rise() -> None:
    values = series(2.0, 0.0)
    assert episodes(values, least_rise=1.0, deviation=1.0, sigmas=SIGMAS) == []
    [found] = episodes(-values, least_rise=1.0, deviation=1.0, sigmas=SIGMAS)
    assert found.end is None


def test_a_trend_has_no_place() -> None:
    values = series(0.0, size=1000) + np.linspace(0.0, 2.0, 1000)
    assert splits(values, deviation=1.0, sigmas=SIGMAS) == []


def test_noise_alone_is_hardly_ever_a_change() -> None:
    found = [
        splits(series(0.0, size=400, seed=seed), deviation=1.0, sigmas=SIGMAS)
        for seed in range(300)
    ]
    assert sum(map(bool, found)) <= 1


def test_a_step_hardly_raises_the_noise() -> None:
    assert noise(series(0.0, size=400), 0.1) == pytest.approx(1.0, rel=0.2)
    assert noise(series(0.0, 50.0), 0.1) == pytest.approx(1.0, rel=0.3)
    assert noise(np.array([1.0]), 0.1) == noise(np.zeros(9), 0.1) == 0.1


@given(st.lists(st.floats(-10, 10), max_size=60))
def test_any_series_is_cut_into_its_values(values: list[float]) -> None:
    array = np.array(values, np.double)
    deviation = noise(array, 0.1)
    found = episodes(array, least_rise=0.5, deviation=deviation, sigmas=3.0)
    for one, following in pairwise(found):
        assert one.end is not None
        assert one.end <= following.begin
    for one in found:
        assert 0 < one.begin < (one.end or len(values)) <= len(values)
        assert one.within > one.before


def test_what_changes_gradually_is_no_step_however_short_the_series() -> None:
    rng = np.random.default_rng(3)
    for size in (24, 60, 240):
        slope = np.linspace(0.0, 2.0, size) + rng.normal(0, 0.2, size)
        assert splits(slope, deviation=0.2, sigmas=4.5) == []
        step = np.where(np.arange(size) < size // 2, 0.0, 2.0)
        assert splits(step + rng.normal(0, 0.2, size), deviation=0.2, sigmas=4.5)


def test_a_fall_between_two_rises_is_measured_around_its_place() -> None:
    rng = np.random.default_rng(4)
    rising = np.linspace(0.0, 0.3, 600)
    values = -np.concatenate([rising + 0.3, rising + 0.2]) + rng.normal(0, 0.1, 1200)
    means = values[600:].mean() - values[:600].mean()
    assert means < 0.15
    [episode] = episodes(values, least_rise=0.15, deviation=0.1, sigmas=5.0)
    assert abs(episode.begin - 600) <= 10
