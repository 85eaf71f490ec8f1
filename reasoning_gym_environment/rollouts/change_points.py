"""Where the mean of a series changes: binary segmentation, and episodes that may be over.

A series is split where the means of both sides differ the most in standard errors, then each side
again (Scott and Knott 1974, Biometrics 30, 507-512; Vostrikova 1981, Soviet Mathematics Doklady 24,
55-59). The noise is estimated from the differences of neighbors, which a trend hardly changes. What
changes gradually has no place, so a split counts only if most of it happens around that place, and
a step explains the segment as well as a straight line does.
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

SURE = 2.0
"""Standard errors by which a rise around a place must exceed the least one, if the means don't."""

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
    places: list[int] = []
    ahead = [(0, len(values))]
    while ahead:
        begin, end = ahead.pop()
        place = _clearest(values[begin:end], deviation, sigmas)
        if place is not None:
            places.append(begin + place)
            ahead += [(begin, begin + place), (begin + place, end)]
    return sorted(places)


def _clearest(values: Series, deviation: float, sigmas: float) -> int | None:
    """Return where both sides of a segment differ the most, if they do beyond noise."""
    import numpy as np  # slow, not for help

    size = len(values)
    if size < 2 * LEAST_SIDE:
        return None
    places = np.arange(LEAST_SIDE, size - LEAST_SIDE + 1)
    sums = values.cumsum()
    left_means = sums[places - 1] / places
    right_means = (sums[-1] - sums[places - 1]) / (size - places)
    weights = np.sqrt(places * (size - places) / size)
    statistics = np.abs(right_means - left_means) * weights / deviation
    clearest = int(statistics.argmax())
    if statistics[clearest] < sigmas:
        return None
    place = int(places[clearest])
    rise = float(right_means[clearest] - left_means[clearest])
    is_local = _local_rise(values, place) * rise >= ABRUPT * rise**2
    return place if is_local and _is_step(values, place) else None


def _reach(values: Series) -> int:
    """Return how many values on each side are around a place."""
    return max(LOCAL_VALUES, len(values) // LOCAL_SHARE)


def _local_rise(values: Series, place: int) -> float:
    """Return by how much the values around a place differ: those after it less those before."""
    around = _reach(values)
    before = values[max(0, place - around) : place]
    after = values[place : place + around]
    return float(after.mean() - before.mean())


def _is_step(values: Series, place: int) -> bool:
    """Return whether a step at a place explains values at least as well as a straight line does.

    Around a place of a short series there is nearly all of it, which tells no step from a slope.
    """
    import numpy as np  # slow, not for help

    size = len(values)
    along = np.arange(size) - (size - 1) / 2
    by_line = float(along @ values) ** 2 / float(along @ along)
    rise = float(values[place:].mean() - values[:place].mean())
    by_step = rise**2 * place * (size - place) / size
    return by_step >= by_line


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
    risen_episodes: list[Episode] = []
    number = 1
    while number < len(segments):
        base = means[number - 1]
        begin = segments[number][0]
        around = values[segments[number - 1][0] : segments[number][1]]
        # A policy that learns on both sides of a fall may be nearly as good on the whole.
        least_local = least_rise + SURE * deviation * (2 / _reach(around)) ** 0.5
        local = _local_rise(around, begin - segments[number - 1][0])
        rises = means[number] - base >= least_rise or local >= least_local
        if not rises or means[number] <= base:
            number += 1
            continue
        last = number
        middle = (base + means[number]) / 2
        while last + 1 < len(segments) and means[last + 1] >= middle:
            last += 1
        end = segments[last][1]
        within = float(values[begin:end].mean())
        groups_before = segments[number - 1][1] - segments[number - 1][0]
        groups_within = end - begin
        weight = (
            groups_before * groups_within / (groups_before + groups_within)
        ) ** 0.5
        risen_episodes.append(
            Episode(
                begin=begin,
                end=None if last + 1 == len(segments) else end,
                before=base,
                within=within,
                sigmas=(within - base) * weight / deviation,
            )
        )
        number = last + 1
    return risen_episodes
