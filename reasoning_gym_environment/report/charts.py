"""Makes the values behind the report's charts. Pure.

How a chart looks is in `assets/charts`, one Vega-Lite specification a file; its colours are
names of the page's CSS variables, so that they follow the page's theme.
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
    """What a chart shows, and the name of how it looks.

    Attributes:
        looks: the specification's name in `assets/charts`.
        says: what a screen reader says of it.
        values: one for each mark or more; keys as the specification names them.
        parameters: what else the specification names.
        note: what people are told beside it; empty when there is nothing to add.
    """

    looks: str
    says: str
    values: Sequence[Mapping[str, Any]]
    parameters: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


def words(name: str) -> str:
    """Write a name in code as people read it."""
    return name.replace("_", " ")


def status_kind(status: Status) -> str:
    """Say what a status means for the reader: the five kinds have a colour each."""
    if status in FORMAT_FAILURES:
        return "format failure"
    return status.value if status.value in ("solved", "wrong", "unscored") else "fault"


def interval(share: Share) -> str:
    return f"{share.low:.1%} to {share.high:.1%}"


SHAPES = {"circle": "●", "square": "■", "triangle-up": "▲", "diamond": "◆", "cross": "✚"}
"""Of the points of the first series, the second and so on, and how legends show them."""


def shape_of(number: int) -> str:
    """Name the shape of a series by its number; shapes come again where there are many."""
    return list(SHAPES)[number % len(SHAPES)]


def solved_shares(
    says: str, shares: Sequence[tuple[str, str, Share]], order: Sequence[str]
) -> Chart:
    """Draw a point, an interval and the floors for each name and series, in the order given.

    Args:
        order: all series of the page: each has its shape in all charts.
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
    return Chart(looks="solved_shares", says=says, values=values)


def histogram(
    says: str, counts: Mapping[tuple[int, bool], int], width: float, *, left_out: int = 0
) -> Chart:
    """Draw counts by bin and by whether they are solved; bin i begins at i * width.

    Args:
        left_out: rollouts that are in no bin; the shares are of all.
    """
    total = sum(counts.values()) + left_out
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
    return Chart(looks="histogram", says=says, values=values)


def score_histogram(rollouts: Sequence[StoredRollout]) -> Chart:
    """Draw the scores of the scored rollouts; a score of 1 lies in the last bin."""
    counts = Counter(
        (min(_SCORE_BINS - 1, math.floor(r.raw_score * _SCORE_BINS + 1e-9)), r.solved)
        for r in rollouts
        if r.raw_score is not None
    )
    return histogram("How the verifier's scores are distributed", counts, 1 / _SCORE_BINS)


def length_histogram(rollouts: Sequence[StoredRollout]) -> Chart:
    """Draw the lengths of the completions whose length is known."""
    lengths = [(r.length, r.solved) for r in rollouts if r.length]
    longest = percentile([tokens for tokens, _ in lengths], 0.99)
    width = round_width(longest / _LENGTH_BINS)
    counts = Counter((n // width, solved) for n, solved in lengths if n <= longest)
    beyond = len(lengths) - counts.total()
    chart = histogram("How long the completions are, in tokens", counts, width, left_out=beyond)
    return replace(chart, note=f"{beyond:,} longer than {longest:,} left out" if beyond else "")


def percentile(values: Sequence[int], share: float) -> int:
    """Find the least value that at least this share of the values doesn't exceed; 1 without any.

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
    return Chart(looks="statuses", says="What became of the rollouts", values=values)


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
    says = "Solved share of training groups in the order in which they came"
    return Chart(looks="solved_over_time", says=says, values=values)


def signal_over_time(buckets: Sequence[Bucket]) -> Chart:
    values = [
        {"start": b.start, "end": b.end, "kind": words(kind.value), "share": share, "rank": rank}
        for b in buckets
        for rank, (kind, share) in enumerate(b.signal.items())
    ]
    says = "Shares of mixed, all solved and unsolved groups in the order in which they came"
    return Chart(looks="signal_over_time", says=says, values=values)


def levels_over_time(
    category: str, points: Sequence[LevelPoint], *, groups: int, highest: float
) -> Chart:
    """Draw one category's levels; charts that stand side by side have the same axes."""
    values = [{"group": point.group, "level": point.level} for point in points]
    says = f"Mean difficulty level of {category} in the order in which groups came"
    axes = {"groups": groups, "highest": highest}
    return Chart(looks="levels_over_time", says=says, values=values, parameters=axes)


def level_map(category: str, shares: Mapping[tuple[str, float], Share]) -> Chart:
    """Draw the solved share by task and level."""
    values = [
        {"task": task, "level": level, "solved": share.solved, "rollouts": share.rollouts}
        for (task, level), share in sorted(shares.items())
    ]
    says = f"Solved share of {category} by task and difficulty level"
    return Chart(looks="level_map", says=says, values=values)
