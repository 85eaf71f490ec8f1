"""95 % intervals of solved shares whose rollouts come in groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

_Z = 1.959964
"""The normal distribution's 97.5 % point."""


class Interval(NamedTuple):
    """Both ends lie in [0, 1]."""

    low: float
    high: float


def wilson(share: float, count: float) -> Interval:
    """Wilson's score interval of a share seen in `count` > 0 independent tries.

    Wilson, E. B. (1927), Journal of the American Statistical Association 22, 209-212.

    Example:
        >>> [round(end, 3) for end in wilson(0.0, 10)]
        [0.0, 0.278]
    """
    scale = 1 + _Z**2 / count
    centre = (share + _Z**2 / (2 * count)) / scale
    spread = _Z / scale * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    return Interval(max(0.0, centre - spread), min(1.0, centre + spread))


def effective_count(groups: Sequence[tuple[int, int]]) -> float:
    """How many independent tries the rollouts of some problems are worth.

    Rollouts of one problem are alike. Their count is divided by the design effect: the
    cluster-robust variance of the share over that of independent tries (Kish 1965; Korn and
    Graubard 1998). It is at least the number of problems and at most that of the rollouts.

    Args:
        groups: solved and scored rollouts of each problem; at least one is scored in each.

    Example:
        >>> effective_count([(8, 8), (0, 8), (8, 8), (0, 8)])
        4.0
    """
    tries = sum(count for _, count in groups)
    solved = sum(solved for solved, _ in groups)
    spread = sum((own * tries - solved * count) ** 2 for own, count in groups)
    if spread == 0:  # all problems alike, or a single one: nothing is known beyond them
        return float(len(groups))
    variance = len(groups) / (len(groups) - 1) * spread / tries**4
    independent = solved * (tries - solved) / tries**2
    return min(max(independent / variance, float(len(groups))), float(tries))


def share_interval(groups: Sequence[tuple[int, int]]) -> Interval:
    """Of the solved share of all rollouts; `groups` as in `effective_count`."""
    tries = sum(count for _, count in groups)
    return wilson(sum(solved for solved, _ in groups) / tries, effective_count(groups))
