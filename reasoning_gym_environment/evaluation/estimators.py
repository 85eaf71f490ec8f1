"""Estimators of shares of evaluation items and of differences, with errors and intervals.

Attempts at one item are similar, so standard errors of shares are clustered by item, as in Miller
(2024), "Adding Error Bars to Evals", arXiv:2411.00640. Intervals of shares are Wilson's, for the
number of independent trials with the same standard error. They stay valid near 0 and 1 and with few
items, where `value ± 2 errors` is too narrow.

A task with a single item shows nothing of the variance within it. In means over tasks it gets the
average of those that have more, as in R's `survey` with `lonely.psu = "average"`. If none has more,
the items of all tasks count as one sample. A single item in all has no standard error.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import chain
from statistics import NormalDist, fmean, variance
from typing import NamedTuple

NORMAL_QUANTILE = 1.959964
"""The 97.5 % point of the normal distribution."""

SIGNIFICANCE = 0.05
"""The share of intervals that miss their value, and of false discoveries among all."""

Clusters = Sequence[Sequence[float]]
"""Values by item; no item is empty."""


Interval = tuple[float, float]
"""The low and high end."""


class Estimate(NamedTuple):
    """A mean with its 95 % interval; the standard error of a single item is None."""

    value: float
    standard_error: float | None
    low: float
    high: float


def mean_interval(
    parts: Sequence[tuple[float, float, Interval | None]],
) -> Interval | None:
    """Return the 95 % interval of a weighted mean of independent estimates.

    The distances from estimate to bound add up in squares: Zou and Donner (2008), "Construction of
    confidence limits about effect measures", Statistics in Medicine 27, 1693-1702.

    Args:
        parts: weight, value and interval of each; without any, or if one has no interval, the
            mean has none.

    Example:
        >>> low, high = mean_interval([(1, 0.5, (0.4, 0.7)), (1, 0.1, (0.1, 0.1))])
        >>> round(low, 3), round(high, 3)
        (0.25, 0.4)
    """
    if not parts:
        return None
    total = math.fsum(weight for weight, _, _ in parts)
    mean = squares_below = squares_above = 0.0
    for weight, value, interval in parts:
        if interval is None:
            return None
        low, high = interval
        mean += weight / total * value
        squares_below += (weight / total * (value - low)) ** 2
        squares_above += (weight / total * (high - value)) ** 2
    return mean - math.sqrt(squares_below), mean + math.sqrt(squares_above)


def pass_at_k(attempts: int, solved: int, k: int) -> float:
    """Return the probability that at least one of `k` attempts is solved.

    The unbiased estimator of Chen et al. (2021), "Evaluating Large Language Models Trained on
    Code", arXiv:2107.03374: `1 - C(attempts - solved, k) / C(attempts, k)`, for k <= attempts.

    Example:
        >>> pass_at_k(4, 1, 2)
        0.5
    """
    return 1.0 - math.comb(attempts - solved, k) / math.comb(attempts, k)


def share(clusters: Clusters) -> Estimate:
    """Return the mean of all values, each in [0, 1], of at least one item.

    Its standard error is `sqrt(items / (items - 1) * sum(s * s)) / values`, where `s` is an item's
    sum of differences from the mean. With one value per item it is the usual one.

    Example:
        >>> estimate = share([[1.0, 1.0], [0.0, 0.0]])
        >>> estimate.value, estimate.standard_error
        (0.5, 0.5)
    """
    return macro_share([clusters])


def macro_share(tasks: Sequence[Clusters]) -> Estimate:
    """Return the mean of the tasks' means, each task with the same weight.

    Only the items within tasks vary: the tasks are not a sample.
    """
    mean, error, freedom = _over_tasks(tasks)
    sizes = [[len(cluster) for cluster in clusters] for clusters in tasks]
    # Kish (1965).
    shares = math.fsum(sum(n * n for n in size) / sum(size) ** 2 for size in sizes)
    least = len(tasks) ** 2 / shares
    return Estimate(
        mean,
        error,
        *wilson(
            mean,
            error,
            freedom=freedom,
            least=least,
        ),
    )


def _over_tasks(tasks: Sequence[Clusters]) -> tuple[float, float | None, int]:
    """Return the mean of the tasks' means, its standard error and degrees of freedom."""
    means: list[float] = []
    variances: list[float | None] = []
    for clusters in tasks:
        task_mean, task_variance = _clustered_mean(clusters)
        means.append(task_mean)
        variances.append(task_variance)
    mean = math.fsum(means) / len(tasks)
    freedom = sum(map(len, tasks)) - len(tasks)
    # The variance of one item's mean, for the tasks with a single item, which have none.
    item_variances = [
        task_variance * len(clusters)
        for task_variance, clusters in zip(variances, tasks, strict=True)
        if task_variance is not None
    ]
    if not item_variances and len(tasks) == 1:
        return mean, None, freedom
    single = fmean(item_variances) if item_variances else variance(means)
    total = math.fsum(
        single if task_variance is None else task_variance
        for task_variance in variances
    )
    return mean, math.sqrt(total) / len(tasks), freedom or len(tasks) - 1


def _clustered_mean(clusters: Clusters) -> tuple[float, float | None]:
    """Return the mean of all values and its cluster-robust variance; None for one cluster."""
    values = list(chain.from_iterable(clusters))
    items = len(clusters)
    mean = math.fsum(values) / len(values)
    if items == 1:
        return mean, None
    squares = math.fsum(
        math.fsum(value - mean for value in cluster) ** 2 for cluster in clusters
    )
    return mean, squares * items / (items - 1) / len(values) ** 2


def wilson(
    mean: float,
    error: float | None,
    *,
    freedom: int,
    least: float,
) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of a mean in [0, 1] with any standard error.

    Wilson (1927), JASA 22, 209-212, for the number of independent trials with this standard error,
    reduced where it rests on few items (Korn and Graubard 1998, Survey Methodology 24, 193-201).

    Args:
        freedom: degrees of freedom of the standard error.
        least: the minimum number of trials: the effective number of items, if all values of an
            item are equal.
    """
    trials = least
    if error is not None and error > 1e-9:  # equal values give less, by rounding
        reduction = (NORMAL_QUANTILE / student_quantile(freedom)) ** 2
        trials = max(least, mean * (1 - mean) / error**2 * reduction)
    return score_interval(mean, trials)


def score_interval(
    mean: float, trials: float, quantile: float = NORMAL_QUANTILE
) -> Interval:
    """Return Wilson's interval of a share of independent trials.

    Args:
        quantile: of the normal distribution; by default, the interval is that of 95 %.
    """
    scale = 1 + quantile**2 / trials
    center = (mean + quantile**2 / (2 * trials)) / scale
    variance = max(0.0, mean * (1 - mean)) / trials + quantile**2 / (4 * trials**2)
    spread = quantile / scale * math.sqrt(variance)
    # Without a success the bound is 0, and not what rounding leaves of it.
    low = max(0.0, center - spread) if mean > 0 else 0.0
    high = min(1.0, center + spread) if mean < 1 else 1.0
    return low, high


NORMAL_FREEDOM = 1000
"""Degrees of freedom from which on Student's quantile is the normal one to two digits."""


@cache
def student_quantile(freedom: int, significance: float = SIGNIFICANCE) -> float:
    """Return what |T| exceeds with a probability, for Student's distribution, `freedom` ≥ 1.

    Example:
        >>> round(student_quantile(4), 4)
        2.7764
    """
    low = NormalDist().inv_cdf(1 - significance / 2)
    if freedom >= NORMAL_FREEDOM:
        return low
    high = 2 * low
    while _beyond(high, freedom) > significance:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if _beyond(middle, freedom) > significance:
            low = middle
        else:
            high = middle
    return high


def _beyond(t: float, freedom: int) -> float:
    """Return P(|T| > t): Abramowitz and Stegun (1964), 26.7.3 and 26.7.4."""
    if freedom >= NORMAL_FREEDOM:
        return math.erfc(t / math.sqrt(2))
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for step in range(2 + odd, freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (step - 1) / step
    if not odd:
        return 1 - math.sin(angle) * total
    return 1 - 2 / math.pi * (angle + math.sin(angle) * total)


def mean_difference(
    *tasks: Sequence[float], significance: float = SIGNIFICANCE
) -> Estimate:
    """Return the mean of one difference in [-1, 1] per item with its paired t-interval.

    Of several tasks, the mean of their means. Miller (2024), "Adding Error Bars to Evals",
    arXiv:2411.00640. Few items that differ say little about the others. So the interval reaches
    down at least as far as if the share of falling items were at the upper end of Wilson's
    interval, and up likewise.

    Example:
        >>> mean_difference([1.0, 0.0, 1.0, 0.0]).value
        0.5
    """
    single_attempts = [[[difference] for difference in task] for task in tasks]
    mean, error, freedom = _over_tasks(single_attempts)
    if error is None:
        return Estimate(mean, None, -1.0, 1.0)
    spread = student_quantile(freedom, significance) * error
    # Kish (1965).
    items = len(tasks) ** 2 / math.fsum(1 / len(task) for task in tasks)
    quantile = NormalDist().inv_cdf(1 - significance / 2)
    size = _typical_size(chain.from_iterable(tasks))

    def unseen(differing_share: float) -> float:
        _, highest = score_interval(differing_share, items, quantile)
        return size * (highest - differing_share)

    low = mean - max(spread, unseen(fmean(map(_falling_share, tasks))))
    high = mean + max(spread, unseen(fmean(map(_rising_share, tasks))))
    return Estimate(mean, error, max(-1.0, low), min(1.0, high))


def paired_difference(
    differences: Sequence[float], significance: float = SIGNIFICANCE
) -> Estimate:
    """Return the mean difference of a task's items; its interval is also its test.

    The t-interval reaches to 0 unless the exact randomization test excludes 0, too. So it excludes
    0 at no higher rate than either test, also with few items and where nearly all are solved.

    Args:
        significance: of the interval; it excludes 0 from `difference_p` on.
    """
    estimate = mean_difference(differences, significance=significance)
    if difference_p(differences) <= significance:
        return estimate
    return estimate._replace(low=min(estimate.low, 0.0), high=max(estimate.high, 0.0))


def difference_p(differences: Sequence[float]) -> float:
    """Return the lowest significance at which the interval of `paired_difference` excludes 0.

    Example:
        >>> difference_p([1.0] * 6)
        0.03125
    """
    mean, error, freedom = _over_tasks([[[difference] for difference in differences]])
    if error is None or not mean:
        return 1.0
    t_test = _beyond(abs(mean) / error, freedom) if error else 0.0
    opposed_share = (_falling_share if mean > 0 else _rising_share)(differences)
    # Wilson's score test of the share that would make the mean 0.
    unseen_share = abs(mean) / _typical_size(differences)
    highest = opposed_share + unseen_share
    unseen = 0.0
    if highest < 1:
        score = unseen_share / math.sqrt(highest * (1 - highest) / len(differences))
        unseen = math.erfc(score / math.sqrt(2))
    return max(t_test, unseen, sign_flip_p(differences))


def _rising_share(differences: Sequence[float]) -> float:
    return fmean(difference > 0 for difference in differences)


def _falling_share(differences: Sequence[float]) -> float:
    return fmean(difference < 0 for difference in differences)


def _typical_size(differences: Iterable[float]) -> float:
    """Return the root mean square of the differences that are not 0; 1 without any."""
    squares = [difference**2 for difference in differences if difference]
    return math.sqrt(fmean(squares)) if squares else 1.0


GRAIN = 5040
"""Differences are rounded to multiples of 1/5040: exact for up to 10 attempts."""

MAX_EXACT_ITEMS = 100


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the p-value of the two-sided paired randomization test (Fisher 1935).

    With one attempt per item, it is McNemar's exact test. It is exact up to 100 differing items;
    beyond, it uses the normal distribution.

    Example:
        >>> sign_flip_p([1.0, 1.0, 1.0, 1.0, 0.0])
        0.125
    """
    steps = [round(difference * GRAIN) for difference in differences]
    total = abs(sum(steps))
    steps = [abs(step) for step in steps if step]
    if len(steps) > MAX_EXACT_ITEMS:
        return math.erfc(total / math.sqrt(2 * sum(step * step for step in steps)))
    probabilities = {0: 1.0}
    for step in steps:
        flipped: defaultdict[int, float] = defaultdict(float)
        for steps_sum, probability in probabilities.items():
            flipped[steps_sum + step] += probability / 2
            flipped[steps_sum - step] += probability / 2
        probabilities = flipped
    extreme = [p for steps_sum, p in probabilities.items() if abs(steps_sum) >= total]
    return min(1.0, math.fsum(extreme))


def significance_among(p_values: Collection[float]) -> float:
    """Return the significance of each of several intervals, corrected for their number.

    Those that exclude 0 have an expected share of 5 % false discoveries: Benjamini and Hochberg
    (1995), "Controlling the False Discovery Rate", JRSS B 57, 289-300. Of those, 95 % are expected
    to cover their value: Benjamini and Yekutieli (2005), "False Discovery Rate-Adjusted Multiple
    Confidence Intervals for Selected Parameters", JASA 100, 71-81.

    Args:
        p_values: of at least one test.

    Example:
        >>> round(significance_among([0.001, 0.03, 0.2]), 3)  # two are found
        0.033
    """
    number = len(p_values)
    passing = [
        rank
        for rank, p_value in enumerate(sorted(p_values), start=1)
        if p_value <= SIGNIFICANCE * rank / number
    ]
    return SIGNIFICANCE * max(passing, default=1) / number
