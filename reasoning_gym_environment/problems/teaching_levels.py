"""The level that teaches: which mix of a task's levels has the most signal near a target share.

A level with the target share need not teach: if a model always solves half of its problems and
never the other half, no group has signal. So signal comes first, and the target second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from .curve import Curve, fit_curve
from .expected_signal import PRIOR_GROUPS, BetaPrior, Counts, GroupSums, correlation

KEPT_SIGNAL = 0.9
"""Share of the best level's signal that the chosen mix keeps. The rest buys the target share."""

LEAST_SIGNAL = 0.2
"""Expected share of groups with signal below which a task has no level that teaches."""

MIX_STEPS = 100
"""Mixes of two neighbors that are compared."""

Groups = Mapping[int | None, Sequence[Counts]]
"""The measured groups of each level of a task; level None is the library's default."""


class LevelEstimate(NamedTuple):
    """What a model does at a level: its solved share, and the expected share with signal."""

    solved: float
    signal: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelMix:
    """Problems of a level, and of the next harder one.

    Attributes:
        level: the easier one; None is the library's default, which has no next.
        upper_share: of the problems that are of the next level, in [0, 1).
        expected: over all problems.
    """

    level: int | None
    upper_share: float
    expected: LevelEstimate

    def __str__(self) -> str:
        """Return the position on the ladder."""
        if self.level is None:
            return "default"
        return f"{self.level + self.upper_share:.2f}"

    def counts(self, size: int) -> list[tuple[int | None, int]]:
        """Return the number of problems of each level."""
        upper = round(self.upper_share * size)
        counts = [(self.level, size - upper)]
        if self.level is not None:
            counts.append((self.level + 1, upper))
        return [(level, count) for level, count in counts if count]


def estimate_levels(
    groups: Groups,
    height: int,
    *,
    target: float,
    group_size: int,
) -> dict[int | None, LevelEstimate]:
    """Estimate the measured levels and those between two of them.

    A curve over the ladder counts as much as ten groups of each level, so that a few groups don't
    decide, and alone where a level was not measured. The spread is each level's own, with the
    ladder's as a prior.

    Args:
        groups: at least one of each level.
        height: the number of levels of the ladder.
        target: the solved share to aim at; the curve's prior expects it mid ladder.
        group_size: rollouts of the groups that will be trained.
    """
    paired = {
        level: GroupSums.of(group for group in of_level if group.scored > 1)
        for level, of_level in groups.items()
    }
    # The default configuration may mix easy and hard problems, which no level does.
    of_ladder = correlation(sums for level, sums in paired.items() if level is not None)
    curve = _fit(groups, height, target, of_ladder)
    measured = [level for level in groups if level is not None]
    levels: list[int | None] = [None] if None in groups else []
    if measured:
        levels += range(min(measured), max(measured) + 1)
    estimates = {}
    for level in levels:
        of_level = groups.get(level, ())
        # The default configuration is not on the curve.
        if level is None:
            expected = GroupSums.of(of_level).mean
        else:
            expected = curve.at_level(level)
        spread = correlation([paired.get(level, GroupSums())], prior=of_ladder)
        estimates[level] = _estimate(of_level, expected, spread, group_size)
    return estimates


def _fit(groups: Groups, height: int, target: float, spread: float) -> Curve:
    """Fit the curve of a ladder; rollouts of one problem correlate, so they count less."""
    evidence: dict[int, tuple[float, float]] = {}
    for level, of_level in groups.items():
        if level is None:
            continue
        weights = [1 / (1 + spread * (group.scored - 1)) for group in of_level]
        pairs = list(zip(weights, of_level, strict=True))
        evidence[level] = (
            sum(weight * group.solved for weight, group in pairs),
            sum(weight * group.scored for weight, group in pairs),
        )
    return fit_curve(evidence, max(height, 2), target)


def _estimate(
    groups: Sequence[Counts],
    expected: float,
    spread: float,
    group_size: int,
) -> LevelEstimate:
    """Estimate a level from its groups and, as much as ten of them, the share expected before."""
    shares = sum(group.solved / group.scored for group in groups)
    weight = len(groups) + PRIOR_GROUPS
    solved = (shares + PRIOR_GROUPS * expected) / weight
    prior = BetaPrior.of(min(max(solved, 0.01), 0.99), spread)
    signal = PRIOR_GROUPS * prior.signal(group_size)
    for group in groups:
        signal += prior.signal(
            group_size,
            solved=group.solved,
            failed=group.scored - group.solved,
        )
    return LevelEstimate(solved, signal / weight)


def choose_mix(
    estimates: Mapping[int | None, LevelEstimate], target: float
) -> LevelMix:
    """Choose the mix nearest to the target among those with at least 0.9 of the best signal.

    Args:
        estimates: of at least one level.
        target: the solved share to aim at.
    """
    # No mix has more signal than the better of its two levels.
    needed = KEPT_SIGNAL * max(estimate.signal for estimate in estimates.values())
    teaching = [mix for mix in _mixes(estimates) if mix.expected.signal >= needed]

    def off_target(mix: LevelMix) -> tuple[float, float]:
        distance = abs(mix.expected.solved - target)
        return round(distance, 2), -mix.expected.signal

    return min(teaching, key=off_target)


def _mixes(estimates: Mapping[int | None, LevelEstimate]) -> Iterator[LevelMix]:
    for level, lower in estimates.items():
        yield LevelMix(level=level, upper_share=0.0, expected=lower)
        if level is None or level + 1 not in estimates:
            continue
        upper = estimates[level + 1]
        for step in range(1, MIX_STEPS):
            share = step / MIX_STEPS
            expected = LevelEstimate(
                (1 - share) * lower.solved + share * upper.solved,
                (1 - share) * lower.signal + share * upper.signal,
            )
            yield LevelMix(level=level, upper_share=share, expected=expected)


def why_none_teaches(
    groups: Groups, estimates: Mapping[int | None, LevelEstimate]
) -> str:
    """Return why no level of a task teaches a model; empty if one does."""
    all_groups = [group for of_level in groups.values() for group in of_level]
    solved = fmean(group.solved / group.scored for group in all_groups)
    if solved == 1:
        return "always solved"
    if solved == 0:
        return "never solved"
    if max(estimate.signal for estimate in estimates.values()) < LEAST_SIGNAL:
        return "hardly a problem that is sometimes solved"
    return ""
