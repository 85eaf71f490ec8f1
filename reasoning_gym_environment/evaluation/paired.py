"""Differences between two evaluations of the same items, and which of them are beyond noise."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from .estimators import Estimate, student_quantile

_EXACT_UP_TO = 100
_GRAIN = 5040
"""Differences are counted in parts of this: exact for up to 10 attempts an item."""


def mean_difference(differences: Sequence[float]) -> Estimate:
    """The mean of one difference in [-1, 1] per item, at least one, with its paired t-interval.

    Miller (2024), "Adding Error Bars to Evals", arXiv:2411.00640. The interval takes no standard
    error below that of one item that differs: where few items all agree, their spread of 0
    proves nothing, however many attempts at each repeat it.

    Example:
        >>> mean_difference([1.0, 0.0, 1.0, 0.0]).value
        0.5
    """
    count = len(differences)
    mean = math.fsum(differences) / count
    if count == 1:
        return Estimate(mean, None, -1.0, 1.0)
    squares = math.fsum((d - mean) ** 2 for d in differences)
    error = math.sqrt(squares / (count - 1) / count)
    return Estimate(mean, error, *_interval(mean, error, items=count, freedom=count - 1))


def macro_difference(tasks: Sequence[Sequence[float]]) -> Estimate:
    """The mean of the tasks' mean differences, each task with the same weight.

    A task with a single item counts with an error of 1: no more can a difference in [-1, 1]
    stray, whatever the others of its task would show.
    """
    estimates = [mean_difference(differences) for differences in tasks]
    errors = [1.0 if e.standard_error is None else e.standard_error for e in estimates]
    mean = math.fsum(e.value for e in estimates) / len(tasks)
    error = math.hypot(*errors) / len(tasks)
    items = sum(map(len, tasks))
    freedom = max(1, items - len(tasks))
    return Estimate(mean, error, *_interval(mean, error, items=items, freedom=freedom))


def _interval(mean: float, error: float, *, items: int, freedom: int) -> tuple[float, float]:
    spread = student_quantile(freedom) * max(error, 1 / items)
    return max(-1.0, mean - spread), min(1.0, mean + spread)


def sign_flip_p(differences: Sequence[float]) -> float:
    """How likely so large a sum would be if each difference had either sign by chance.

    The two-sided paired randomisation test (Fisher 1935); with one attempt an item it is
    McNemar's exact test. Exact up to 100 differing items, the normal distribution beyond.

    Example:
        >>> sign_flip_p([1.0, 1.0, 1.0, 1.0, 0.0])
        0.125
    """
    steps = [abs(step) for d in differences if (step := round(d * _GRAIN))]
    total = abs(sum(round(d * _GRAIN) for d in differences))
    if len(steps) > _EXACT_UP_TO:
        return math.erfc(total / math.sqrt(2 * sum(step * step for step in steps)))
    chances = {0: 1.0}
    for step in steps:
        flipped: defaultdict[int, float] = defaultdict(float)
        for reached, chance in chances.items():
            flipped[reached + step] += chance / 2
            flipped[reached - step] += chance / 2
        chances = flipped
    return min(1.0, math.fsum(c for reached, c in chances.items() if abs(reached) >= total))


def discoveries(p_values: Mapping[str, float], *, rate: float = 0.05) -> frozenset[str]:
    """The names that stand out, so that at most `rate` of them are expected to be noise.

    Benjamini and Hochberg (1995), "Controlling the False Discovery Rate", JRSS B 57, 289-300.

    Example:
        >>> sorted(discoveries({"a": 0.001, "b": 0.03, "c": 0.2}))
        ['a', 'b']
    """
    ranked = sorted(p_values, key=p_values.__getitem__)
    passing = [
        rank
        for rank, name in enumerate(ranked, start=1)
        if p_values[name] <= rate * rank / len(ranked)
    ]
    return frozenset(ranked[: max(passing, default=0)])
