"""Differences between two windows of groups, from their sums.

The interval is Welch's (1947), Biometrika 34, 28-35, with the variance pooled within the pairs of
task and level of each window; the pairs have Mantel and Haenszel's weights. Wallace (1959), Annals
of Mathematical Statistics 30, 1124-1130, turns Student's t into a normal deviate. The page has the
same formulas in `report/assets/differences.js`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

INTERVAL_GROUPS = 20
"""Groups that each of two windows needs for an interval of their difference."""

QUANTILE = 1.959964
"""Of the normal distribution: 95 % lie within, and 2.5 % beyond it on one side."""


@dataclass(frozen=True)
class Sums:
    """Number, sum and sum of squares of groups' values, by pair of task and level."""

    count: Numbers
    total: Numbers
    squares: Numbers

    @property
    def groups(self) -> float:
        """The groups that have a value."""
        return float(self.count.sum())

    @property
    def mean(self) -> float | None:
        """The mean over groups; None without any."""
        groups = self.groups
        return float(self.total.sum()) / groups if groups else None

    def merged(self) -> Sums:
        """Return the sums of all pairs as one."""
        return Sums(
            *(
                column.sum(keepdims=True)
                for column in (self.count, self.total, self.squares)
            )
        )


class Difference(NamedTuple):
    """The mean of a window less that of another one.

    Attributes:
        low, high: the 95 % interval; None with a window of fewer than INTERVAL_GROUPS groups.
        deviate: the difference over its error, as a normal deviate.
        covered: the share of both windows' groups that are compared.
    """

    value: float
    low: float | None
    high: float | None
    deviate: float
    covered: float

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


def difference(later: Sums, earlier: Sums) -> Difference | None:
    """Return the weighted mean of the pairs' differences; None where nothing can be compared.

    Each pair of task and level that both windows hold weighs `n1 * n2 / (n1 + n2)`. `merged` sums
    are one pair, and compare the windows as a whole.
    """
    common = (later.count > 0) & (earlier.count > 0)
    if not common.any():
        return None
    counts = later.count[common], earlier.count[common]
    weights = counts[0] * counts[1] / (counts[0] + counts[1])
    gaps = (
        later.total[common] / counts[0] - earlier.total[common] / counts[1]
    ) * weights
    value = float(gaps.sum() / weights.sum())
    parts = []
    for window, own in zip((later, earlier), counts, strict=True):
        variance, freedom = _variance_within(window)
        if not freedom:
            return None
        share = float((weights**2 / own).sum() / weights.sum() ** 2)
        parts.append((variance * share, freedom))
    compared = [float(own.sum()) for own in counts]
    error, freedom = _error(parts, sum(compared))
    covered = sum(compared) / (later.groups + earlier.groups)
    return _difference(value, error, freedom, least=min(compared), covered=covered)


def to_target(window: Sums, target: float) -> Difference | None:
    """Return the mean of a window, whose sums are merged, less a target; or None."""
    variance, freedom = _variance_within(window)
    mean = window.mean
    if mean is None or not freedom:
        return None
    groups = window.groups
    error, freedom = _error([(variance / groups, freedom)], groups)
    return _difference(mean - target, error, freedom, least=groups, covered=1.0)


def _difference(
    value: float, error: float, freedom: float, *, least: float, covered: float
) -> Difference:
    """Return a difference; `least` is the number of groups of the smaller window."""
    spread = students_t(QUANTILE, freedom) * error
    has_interval = least >= INTERVAL_GROUPS
    return Difference(
        value=value,
        low=value - spread if has_interval else None,
        high=value + spread if has_interval else None,
        deviate=normal_deviate(value / error, freedom),
        covered=covered,
    )


def _variance_within(window: Sums) -> tuple[float, float]:
    """Return the variance of groups around the mean of their pair, and its degrees of freedom."""
    held = window.count > 0
    count = window.count[held]
    freedom = float((count - 1).sum())
    squares = window.squares[held] - window.total[held] ** 2 / count
    return max(0.0, float(squares.sum())) / max(1.0, freedom), freedom


def _error(parts: Sequence[tuple[float, float]], groups: float) -> tuple[float, float]:
    """Return the standard error of a difference, and its degrees of freedom (Satterthwaite 1946).

    It is at least that of one group that differs: a few that all agree prove nothing.
    """
    total = sum(variance for variance, _ in parts)
    least = 1 / groups
    if total <= least**2:
        return least, sum(freedom for _, freedom in parts)
    freedom = total**2 / sum(variance**2 / freedom for variance, freedom in parts)
    return math.sqrt(total), freedom


def normal_deviate(t: float, freedom: float) -> float:
    """Return the normal deviate that is as improbable as a value of Student's t.

    Example:
        >>> round(normal_deviate(2.7764, 4), 1)
        2.0
    """
    shrunk = (8 * freedom + 1) / (8 * freedom + 3)
    size = shrunk * math.sqrt(freedom * math.log1p(t * t / freedom))
    return math.copysign(size, t)


def students_t(deviate: float, freedom: float) -> float:
    """Return Student's t that is as improbable as a normal deviate.

    Example:
        >>> round(students_t(1.959964, 4), 1)
        2.8
    """
    stretched = deviate * (8 * freedom + 3) / (8 * freedom + 1)
    return math.sqrt(freedom * math.expm1(stretched**2 / freedom))


def corrected(deviate: float, looks: float) -> float:
    """Return a deviate less what is due to having looked at so many of which it is the largest.

    As Bonferroni's correction, with `exp(-z * z / 2)` for the probability to exceed a deviate z.

    Example:
        >>> round(corrected(3.0, 10), 2), round(corrected(1.0, 10), 2)
        (2.1, -1.9)
    """
    square = math.copysign(deviate * deviate, deviate) - 2 * math.log(looks)
    return math.copysign(math.sqrt(abs(square)), square)
