"""Data of the report's charts.

Their Vega-Lite specifications are in `assets/charts`; colors are names of the page's CSS variables,
so that they follow its theme.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..records import FORMAT_FAILURES, Status
from ..storage.rows import StoredRollout
from .aggregates import Bucket, LevelPoint, Share
from .loading import EVALUATION, TRAINING

_SCORE_BINS = 20
_LENGTH_BINS = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """The data of a chart, and its specification.

    Attributes:
        spec: name of the specification in `assets/charts`.
        description: text for screen readers.
        values: data rows with the specification's keys.
        parameters: the specification's parameters.
        note: text beside the chart; may be empty.
    """

    spec: str
    description: str
    values: Sequence[Mapping[str, Any]]
    parameters: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


def words(name: str) -> str:
    """Return a name with spaces."""
    return name.replace("_", " ")


def status_kind(status: Status) -> str:
    """Return the kind of a status; each of the five kinds has a color."""
    if status in FORMAT_FAILURES:
        return "format failure"
    return status.value if status.value in ("solved", "wrong", "unscored") else "fault"


def interval(share: Share) -> str:
    return f"{share.low:.1%} to {share.high:.1%}"


SHAPES = {"circle": "●", "square": "■", "triangle-up": "▲", "diamond": "◆", "cross": "✚"}
"""Shapes of the series in order, and their characters in legends."""


def shape_of(number: int) -> str:
    """Return the shape of the series with that number; shapes repeat."""
    return list(SHAPES)[number % len(SHAPES)]


def solved_shares(
    description: str, shares: Sequence[tuple[str, str, Share]], order: Sequence[str]
) -> Chart:
    """Return a point, an interval and the floors for each name and series, in the order given.

    Args:
        order: all series of the page; a series has the same shape in all charts.
    """
    values = [
        {
            "name": name,
            "of": series,
            "shape": shape_of(order.index(series)),
            "split": series if series == TRAINING else EVALUATION,
            "solved": share.solved,
            "low": share.low,
            "high": share.high,
            "interval": interval(share),
            "chance": share.chance,
            "no reasoning": share.no_reasoning,
            "rollouts": share.rollouts,
            "problems": share.problems,
        }
        for name, series, share in shares
    ]
    return Chart(spec="solved_shares", description=description, values=values)


def histogram(
    description: str, counts: Mapping[tuple[int, bool], int], width: float, *, omitted: int = 0
) -> Chart:
    """Return shares by bin and by whether rollouts are solved; bin i begins at i * width.

    Args:
        omitted: rollouts outside all bins, which count in the total.
    """
    total = sum(counts.values()) + omitted
    values = [
        {
            "start": round(number * width, 6),
            "end": round((number + 1) * width, 6),
            "kind": "solved" if solved else "not solved",
            "share": count / total,
            "rollouts": count,
        }
        for (number, solved), count in sorted(counts.items())
    ]
    return Chart(spec="histogram", description=description, values=values)


def score_histogram(rollouts: Sequence[StoredRollout]) -> Chart:
    """Return the histogram of scores; a score of 1 is in the last bin."""
    counts = Counter(
        (min(_SCORE_BINS - 1, math.floor(r.raw_score * _SCORE_BINS + 1e-9)), r.solved)
        for r in rollouts
        if r.raw_score is not None
    )
    return histogram("Distribution of the verifier's scores", counts, 1 / _SCORE_BINS)


def length_histogram(rollouts: Sequence[StoredRollout]) -> Chart:
    """Return the histogram of completion lengths."""
    lengths = [(r.length, r.solved) for r in rollouts if r.length]
    longest = percentile([tokens for tokens, _ in lengths], 0.99)
    width = round_width(longest / _LENGTH_BINS)
    counts = Counter((n // width, solved) for n, solved in lengths if n <= longest)
    beyond = len(lengths) - counts.total()
    chart = histogram("Distribution of completion lengths in tokens", counts, width, omitted=beyond)
    return replace(chart, note=f"{beyond:,} longer than {longest:,} omitted" if beyond else "")


def percentile(values: Sequence[int], share: float) -> int:
    """Return the smallest value with at least this share of values up to it; 1 without values.

    Example:
        >>> percentile([1, 2, 3, 900], 0.75)
        3
    """
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else 1


def round_width(width: float) -> int:
    """Round up to the next of 1, 2, 5, 10, 20, 50, …

    Example:
        >>> round_width(33.4)
        50
    """
    power: int = 10 ** math.floor(math.log10(max(1.0, width)))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= width)


def status_shares(statuses: Mapping[Status, int]) -> Chart:
    total = sum(statuses.values())
    values = [
        {
            "status": words(status.value),
            "kind": status_kind(status),
            "share": count / total,
            "rollouts": count,
        }
        for status, count in statuses.items()
    ]
    return Chart(spec="statuses", description="Shares of rollouts by status", values=values)


def solved_over_time(buckets: Sequence[Bucket]) -> Chart:
    values = [
        {
            "group": (bucket.start + bucket.end) / 2,
            "groups": f"{bucket.start + 1:,} to {bucket.end:,}",
            "solved": bucket.solved.solved,
            "low": bucket.solved.low,
            "high": bucket.solved.high,
            "interval": interval(bucket.solved),
        }
        for bucket in buckets
        if bucket.solved
    ]
    description = "Solved share of training groups in the order of training"
    return Chart(spec="solved_over_time", description=description, values=values)


def signal_over_time(buckets: Sequence[Bucket]) -> Chart:
    values = [
        {"start": b.start, "end": b.end, "kind": words(kind.value), "share": share, "rank": rank}
        for b in buckets
        for rank, (kind, share) in enumerate(b.signal.items())
    ]
    description = "Shares of mixed, all solved and unsolved groups in the order of training"
    return Chart(spec="signal_over_time", description=description, values=values)


def levels_over_time(
    category: str, points: Sequence[LevelPoint], *, groups: int, highest: float
) -> Chart:
    """Return one category's levels; all categories have the same axes."""
    values = [{"group": point.group, "level": point.level} for point in points]
    description = f"Mean difficulty level of {category} in the order of training"
    axes = {"groups": groups, "highest": highest}
    return Chart(spec="levels_over_time", description=description, values=values, parameters=axes)


def level_map(category: str, shares: Mapping[tuple[str, float], Share]) -> Chart:
    """Return the solved share by task and level."""
    values = [
        {"task": task, "level": level, "solved": share.solved, "rollouts": share.rollouts}
        for (task, level), share in sorted(shares.items())
    ]
    description = f"Solved share of {category} by task and difficulty level"
    return Chart(spec="level_map", description=description, values=values)
