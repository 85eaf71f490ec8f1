"""How much signal groups of a level's problems are expected to have.

A group has signal if some of its rollouts solve the problem and some don't. Questions of one level
differ, so its problems have a Beta distribution of the solve probability, whose mean and spread are
measured on groups of rollouts. The number of solved rollouts of a group is then beta-binomial.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

HALF_LIFE = 20
"""The evidence of a level loses half of its weight in this many groups per task."""

PRIOR_CORRELATION = 0.1
"""Correlation of two answers to one question that is assumed before any is measured."""

PRIOR_GROUPS = 10.0
"""Groups that a prior counts as much as."""

LEAST_CORRELATION = 0.02
MOST_CORRELATION = 0.9
"""Bounds of an estimate: at 0 or 1 the Beta distribution has no parameters."""


class Counts(NamedTuple):
    """The result of one group: `solved` of its `scored` rollouts, at least one."""

    solved: int
    scored: int


@dataclass(slots=True)
class GroupSums:
    """Sums over the groups of a level's problems, which may decay.

    Attributes:
        groups: their number.
        shares: solved shares.
        pairs: shares of the pairs of rollouts that are both solved.
        since: the draw at which these numbers held.
    """

    groups: float = 0.0
    shares: float = 0.0
    pairs: float = 0.0
    since: int = 0

    @classmethod
    def of(cls, groups: Iterable[Counts]) -> GroupSums:
        """Return the sums over groups."""
        sums = cls()
        for solved, scored in groups:
            sums.add(solved, scored)
        return sums

    def add(self, solved: int, scored: int) -> None:
        """Add a group; one of a single rollout has no pairs, and says nothing of the spread."""
        self.groups += 1
        self.shares += solved / scored
        if scored > 1:
            self.pairs += solved * (solved - 1) / (scored * (scored - 1))

    def age(self, draw: int, half_life: float) -> None:
        """Let the sums decay until a draw."""
        keep = 0.5 ** ((draw - self.since) / half_life)
        self.groups *= keep
        self.shares *= keep
        self.pairs *= keep
        self.since = draw

    @property
    def mean(self) -> float:
        """The solved share, with one group at one half as prior."""
        return min(max((self.shares + 0.5) / (self.groups + 1), 0.01), 0.99)


def correlation(levels: Iterable[GroupSums], prior: float = PRIOR_CORRELATION) -> float:
    """Estimate the correlation of two rollouts of one problem, over levels.

    Args:
        levels: sums over groups of at least two rollouts.
        prior: the correlation that counts as much as PRIOR_GROUPS groups, of which half is solved.
    """
    prior_variance = PRIOR_GROUPS * 0.5 * (1 - 0.5)
    between = prior_variance * prior
    total = prior_variance
    for level in levels:
        between += level.pairs - level.groups * level.mean**2
        total += level.groups * level.mean * (1 - level.mean)
    return min(max(between / total, LEAST_CORRELATION), MOST_CORRELATION)


class BetaPrior(NamedTuple):
    """The solve probability of a level's problems: the parameters of a Beta distribution."""

    solved: float
    failed: float

    @classmethod
    def of(cls, mean: float, correlation: float) -> BetaPrior:
        """Return the distribution of a mean in which two rollouts of a problem correlate so."""
        weight = 1 / correlation - 1
        return cls(weight * mean, weight * (1 - mean))

    def signal(self, size: int, *, solved: float = 0.0, failed: float = 0.0) -> float:
        """Return the probability that a group of `size` rollouts of a problem has signal.

        Args:
            solved, failed: what is known of the problem: numbers of rollouts.
        """
        return signal_probability(self.solved + solved, self.failed + failed, size)


def signal_probability(solved: float, failed: float, size: int) -> float:
    """Return the probability that a group is neither all solved nor all unsolved.

    The number of solved rollouts has a beta-binomial distribution.

    Args:
        solved, failed: the parameters of the Beta distribution, above 0.
        size: rollouts of the group.

    Example:
        >>> round(signal_probability(1.0, 1.0, 2), 3)
        0.333
    """
    total = solved + failed

    def all_of(share: float) -> float:
        log_probability = (
            math.lgamma(share + size) - math.lgamma(share) + math.lgamma(total)
        )
        return math.exp(log_probability - math.lgamma(total + size))

    return max(0.0, 1 - all_of(solved) - all_of(failed))


class SolvedShares:
    """The solved shares of a run's levels, from the first group of each problem.

    Args:
        tasks: of the run.
    """

    def __init__(self, tasks: Collection[str]) -> None:
        self._half_life = HALF_LIFE * len(tasks)
        self._levels: dict[str, dict[int | None, GroupSums]] = {
            task: {} for task in tasks
        }

    def report_result(
        self,
        task: str,
        level: int | None,
        draw: int,
        *,
        solved: int,
        scored: int,
    ) -> None:
        """Learn from a group that was scored after `draw` recipes had been drawn."""
        if scored < 2:
            return
        sums = self._levels[task].setdefault(level, GroupSums(since=draw))
        sums.age(draw, self._half_life)
        sums.add(solved, scored)

    def prior(self, task: str, level: int | None) -> BetaPrior:
        """Return what is known of a fresh problem; the spread is that of all levels of its task."""
        sums = self._levels[task].get(level) or GroupSums()
        return BetaPrior.of(sums.mean, correlation(self._levels[task].values()))

    def expected_signal(self, task: str, position: float, size: int) -> float | None:
        """Return the expected share of groups with signal at a position of a task's ladder.

        Args:
            position: between two levels, both occur in proportion.
            size: rollouts of a group.

        Returns:
            None if no group of these levels is known.
        """
        lower = int(position)
        upper_share = position - lower
        measured_share = 0.0
        signal = 0.0
        for level, share in ((lower, 1 - upper_share), (lower + 1, upper_share)):
            if share and level in self._levels[task]:
                measured_share += share
                signal += share * self.prior(task, level).signal(size)
        return signal / measured_share if measured_share else None

    def state_dict(self) -> list[Any]:
        """Return the evidence as JSON."""
        return list(self._rows())

    def _rows(self) -> Iterator[list[Any]]:
        for task, levels in self._levels.items():
            for level, sums in levels.items():
                yield [task, level, *astuple(sums)]

    def load_state_dict(self, state: list[Any]) -> None:
        """Restore the evidence on the tasks of this run."""
        for task, level, groups, shares, pairs, since in state:
            if task in self._levels:
                self._levels[task][level] = GroupSums(groups, shares, pairs, since)
