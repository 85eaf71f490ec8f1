"""Where the mean of a series changes: binary segmentation, and episodes that may be over.

A series is split where the means of both sides differ the most in standard errors, then each side
again (Scott and Knott 1974, Biometrics 30, 507-512; Vostrikova 1981, Soviet Mathematics Doklady 24,
55-59). The noise is estimated from the differences of neighbors, which a trend hardly changes. What
changes gradually has no place, so a split counts only if most of it happens around that place.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Series = NDArray[Any]

FALSE_ALARMS = 0.05
"""Expected number of false changes in a run, over all of its series and places (Bonferroni)."""

LEAST_SIDE = 2
"""Values on each side of a split."""

LOCAL_VALUES = 24
LOCAL_SHARE = 8
"""Values compared on each side of a place; one in LOCAL_SHARE of the series if that is more."""

ABRUPT = 0.5
"""The least share of a change that the values around its place must show."""

NORMAL_MEDIAN_DEVIATION = 0.6745
"""Median of |x| for a standard normal x."""


class Episode(NamedTuple):
    """A stretch of a series whose mean is beyond the one before it.

    Attributes:
        begin: index of its first value.
        end: index of the first value after it; None if it lasts to the end of the series.
        before, within: the means before and within.
        sigmas: their difference in standard errors.
    """

    begin: int
    end: int | None
    before: float
    within: float
    sigmas: float


def least_sigmas(series: int, places: int) -> float:
    """Return how many standard errors make a split count, among all series and places."""
    return NormalDist().inv_cdf(1 - FALSE_ALARMS / (2 * series * max(1, places)))


def noise(values: Series, least: float) -> float:
    """Return the standard deviation of a series around its mean, from neighbors' differences.

    The median of their sizes ignores the few that are changes.
    """
    import numpy as np  # slow, not for help

    if len(values) < 2:
        return least
    median = float(np.median(np.abs(np.diff(values))))
    return max(least, median / (NORMAL_MEDIAN_DEVIATION * 2**0.5))


def splits(values: Series, *, deviation: float, sigmas: float) -> list[int]:
    """Return the indices at which the mean changes, sorted: the first values of new segments."""
    found: list[int] = []
    ahead = [(0, len(values))]
    while ahead:
        begin, end = ahead.pop()
        place = _clearest(values[begin:end], deviation, sigmas)
        if place is not None:
            found.append(begin + place)
            ahead += [(begin, begin + place), (begin + place, end)]
    return sorted(found)


def _clearest(values: Series, deviation: float, sigmas: float) -> int | None:
    """Return where both sides of a segment differ the most, if they do beyond noise."""
    import numpy as np  # slow, not for help

    size = len(values)
    if size < 2 * LEAST_SIDE:
        return None
    places = np.arange(LEAST_SIDE, size - LEAST_SIDE + 1)
    sums = values.cumsum()
    left = sums[places - 1] / places
    right = (sums[-1] - sums[places - 1]) / (size - places)
    weights = np.sqrt(places * (size - places) / size)
    statistics = np.abs(right - left) * weights / deviation
    clearest = int(statistics.argmax())
    if statistics[clearest] < sigmas:
        return None
    place = int(places[clearest])
    around = max(LOCAL_VALUES, size // LOCAL_SHARE)
    rise = float(right[clearest] - left[clearest])
    before = values[max(0, place - around) : place]
    after = values[place : place + around]
    local_rise = float(after.mean() - before.mean())
    return place if local_rise * rise >= ABRUPT * rise**2 else None


def episodes(
    values: Series, *, least_rise: float, deviation: float, sigmas: float
) -> list[Episode]:
    """Return the stretches that are at least `least_rise` above what came before them.

    An episode ends where the mean falls below the middle of both.
    """
    places = splits(values, deviation=deviation, sigmas=sigmas)
    if not places:
        return []
    bounds = [0, *places, len(values)]
    segments = list(pairwise(bounds))
    means = [float(values[begin:end].mean()) for begin, end in segments]
    found: list[Episode] = []
    number = 1
    while number < len(segments):
        base = means[number - 1]
        if means[number] - base < least_rise:
            number += 1
            continue
        last = number
        middle = (base + means[number]) / 2
        while last + 1 < len(segments) and means[last + 1] >= middle:
            last += 1
        begin = segments[number][0]
        end = segments[last][1]
        within = float(values[begin:end].mean())
        left = segments[number - 1][1] - segments[number - 1][0]
        right = end - begin
        weight = (left * right / (left + right)) ** 0.5
        found.append(
            Episode(
                begin=begin,
                end=None if last + 1 == len(segments) else end,
                before=base,
                within=within,
                sigmas=(within - base) * weight / deviation,
            )
        )
        number = last + 1
    return found
