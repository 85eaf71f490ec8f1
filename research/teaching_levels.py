"""Simulate how well `problems --from-evaluation` finds the level that teaches.

    python -m research.teaching_levels [--ladders 100]

Simulated models solve the items of ladders of four to eight levels with known probabilities. An
item's logit is its level's plus a normal deviate. The table says what the chosen mixes truly are.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from reasoning_gym_environment.problems.expected_signal import Counts
from reasoning_gym_environment.problems.teaching_levels import (
    KEPT_SIGNAL,
    LevelEstimate,
    LevelMix,
    choose_mix,
    estimate_levels,
)

GROUP_SIZE = 8
"""Rollouts of the groups that will be trained."""

NEAR = 0.05
"""Distance from the target share that counts as reached."""

SPREADS = (0.3, 1.0, 2.0, 4.0)
"""Standard deviations of an item's logit around its level's: from alike to all or nothing."""

TRUE_ITEMS = 2000
"""Items by which the true shares of a level are computed."""

SIZES = ((10, 4), (50, 4), (100, 8), (200, 8))


def falling(levels: int, random: Random) -> list[float]:
    """Logits that fall evenly from level to level."""
    ability, slope = random.uniform(0.1, 0.9) * (levels - 1), random.uniform(0.5, 2.5)
    return [slope * (ability - level) for level in range(levels)]


def steps_that_must_all_succeed(levels: int, random: Random) -> list[float]:
    """Logits of problems that need two steps more at each level."""
    step = random.uniform(0.6, 0.97)
    shares = [step ** (2 * (level + 1)) for level in range(levels)]
    return [math.log(share / (1 - share)) for share in shares]


def cliff(levels: int, random: Random) -> list[float]:
    """Logits that are the same up to some level, and much lower above it."""
    high, low = random.uniform(1, 3), random.uniform(-3, -0.5)
    edge = random.uniform(0.5, levels - 1.5)
    return [high if level < edge else low for level in range(levels)]


Shape = Callable[[int, Random], list[float]]
SHAPES: dict[str, Shape] = {
    "falling": falling,
    "steps": steps_that_must_all_succeed,
    "cliff": cliff,
}


class SimulatedLadder:
    """A ladder whose items a model solves with known probabilities."""

    def __init__(self, shape: Shape, random: Random) -> None:
        self.height = random.randint(4, 8)
        self._random = random
        self._logits = shape(self.height, random)
        self._spread = random.choice(SPREADS)
        self.true = {
            level: self._expect(level) for level in (*range(self.height), None)
        }

    def share(self, level: int | None) -> float:
        """Draw an item, and return the probability that it is solved; None is any level."""
        place = self._random.randrange(self.height) if level is None else level
        logit = self._logits[place] + self._spread * self._random.gauss(0, 1)
        return 1 / (1 + math.exp(-logit))

    def _expect(self, level: int | None) -> LevelEstimate:
        shares = [self.share(level) for _ in range(TRUE_ITEMS)]
        mixed = [1 - p**GROUP_SIZE - (1 - p) ** GROUP_SIZE for p in shares]
        return LevelEstimate(fmean(shares), fmean(mixed))

    def evaluate(self, items: int, attempts: int) -> dict[int | None, list[Counts]]:
        """Return the counts of an evaluation of every level and of the default."""
        return {
            level: [self._count(self.share(level), attempts) for _ in range(items)]
            for level in self.true
        }

    def _count(self, share: float, attempts: int) -> Counts:
        return Counts(
            sum(self._random.random() < share for _ in range(attempts)), attempts
        )

    def of_mix(self, mix: LevelMix) -> LevelEstimate:
        """Return what the model truly does on a mix."""
        lower = self.true[mix.level]
        if mix.level is None or not mix.upper_share:
            return lower
        return between(lower, self.true[mix.level + 1], mix.upper_share)

    @property
    def best_signal(self) -> float:
        return max(each.signal for each in self.true.values())

    def holds(self, target: float) -> bool:
        """Return whether some mix is near the target and keeps the signal."""
        return any(
            abs(mixed.solved - target) <= NEAR
            and mixed.signal >= KEPT_SIGNAL * self.best_signal
            for level in range(self.height - 1)
            for share in range(21)
            for mixed in [between(self.true[level], self.true[level + 1], share / 20)]
        )


def between(lower: LevelEstimate, upper: LevelEstimate, share: float) -> LevelEstimate:
    """Return a mix, of which a share is the upper level's."""
    solved, signal = (
        (1 - share) * a + share * b for a, b in zip(lower, upper, strict=True)
    )
    return LevelEstimate(solved, signal)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What was chosen on one ladder.

    Attributes:
        possible: whether some mix of the ladder is near the target and keeps the signal.
        off_target: distance of the true share from the target.
        kept: true share with signal, as a share of the best level's.
        misjudged: distance of the expected share with signal from the true one.
    """

    possible: bool
    off_target: float
    kept: float
    misjudged: float


def choose(ladder: SimulatedLadder, items: int, attempts: int, target: float) -> Choice:
    """Choose as the command does, and compare with the truth."""
    estimates = estimate_levels(
        ladder.evaluate(items, attempts),
        ladder.height,
        target=target,
        group_size=GROUP_SIZE,
    )
    mix = choose_mix(estimates, target)
    true = ladder.of_mix(mix)
    return Choice(
        possible=ladder.holds(target),
        off_target=abs(true.solved - target),
        kept=true.signal / ladder.best_signal,
        misjudged=abs(mix.expected.signal - true.signal),
    )


def row(choices: Sequence[Choice]) -> list[str]:
    possible = [choice for choice in choices if choice.possible]
    return [
        f"{len(possible)} of {len(choices)}",
        f"{fmean(choice.off_target for choice in possible):.3f}",
        f"{fmean(choice.off_target <= NEAR for choice in possible):.0%}",
        f"{fmean(choice.kept for choice in choices):.3f}",
        f"{fmean(choice.kept >= KEPT_SIGNAL for choice in choices):.0%}",
        f"{fmean(choice.misjudged for choice in choices):.3f}",
    ]


HEADS = (
    "ladder",
    "target",
    "items",
    "attempts",
    "target can be met",
    "off target",
    f"within {NEAR}",
    "signal kept",
    f"at least {KEPT_SIGNAL}",
    "signal misjudged by",
)


def main(ladders: int) -> None:
    """Print a table in Markdown."""
    print(f"| {' | '.join(HEADS)} |\n|{' --- |' * len(HEADS)}")
    cases = [(shape, 0.5, size) for shape in SHAPES for size in SIZES]
    cases += [("falling", target, (100, 8)) for target in (0.3, 0.7)]
    for shape, target, (items, attempts) in cases:
        random = Random(f"{shape} {target} {items} {attempts}")
        choices = [
            choose(SimulatedLadder(SHAPES[shape], random), items, attempts, target)
            for _ in range(ladders)
        ]
        cells = [shape, str(target), str(items), str(attempts), *row(choices)]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ladders", type=int, default=100, help="of each row")
    main(parser.parse_args().ladders)
