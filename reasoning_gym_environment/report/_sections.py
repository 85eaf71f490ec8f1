"""The sections of the page: figures, tables, and the data of charts.

Vega-Lite specifications of the charts are in `assets/charts`; colors are names of the page's CSS
variables, so that they follow its theme.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import PurePath
from statistics import fmean
from typing import Any, NamedTuple

from ..evaluation.comparison import compare, comparison_table
from ..records import FORMAT_FAILURES, Status
from ..storage.dumps import coverage
from ..storage.rows import StoredGroup, StoredRollout
from ..util.grouping import group_by
from .data import (
    EVALUATION,
    SPLITS,
    TRAINING,
    Bucket,
    Overview,
    ReportData,
    Share,
    buckets,
    category_of,
    difficulty_of,
    equal_parts,
    overview,
    rollouts_of,
    shares_by,
    solved_share,
)

SHAPES = {"circle": "●", "square": "■", "triangle-up": "▲", "diamond": "◆", "cross": "✚"}
"""Shapes of the series in order, and their characters in legends."""

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


def shape_of(number: int) -> str:
    """Return the shape of the series with that number; shapes repeat."""
    return list(SHAPES)[number % len(SHAPES)]


class ShareRow(NamedTuple):
    """A row of a table, and a mark of its chart; a series is "training" or an evaluation."""

    name: str
    series: str
    share: Share

    @property
    def split(self) -> str:
        return TRAINING if self.series == TRAINING else EVALUATION


class Headline(NamedTuple):
    """Headline figures, with the settings of their evaluation if known."""

    name: str
    about: str
    found: Overview


@dataclass(frozen=True, kw_only=True, slots=True)
class Sections:
    """The page's content without the single rollouts.

    Attributes:
        versions: library versions in the rows.
        overviews: by split.
        charts: by their place on the page.
        shares: tables of solved shares, by the same places.
        buckets: of the training groups in order; empty if the order is unknown.
        leveled: whether any recipe has a level.
        series: training, if any, and each evaluation.
        comparison: the table of `compare` for exactly two evaluations; else empty.
    """

    data: ReportData
    versions: Sequence[str]
    headlines: Sequence[Headline]
    overviews: Mapping[str, Overview]
    charts: Mapping[str, Chart]
    shares: Mapping[str, Sequence[ShareRow]]
    buckets: Sequence[Bucket]
    leveled: bool
    series: Sequence[str]
    comparison: str

    @property
    def chance_marked(self) -> bool:
        """Whether any floor is shown."""
        rows = (row for table in self.shares.values() for row in table)
        return any(row.share.chance is not None for row in rows)


def build_sections(data: ReportData) -> Sections:
    splits = {split: groups for split in SPLITS if (groups := data.of(split))}
    training = splits.get(TRAINING, [])
    overviews = {split: overview(groups) for split, groups in splits.items()}
    maps = level_maps(splits)
    in_order = training if data.ordered else []
    parts = buckets(in_order)
    series = series_of(data)
    shares = share_tables(series)
    charts = {place: solved_shares(place, rows, list(series)) for place, rows in shares.items()}
    return Sections(
        data=data,
        versions=sorted(set(library_versions(data.groups))),
        headlines=headlines(data),
        overviews=overviews,
        charts={
            **charts,
            **distributions(splits, overviews),
            **over_time(parts),
            **level_lines(in_order),
            **maps,
        },
        shares=shares,
        buckets=parts,
        leveled=bool(maps),
        series=list(series),
        comparison=comparison_of([groups for name, groups in series.items() if name != TRAINING]),
    )


def series_of(data: ReportData) -> dict[str, list[StoredGroup]]:
    """Return the groups of training and of each evaluation; several ones are named."""
    evaluations = group_by(lambda group: str(group.file), data.of(EVALUATION))
    several = len(evaluations) > 1
    series = {TRAINING: data.of(TRAINING)} | {
        f"{EVALUATION} {short_name(name)}" if several else EVALUATION: groups
        for name, groups in evaluations.items()
    }
    return {name: groups for name, groups in series.items() if groups}


def comparison_of(evaluations: Sequence[Sequence[StoredGroup]]) -> str:
    """Return the table of `compare`; empty unless there are two evaluations with common items."""
    if len(evaluations) != 2:
        return ""
    if len({solved_rule(group) for groups in evaluations for group in groups}) > 1:
        return "Not compared: they count different scores as solved. `rescore` the older one."
    compared = compare(*evaluations)
    return comparison_table(compared) if compared else ""


def headlines(data: ReportData) -> list[Headline]:
    """Return the figures of training, then of each evaluation and each of its difficulties."""
    training = data.of(TRAINING)
    found = [Headline("Training", coverage(training), overview(training))] if training else []
    evaluations = group_by(lambda group: str(group.file), data.of(EVALUATION))
    for source in data.sources:
        parts = group_by(lambda group: group.difficulty, evaluations.get(source.name, ()))
        for difficulty in sorted(parts, key=lambda each: -1.0 if each is None else each):
            name = "Evaluation"
            if len(evaluations) > 1:
                name += f" {short_name(source.name)}"
            if difficulty is not None:
                name += f", difficulty {difficulty:g}"
            found.append(Headline(name, source.about, overview(parts[difficulty])))
    return found


def with_level(groups: Sequence[StoredGroup]) -> list[StoredGroup]:
    return [group for group in groups if group.recipe.level is not None]


def solved_rule(group: StoredGroup) -> tuple[str, ...]:
    """Return which scores count as solved, unless right answers do."""
    threshold = group.solved_threshold
    return () if threshold is None else (f"scores of {threshold} and more count as solved",)


def library_versions(groups: Sequence[StoredGroup]) -> Iterator[str]:
    for group in groups:
        if versions := group.library_versions:
            named = [f"{name} {version}" for name, version in sorted(versions.items())]
            yield ", ".join([*named, *solved_rule(group)])


def share_tables(series: Mapping[str, Sequence[StoredGroup]]) -> dict[str, list[ShareRow]]:
    """Return tables by category, by task for each category, by evaluation, and by difficulty.

    Evaluation items at a difficulty are in the last one only.
    """
    plain = {s: [g for g in gs if g.difficulty is None] for s, gs in series.items()}
    tables = {"category": share_rows(plain, lambda g: category_of(g.task))}
    for category in dict.fromkeys(row.name for row in tables["category"]):
        own = {s: [g for g in gs if category_of(g.task) == category] for s, gs in plain.items()}
        tables[f"task/{category}"] = share_rows(own, lambda group: group.task)
    tables["evaluation"] = [
        ShareRow(name.removeprefix(f"{EVALUATION} "), name, share)
        for name, groups in plain.items()
        if name != TRAINING and (share := solved_share(groups))
    ]
    placed = {s: [g for g in gs if difficulty_of(g) is not None] for s, gs in series.items()}
    rows = share_rows(placed, lambda group: f"difficulty {difficulty_of(group):.1f}")
    tables["level"] = sorted(rows, key=lambda row: row.name)
    several = {place for place in tables if len({row.name for row in tables[place]}) > 1}
    return {p: rows for p, rows in tables.items() if rows and (p in several or "/" in p)}


def share_rows(
    series: Mapping[str, Sequence[StoredGroup]], key: Callable[[StoredGroup], str]
) -> list[ShareRow]:
    """Return rows by key, largest share first; all series of a name stand together."""
    places = list(series)
    rows = [ShareRow(n, one, s) for one, gs in series.items() for n, s in shares_by(key, gs)]
    best: dict[str, float] = {}
    for row in rows:
        best.setdefault(row.name, row.share.solved)
    return sorted(rows, key=lambda row: (-best[row.name], row.name, places.index(row.series)))


def short_name(path: str) -> str:
    """Return a path's last two parts without the usual file name.

    Example:
        >>> short_name("data_dumps/evaluation_1/step-20/samples.jsonl")
        'evaluation_1/step-20'
    """
    return "/".join(PurePath(path.removesuffix("/samples.jsonl")).parts[-2:])


def distributions(
    splits: Mapping[str, Sequence[StoredGroup]], overviews: Mapping[str, Overview]
) -> dict[str, Chart]:
    charts = {}
    for split, found in overviews.items():
        rollouts = rollouts_of(splits[split])
        charts[f"status/{split}"] = status_shares(found.statuses)
        if found.score is not None:
            charts[f"score/{split}"] = score_histogram(rollouts)
        if found.longest_tokens:
            charts[f"length/{split}"] = length_histogram(rollouts)
    return charts


def over_time(parts: Sequence[Bucket]) -> dict[str, Chart]:
    charts = {}
    if any(bucket.solved for bucket in parts):
        charts["time/solved"] = solved_over_time(parts)
    if any(bucket.signal for bucket in parts):
        charts["time/signal"] = signal_over_time(parts)
    return charts


def level_lines(training: Sequence[StoredGroup]) -> dict[str, Chart]:
    """Return the mean levels over time of each category with enough groups, with equal axes."""
    placed = [
        (category_of(group.task), number, group.recipe.level)
        for number, group in enumerate(training)
        if group.recipe.level is not None
    ]
    lines = {}
    for category, own in sorted(group_by(itemgetter(0), placed).items()):
        lines[category] = [
            {
                "group": fmean(number for _, number, _ in own[part]),
                "level": fmean(level for _, _, level in own[part]),
            }
            for part in equal_parts(len(own))
        ]
    lines = {category: points for category, points in lines.items() if len(points) > 1}
    highest = max((point["level"] for points in lines.values() for point in points), default=0.0)
    return {
        f"level_time/{category}": Chart(
            spec="levels_over_time",
            description=f"Mean difficulty level of {category} in the order of training",
            values=points,
            parameters={"groups": len(training), "highest": max(1.0, highest)},
        )
        for category, points in lines.items()
    }


def level_maps(splits: Mapping[str, Sequence[StoredGroup]]) -> dict[str, Chart]:
    """Return a map for each split and category of groups with a level."""
    charts = {}
    for split, groups in splits.items():
        for category, own in sorted(
            group_by(lambda g: category_of(g.task), with_level(groups)).items()
        ):
            shares = dict(shares_by(lambda group: (group.task, group.recipe.level or 0.0), own))
            charts[f"level_map/{split}/{category}"] = level_map(category, shares)
    return charts


def solved_shares(place: str, rows: Sequence[ShareRow], order: Sequence[str]) -> Chart:
    """Return a point, an interval and the floors for each row, in the order given.

    Args:
        order: all series of the page; a series has the same shape in all charts.
    """
    values = [
        {
            "name": row.name,
            "of": row.series,
            "shape": shape_of(order.index(row.series)),
            "split": row.split,
            "solved": row.share.solved,
            "low": row.share.low,
            "high": row.share.high,
            "interval": interval(row.share),
            "chance": row.share.chance,
            "no reasoning": row.share.no_reasoning,
            "rollouts": row.share.rollouts,
            "problems": row.share.problems,
        }
        for row in rows
    ]
    description = f"Solved share with 95% intervals and floors, by {place.replace('/', ' in ')}"
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


def level_map(category: str, shares: Mapping[tuple[str, float], Share]) -> Chart:
    """Return the solved share by task and level."""
    values = [
        {"task": task, "level": level, "solved": share.solved, "rollouts": share.rollouts}
        for (task, level), share in sorted(shares.items())
    ]
    description = f"Solved share of {category} by task and difficulty level"
    return Chart(spec="level_map", description=description, values=values)
