"""The level that teaches, on simulated models whose true shares are known."""

import math
import random
from collections.abc import Mapping
from statistics import fmean
from typing import NamedTuple

import pytest

from reasoning_gym_environment.problems.expected_signal import Counts
from reasoning_gym_environment.problems.teaching_levels import (
    LevelEstimate,
    LevelMix,
    choose_mix,
    estimate_levels,
    why_none_teaches,
)

SIZE = 8
ITEMS = 100


class Model(NamedTuple):
    """A model by the log-odds of each level, around which its problems are spread.

    Its default configuration has problems of the easiest and of the hardest level.
    """

    log_odds: tuple[float, ...]
    spread: float

    def chance(self, level: int | None, rng: random.Random) -> float:
        """The chance to solve a problem of a level."""
        if level is None:
            level = rng.choice((0, len(self.log_odds) - 1))
        return 1 / (1 + math.exp(-rng.gauss(self.log_odds[level], self.spread)))

    def truth(self, level: int | None) -> LevelEstimate:
        """The true share solved, and with signal."""
        rng = random.Random(f"truth {level}")
        chances = [self.chance(level, rng) for _ in range(4000)]
        signal = fmean(1 - chance**SIZE - (1 - chance) ** SIZE for chance in chances)
        return LevelEstimate(fmean(chances), signal)

    def evaluated(self, level: int | None) -> list[Counts]:
        """The results of an evaluation at a level."""
        rng = random.Random(f"evaluation {level}")
        chances = [self.chance(level, rng) for _ in range(ITEMS)]
        return [
            Counts(sum(rng.random() < chance for _ in range(SIZE)), SIZE)
            for chance in chances
        ]


def chosen(
    model: Model, levels: list[int | None], target: float = 0.5
) -> tuple[LevelMix, Mapping[int | None, LevelEstimate]]:
    groups = {level: model.evaluated(level) for level in levels}
    estimates = estimate_levels(
        groups,
        len(model.log_odds),
        target=target,
        group_size=SIZE,
    )
    return choose_mix(estimates, target), estimates


def truth_of(model: Model, mix: LevelMix) -> LevelEstimate:
    counts = mix.counts(1000)
    parts = [(model.truth(level), number / 1000) for level, number in counts]
    return LevelEstimate(
        sum(part.solved * share for part, share in parts),
        sum(part.signal * share for part, share in parts),
    )


# A sum with more and more steps, of which each is right in 85 of 100 cases.
OF_STEPS = tuple(
    math.log(0.85**steps / (1 - 0.85**steps)) for steps in (1, 2, 4, 7, 11)
)
MODELS = {
    "even": Model((3.0, 1.5, 0.0, -1.5, -3.0), 1.0),
    "certain": Model((6.0, 3.0, 0.0, -3.0), 4.0),
    "steep": Model((4.0, 1.2, -1.2, -4.0), 0.7),
    "steps": Model(OF_STEPS, 0.7),
    "all hard": Model((0.5, -0.5, -1.5, -2.5), 1.5),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("levels", ["all", "some"])
def test_the_mix_meets_the_target_and_keeps_the_best_levels_signal(
    name: str, levels: str
) -> None:
    model = MODELS[name]
    top = len(model.log_odds) - 1
    evaluated: list[int | None] = [None, *range(top + 1)]
    if levels == "some":
        evaluated = [None, 0, top // 2, top]
    mix, _ = chosen(model, evaluated)
    truth = truth_of(model, mix)
    best = max(model.truth(level).signal for level in range(top + 1))
    assert truth.solved == pytest.approx(0.5, abs=0.05)
    assert truth.signal >= 0.9 * best
    assert mix.expected.solved == pytest.approx(truth.solved, abs=0.05)
    assert mix.expected.signal == pytest.approx(truth.signal, abs=0.08)


def test_a_default_that_always_solves_half_does_not_teach() -> None:
    """Its share is nearer to the target than that of any level, and its signal is low."""
    model = Model((6.0, 2.0, -2.0, -6.0), 0.5)
    assert model.truth(None).solved == pytest.approx(0.5, abs=0.02)
    mix, estimates = chosen(model, [None, 0, 1, 2, 3])
    assert estimates[None].signal < 0.2
    assert (mix.level, round(mix.upper_share, 1)) == (1, 0.5)


def test_signal_comes_before_the_target() -> None:
    """All of level 0 is solved and nothing of level 2: their neighbors' mixes have no signal."""
    estimates = {
        0: LevelEstimate(0.98, 0.1),
        1: LevelEstimate(0.8, 0.7),
        2: LevelEstimate(0.02, 0.1),
    }
    mix = choose_mix(estimates, 0.5)
    assert mix.expected.signal >= 0.9 * 0.7
    assert (mix.level, round(mix.upper_share, 2)) == (1, 0.11)


def test_levels_are_not_guessed_beyond_what_was_evaluated() -> None:
    _, estimates = chosen(MODELS["even"], [1, 3])
    assert [*estimates] == [1, 2, 3]


@pytest.mark.parametrize(
    ("shares", "why"),
    [
        ((1.0, 1.0), "always solved"),
        ((0.0, 0.0), "never solved"),
        ((1.0, 0.0), "hardly a problem that is sometimes solved"),
        ((1.0, 0.5), ""),
    ],
)
def test_a_task_without_a_level_that_teaches_says_why(
    shares: tuple[float, float], why: str
) -> None:
    groups: dict[int | None, list[Counts]] = {
        level: [Counts(round(share * SIZE), SIZE)] * ITEMS
        for level, share in enumerate(shares)
    }
    estimates = estimate_levels(groups, 2, target=0.5, group_size=SIZE)
    assert why_none_teaches(groups, estimates) == why


def test_every_problem_of_a_mix_has_a_level() -> None:
    expected = LevelEstimate(0.5, 0.9)
    mix = LevelMix(level=2, upper_share=0.3, expected=expected)
    assert (str(mix), mix.counts(10)) == ("2.30", [(2, 7), (3, 3)])
    whole = LevelMix(level=None, upper_share=0.0, expected=expected)
    assert (str(whole), whole.counts(10)) == ("default", [(None, 10)])
