"""Random and fixed levels, and caps on ladders."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.problems.levels import (
    Curriculum,
    DefaultLevels,
    FixedLevels,
    LevelPolicy,
    RandomLevels,
)

LADDERS = {"gcd": ({"size": 1}, {"size": 2}, {"size": 3}, {"size": 4}), "flat": ({},)}
MODES = (RandomLevels(LADDERS), FixedLevels(LADDERS, 0.9), Curriculum(LADDERS))

uniforms = st.floats(0.0, 1.0, exclude_max=True)


def drawn(levels: LevelPolicy, task: str = "gcd") -> dict[int | None, float]:
    """Return the share of each level among many draws."""
    counts = Counter(levels.level(task, k / 1000) for k in range(1000))
    return {level: count / 1000 for level, count in counts.items()}


@given(uniforms)
def test_unset_levels_are_the_librarys_configuration(uniform: float) -> None:
    assert DefaultLevels().level("gcd", uniform) is None
    assert DefaultLevels().parameters("gcd", None) == {}


def test_random_levels_are_uniform() -> None:
    assert drawn(RandomLevels(LADDERS)) == {0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}


@pytest.mark.parametrize(
    ("difficulty", "shares"),
    [
        (0.0, {0: 1.0}),
        (0.5, {1: 0.5, 2: 0.5}),
        (0.6, {1: 0.2, 2: 0.8}),
        (1.0, {3: 1.0}),
    ],
)
def test_a_fixed_difficulty_mixes_the_levels_around_it(
    difficulty: float, shares: dict[int, float]
) -> None:
    assert drawn(FixedLevels(LADDERS, difficulty)) == pytest.approx(shares, abs=0.002)


@pytest.mark.parametrize("levels", MODES, ids=lambda levels: type(levels).__name__)
@given(uniform=uniforms)
def test_a_ladder_of_one_level_gives_that_level(
    levels: LevelPolicy, uniform: float
) -> None:
    assert levels.level("flat", uniform) == 0


@pytest.mark.parametrize("levels", MODES, ids=lambda levels: type(levels).__name__)
def test_the_parameters_are_those_of_the_level(levels: LevelPolicy) -> None:
    assert levels.parameters("gcd", 2) == {"size": 3}


@pytest.mark.parametrize(
    "make", [RandomLevels, lambda ls: FixedLevels(ls, 1.0), Curriculum]
)
def test_no_level_above_the_cap_is_drawn_again(make: type[RandomLevels]) -> None:
    levels = make(LADDERS)
    levels.cap("gcd", 1)
    levels.cap("gcd", 2)
    for _ in range(20):
        levels.report_result("gcd", 1, solved=8, scored=8)
    assert max(level or 0 for level in drawn(levels)) == 1


def test_the_easiest_level_is_never_capped() -> None:
    levels = RandomLevels(LADDERS)
    levels.cap("gcd", -1)
    assert drawn(levels) == {0: 1.0}


def test_a_cap_is_restored_only_on_a_ladder_of_the_same_height() -> None:
    capped = RandomLevels(LADDERS)
    capped.cap("gcd", 1)
    state = json.loads(json.dumps(capped.state_dict()))
    same, taller = RandomLevels(LADDERS), RandomLevels({"gcd": ({},) * 5})
    for levels in (same, taller, RandomLevels({"lcm": ({},)})):
        levels.load_state_dict(state)
    assert max(level or 0 for level in drawn(same)) == 1
    assert max(level or 0 for level in drawn(taller)) == 4
