"""The figures of a run: what each measure was of late and earlier, and whether it got worse.

A series of groups is split into tenths, a short one into thirds. The last part is compared with
each earlier one: as a whole, and at the same level, over the pairs of task and level that both
hold. All figures follow from the `Sums` of parts.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from ..records import FORMAT_FAILURES, Signal
from ..storage.rows import StoredGroup, StoredRollout
from .differences import QUANTILE, Difference, Sums, corrected, difference, to_target

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

TENTHS_FROM = 100
"""Groups from which on a series has tenths; below, it has thirds."""

WORTH_A_LOOK = 0.1
"""The least difference that is marked, in shares or in reward: 10 points."""

COVERED = 0.5
"""The share of two windows' groups from which on their difference at the same level says more than
the one as a whole, which a change of levels or of tasks moves too."""

NUMBER = 0
CELL = 1
VALUES = 2
"""Columns of a group's row: its number, that of its pair of task and level, then its values."""

COMPARISONS = 3
"""With the part before, the first and the best one: the worst of them ranks a row."""


class Measure(NamedTuple):
    """What is measured of each group.

    Attributes:
        better: 1 if more is better, -1 if less is, 0 if neither.
        form: how a value is printed; differences of percentages are points.
        marked: whether a row that got worse may be marked: its difference "at_level", or as a
            whole; None for never.
        value: of a group; None if it has none.
    """

    name: str
    better: int
    form: str
    marked: str | None
    value: Callable[[StoredGroup], float | None]


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return fmean(known) if known else None


def _completed(group: StoredGroup) -> list[StoredRollout]:
    """Return the rollouts that have a completion."""
    return [rollout for rollout in group.rollouts if rollout.tokens]


def _signal(group: StoredGroup) -> float | None:
    is_known = len(group.scored) > 1
    return float(group.signal is Signal.MIXED) if is_known else None


def _unscored(group: StoredGroup) -> float:
    return 1 - len(group.scored) / len(group.rollouts)


WHOLE = "whole"
AT_LEVEL = "at_level"

SHARE = ".1%"
NUMERIC = ".2f"
WHOLE_NUMBER = ".0f"

SOLVED = "solved"
LEVEL = "level"

MEASURES = (
    Measure(
        SOLVED, 1, SHARE, AT_LEVEL, lambda group: _mean(r.solved for r in group.scored)
    ),
    Measure(
        "reward",
        1,
        NUMERIC,
        AT_LEVEL,
        lambda group: _mean(r.score for r in group.scored),
    ),
    # A truncated completion lacks an answer too, but that is another fault.
    Measure(
        "missing",
        -1,
        SHARE,
        WHOLE,
        lambda group: _mean(
            r.status in FORMAT_FAILURES for r in _completed(group) if not r.truncated
        ),
    ),
    Measure(
        "truncated",
        -1,
        SHARE,
        WHOLE,
        lambda group: _mean(r.truncated for r in _completed(group)),
    ),
    Measure("signal", 1, SHARE, None, _signal),
    Measure(
        "length",
        0,
        WHOLE_NUMBER,
        None,
        lambda group: _mean(r.completion_tokens for r in _completed(group)),
    ),
    Measure("unscored", -1, SHARE, WHOLE, _unscored),
    Measure(LEVEL, 1, NUMERIC, None, lambda group: group.recipe.level),
)
"""A group's value is the mean over its rollouts, and a figure the mean over groups."""

_MEASURE_BY_NAME = {measure.name: measure for measure in MEASURES}

MARKED = [measure for measure in MEASURES if measure.marked]

COLUMNS = VALUES + len(MEASURES)


class Figure(NamedTuple):
    """A measure's row: its means of late and earlier, and their differences.

    Attributes:
        last, before, first, best: means over parts of the series; the best is None where nothing
            is better, and a mean where no group has a value.
        to_before, to_first, to_best: differences of the last part, as a whole.
        at_level: the same at the same level.
        target: what a curriculum aims at, of the solved share alone.
        to_target: the last part less the target.
        worst: the largest of three differences for the worse over its error, less what is due to
            the choice of the best part and to three looks.
        marked: whether it got worse beyond noise, and by more than a size.
    """

    measure: str
    groups: int
    last: float | None
    before: float | None
    first: float | None
    best: float | None
    to_before: Difference | None
    to_first: Difference | None
    to_best: Difference | None
    at_level: Mapping[str, Difference | None]
    target: float | None
    to_target: Difference | None
    worst: float
    marked: bool

    def to_json(self) -> dict[str, Any]:
        row = self._asdict()
        for name in ("to_before", "to_first", "to_best", "to_target"):
            row[name] = row[name] and row[name].to_json()
        row["at_level"] = {
            name: each and each.to_json() for name, each in self.at_level.items()
        }
        return row


def describe(row: Figure) -> str:
    """Return a figure in words: the last part, and its differences with their 95 % intervals."""
    form = _MEASURE_BY_NAME[row.measure].form
    if row.last is None:
        return f"{row.measure} unknown"
    parts = []
    for name, differences in (
        ("before", (row.to_before, row.at_level["to_before"])),
        ("first", (row.to_first, row.at_level["to_first"])),
    ):
        whole, level = differences
        if whole is not None:
            parts.append(f"{_signed(whole, form)} to {name}")
        if level is not None:
            covered = f"of {level.covered:.0%}"
            parts.append(f"{_signed(level, form)} at the same level {covered}")
    if row.target is not None:
        parts.append(f"target {row.target:{form}}")
    differs = f" ({', '.join(parts)})" if parts else ""
    return f"{row.measure} {row.last:{form}}{differs}"


def _signed(found: Difference, form: str) -> str:
    """Return a difference with half of its interval's width."""
    is_share = form == SHARE
    scale = 100 if is_share else 1
    digits = ".1f" if is_share else form
    text = f"{scale * found.value:+{digits}}"
    if found.low is not None and found.high is not None:
        text += f" ± {scale * (found.high - found.low) / 2:{digits}}"
    return f"{text} points" if is_share else text


def figure(
    measure: Measure,
    parts: Sequence[Sums],
    *,
    rows: int,
    size: float,
    target: float | None = None,
) -> Figure | None:
    """Return a measure's row from the sums of its parts, the earliest first; None without values.

    Args:
        rows: among which a marked one is noticed.
        size: the least difference that is marked.
        target: the solved share that a curriculum aims at.
    """
    merged = [part.merged() for part in parts]
    means = [part.mean for part in merged]
    if all(mean is None for mean in means):
        return None
    whole = [difference(merged[-1], part) for part in merged[:-1]]
    # At the same level, levels are the same.
    level = [
        None if measure.name == LEVEL else difference(parts[-1], part)
        for part in parts[:-1]
    ]
    looks = _looks(len(whole))
    ranked = [
        _worst_of(measure, pair, looks=own)
        for pair, own in zip(zip(whole, level, strict=True), looks, strict=True)
    ]
    counted = level if measure.marked == AT_LEVEL else whole
    is_worse = measure.marked is not None and any(
        _is_beyond(measure, each, looks=own * rows, size=size)
        for each, own in zip(counted, looks, strict=True)
    )
    own_target = target if measure.name == SOLVED else None
    gaps = [
        to_target(part, own_target) for part in merged[-2:] if own_target is not None
    ]
    stays_below = bool(gaps) and all(
        _is_beyond(measure, gap, looks=rows, size=size) for gap in gaps
    )
    best_whole, best_level = (
        _furthest(measure, differences) for differences in (whole, level)
    )
    return Figure(
        measure=measure.name,
        groups=round(sum(part.groups for part in merged)),
        last=means[-1],
        before=means[-2],
        first=means[0],
        best=_best(measure, means),
        to_before=whole[-1],
        to_first=whole[0],
        to_best=best_whole,
        at_level={
            "to_before": level[-1],
            "to_first": level[0],
            "to_best": best_level,
        },
        target=own_target,
        to_target=gaps[-1] if gaps else None,
        worst=max(ranked),
        marked=is_worse or stays_below,
    )


def _looks(earlier: int) -> list[float]:
    """Return among how many differences each of the earlier parts' is a choice.

    The first part and the one before are compared in any case, another one if it is the best.
    """
    chosen = float(COMPARISONS * max(1, earlier))
    looks = [chosen] * earlier
    looks[0] = looks[-1] = COMPARISONS
    return looks


def _deviate_for_worse(measure: Measure, found: Difference | None) -> float:
    if found is None:
        return 0.0
    return -measure.better * found.deviate if measure.better else abs(found.deviate)


def _worst_of(
    measure: Measure,
    pair: tuple[Difference | None, Difference | None],
    *,
    looks: float,
) -> float:
    """Return the deviate for the worse of one comparison, as a whole and at the same level."""
    whole, level = pair
    sides = 1 if measure.better else 2
    at_level = corrected(_deviate_for_worse(measure, level), looks * sides)
    if level is not None and level.covered >= COVERED:
        return at_level
    return max(at_level, corrected(_deviate_for_worse(measure, whole), looks * sides))


def _is_beyond(
    measure: Measure, found: Difference | None, *, looks: float, size: float
) -> bool:
    """Return whether a difference is for the worse, beyond noise, and at least so large."""
    if found is None or found.low is None:
        return False
    deviate = corrected(_deviate_for_worse(measure, found), looks)
    return deviate > QUANTILE and -measure.better * found.value >= size


def _furthest(
    measure: Measure, differences: Sequence[Difference | None]
) -> Difference | None:
    """Return the difference for the worse that is the largest over its error."""
    known = [each for each in differences if each is not None]
    if not measure.better or not known:
        return None
    return max(known, key=lambda each: _deviate_for_worse(measure, each))


def _best(measure: Measure, means: Sequence[float | None]) -> float | None:
    known = [mean for mean in means if mean is not None]
    if not measure.better:
        return None
    return max(known) if measure.better > 0 else min(known)


def flat_values(rows: Iterable[Figure]) -> dict[str, float]:
    """Return the last mean of each row, and its difference at the same level, for wandb."""
    values: dict[str, float] = {}
    for row in rows:
        if row.last is not None:
            values[f"figures/{row.measure}/last"] = row.last
        found = row.at_level["to_first"]
        if found is not None:
            values[f"figures/{row.measure}/to_first"] = found.value
    return values


class TaskFigures(NamedTuple):
    """A task's row: its figures, the worst first.

    Attributes:
        worst: of its figures, less what is due to the choice among the measures.
        beyond: whether noise alone ranks at most 2.5 % of the tasks so high.
        marked: whether a figure is.
    """

    task: str
    category: str
    figures: Sequence[Figure]
    worst: float
    beyond: bool
    marked: bool

    @classmethod
    def of(cls, task: str, category: str, figures: Sequence[Figure]) -> TaskFigures:
        """Return the row of a task with at least one figure, the worst of which comes first."""
        worst = corrected(figures[0].worst, len(MEASURES))
        return cls(
            task=task,
            category=category,
            figures=figures,
            worst=worst,
            beyond=worst > QUANTILE,
            marked=any(each.marked for each in figures),
        )

    def to_json(self) -> dict[str, Any]:
        figures = [each.to_json() for each in self.figures]
        return {**self._asdict(), "figures": figures}


class RunFigures:
    """The values of a run's groups, and the figures of all and of each task.

    Groups are ordered by number if all have one, and else as they came.
    """

    def __init__(self) -> None:
        self._rows = array("d")  # COLUMNS numbers a group
        self._is_numbered = True
        self._cells: dict[tuple[str, float | None], int] = {}
        self._categories: dict[str, str] = {}

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self._rows) // COLUMNS

    def add(self, group: StoredGroup, category: str) -> None:
        """Take in a group of a task of that category."""
        self._categories[group.task] = category
        pair = (group.task, group.recipe.level)
        cell = self._cells.setdefault(pair, len(self._cells))
        self._is_numbered = self._is_numbered and group.number > 0
        self._rows.extend((group.number, cell))
        for measure in MEASURES:
            value = measure.value(group)
            self._rows.append(math.nan if value is None else value)

    def all_figures(
        self, *, target: float | None = None, size: float = WORTH_A_LOOK
    ) -> list[Figure]:
        """Return a row for each measure over all groups, the worst first.

        Args:
            target: the solved share that a curriculum aims at.
            size: the least difference that is marked.
        """
        return _figures(
            self._ordered(), rows_shown=len(MARKED), size=size, target=target
        )

    def task_figures(self, *, size: float = WORTH_A_LOOK) -> list[TaskFigures]:
        """Return a row for each task, the worst first."""
        import numpy as np  # slow, not for help

        rows = self._ordered()
        numbers = {task: number for number, task in enumerate(self._categories)}
        task_of_cell = np.array([numbers[task] for task, _ in self._cells], dtype=int)
        tasks = task_of_cell[rows[:, CELL].astype(int)]
        rows_shown = len(MARKED) * len(numbers)
        task_rows = []
        for task, number in numbers.items():
            figures = _figures(rows[tasks == number], rows_shown=rows_shown, size=size)
            if figures:
                row = TaskFigures.of(task, self._categories[task], figures)
                task_rows.append(row)
        return sorted(task_rows, key=lambda row: -row.worst)

    def _ordered(self) -> Numbers:
        import numpy as np  # slow, not for help

        rows = np.array(self._rows).reshape(-1, COLUMNS)
        if not self._is_numbered:
            return rows
        return rows[rows[:, NUMBER].argsort(kind="stable")]


def _figures(
    rows: Numbers, *, rows_shown: int, size: float, target: float | None = None
) -> list[Figure]:
    """Return the figures of a series of groups, the worst first."""
    import numpy as np  # slow, not for help

    _, cells = np.unique(rows[:, CELL], return_inverse=True)
    columns = range(VALUES, COLUMNS)
    parts_of = [parts_of_series(rows[:, column], cells) for column in columns]
    figures = [
        figure(measure, parts, rows=rows_shown, size=size, target=target)
        for measure, parts in zip(MEASURES, parts_of, strict=True)
    ]
    known = [each for each in figures if each is not None]
    return sorted(known, key=lambda each: -each.worst)


def parts_of_series(values: Numbers, cells: Numbers) -> list[Sums]:
    """Return the sums of a measure over each part of a series of groups.

    Args:
        values: of the groups; NaN without one.
        cells: the number of each group's pair of task and level, from 0.
    """
    import numpy as np  # slow, not for help

    size = int(cells.max(initial=-1)) + 1
    sums = []
    for begin, end in pairwise(part_bounds(len(values))):
        part = values[begin:end]
        is_known = ~np.isnan(part)
        known = part[is_known]
        own_cells = cells[begin:end][is_known]

        def by_cell(weights: Numbers, own_cells: Numbers = own_cells) -> Numbers:
            return np.bincount(own_cells, weights=weights, minlength=size)

        sums.append(
            Sums(by_cell(np.ones(len(known))), by_cell(known), by_cell(known**2))
        )
    return sums


def part_bounds(groups: int) -> list[int]:
    """Return where the tenths or thirds of a series begin, and where it ends.

    Example:
        >>> part_bounds(9), part_bounds(109)[-3:]
        ([0, 3, 6, 9], [87, 98, 109])
    """
    parts = 10 if groups >= TENTHS_FROM else 3
    return [groups * part // parts for part in range(parts + 1)]
