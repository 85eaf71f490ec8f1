"""Estimates shares of evaluation items, and differences of two evaluations, with their errors.

Attempts at one item are alike: standard errors of shares are clustered by item, as in Miller
(2024), "Adding Error Bars to Evals", arXiv:2411.00640. Their intervals are Wilson's, for the
number of independent tries that the standard error stands for: near 0 and 1, and with few items,
they stay honest where `value ± 2 errors` would claim to be certain.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

NORMAL_QUANTILE = 1.959964
"""The 97.5 % point of the normal distribution."""

_NEARLY_NORMAL = 1000
"""Degrees of freedom from which Student's distribution is taken for the normal one."""

_ROUNDING = 1e-9
"""A standard error that equal values may have by rounding alone."""

_EXACT_UP_TO = 100
_GRAIN = 5040
"""Differences are counted in parts of this: exact for up to 10 attempts an item."""

Clusters = Sequence[Sequence[float]]
"""Values by item: one list for each, none empty."""


class Estimate(NamedTuple):
    """A mean with its 95 % interval; no standard error where a single item can't tell."""

    value: float
    standard_error: float | None
    low: float
    high: float


def pass_at_k(attempts: int, solved: int, k: int) -> float:
    """The chance that one of `k` attempts, drawn from those made, is solved.

    The unbiased estimator of Chen et al. (2021), "Evaluating Large Language Models Trained on
    Code", arXiv:2107.03374: `1 - C(attempts - solved, k) / C(attempts, k)`, for k <= attempts.

    Example:
        >>> pass_at_k(4, 1, 2)
        0.5
    """
    return 1.0 - math.comb(attempts - solved, k) / math.comb(attempts, k)


def share(clusters: Clusters) -> Estimate:
    """The mean of all values, each in [0, 1], of at least one item.

    Its standard error is the root of `items / (items - 1) * sum(s * s) / values²`, where `s` is
    an item's sum of differences from the mean: with one value an item, the usual one.

    Example:
        >>> estimate = share([[1.0, 1.0], [0.0, 0.0]])
        >>> estimate.value, estimate.standard_error
        (0.5, 0.5)
    """
    count = sum(len(cluster) for cluster in clusters)
    mean = math.fsum(value for cluster in clusters for value in cluster) / count
    error = None
    if len(clusters) > 1:
        squares = math.fsum(math.fsum(v - mean for v in cluster) ** 2 for cluster in clusters)
        error = math.sqrt(squares * len(clusters) / (len(clusters) - 1)) / count
    interval = wilson(mean, error, freedom=len(clusters) - 1, least=_effective(clusters))
    return Estimate(mean, error, *interval)


def macro_share(tasks: Sequence[Clusters]) -> Estimate:
    """The mean of the tasks' means, each task with the same weight.

    The tasks are those there are, not a sample: only the items within them vary.
    """
    estimates = [share(clusters) for clusters in tasks]
    errors = [e.standard_error for e in estimates if e.standard_error is not None]
    mean = math.fsum(e.value for e in estimates) / len(tasks)
    error = math.hypot(*errors) / len(tasks) if len(errors) == len(tasks) else None
    freedom = sum(len(clusters) - 1 for clusters in tasks)
    least = len(tasks) ** 2 / math.fsum(1 / _effective(clusters) for clusters in tasks)
    return Estimate(mean, error, *wilson(mean, error, freedom=freedom, least=least))


def _effective(clusters: Clusters) -> float:
    """Count the items of one size that tell as much where all values of an item are alike.

    Kish (1965), Survey Sampling.
    """
    sizes = [len(cluster) for cluster in clusters]
    return sum(sizes) ** 2 / sum(size * size for size in sizes)


def wilson(mean: float, error: float | None, *, freedom: int, least: float) -> tuple[float, float]:
    """Wilson's 95 % score interval of a mean in [0, 1] with any standard error.

    Wilson (1927), JASA 22, 209-212. The tries are those that independent ones would need for
    that standard error, made fewer where it rests on few items (Korn and Graubard 1998, Survey
    Methodology 24, 193-201).

    Args:
        freedom: items beyond those that determine the means.
        least: tries there are at least: the items, fewer where they differ in size.
    """
    tries = least
    if error is not None and error > _ROUNDING:
        doubt = (NORMAL_QUANTILE / student_quantile(freedom)) ** 2
        tries = max(least, mean * (1 - mean) / error**2 * doubt)
    scale = 1 + NORMAL_QUANTILE**2 / tries
    centre = (mean + NORMAL_QUANTILE**2 / (2 * tries)) / scale
    variance = max(0.0, mean * (1 - mean)) / tries + NORMAL_QUANTILE**2 / (4 * tries**2)
    spread = NORMAL_QUANTILE / scale * math.sqrt(variance)
    return max(0.0, centre - spread), min(1.0, centre + spread)


@cache
def student_quantile(freedom: int) -> float:
    """The 97.5 % point of Student's distribution, `freedom` >= 1.

    Example:
        >>> round(student_quantile(4), 4)
        2.7764
    """
    if freedom >= _NEARLY_NORMAL:
        return NORMAL_QUANTILE
    low, high = NORMAL_QUANTILE, 13.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 0.95 else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """Compute P(|T| < t): Abramowitz and Stegun (1964), 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for step in range(2 + odd, freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (step - 1) / step
    if not odd:
        return math.sin(angle) * total
    return 2 / math.pi * (angle + math.sin(angle) * total)


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
