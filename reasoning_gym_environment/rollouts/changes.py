"""Finds changes during a run: what begins to differ from what it was, where, and until when.

Each measure is a series over a run's groups: of all tasks, of each category, of each task. What
`change_points` finds for all is not told of a category or a task again. Groups are compared with
others of their task and level, so that neither the mix of tasks nor a level explains a change.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..storage.rows import StoredGroup
from ..util.values import group_by
from .change_points import Episode, episodes, least_sigmas, noise
from .change_texts import ToldChange, condition, means, tell
from .measures import (
    COLLAPSE,
    COLLAPSED,
    COLUMNS,
    LEVEL,
    MEASURES,
    NUMBER,
    SOLVED,
    Measure,
    PastProblems,
    measured,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[Any]

SAME_PLACE = 0.03
"""Changes begin together within this share of a series, or within two of its groups."""

LEAST_TASKS = 4
"""A change of several tasks needs groups of this many, or of all if there are fewer: groups in a
row may be of one failing task."""

SHOWN_BY_TASKS = 0.5
"""Of a change of several tasks, the median task must show at least this share."""


class _Scope(NamedTuple):
    """Tasks that may change together: one, those of a category, or all."""

    task: str | None
    category: str | None
    tasks: list[str]

    @property
    def name(self) -> str:
        return self.task or self.category or "all tasks"


class _ScopeChange(NamedTuple):
    """An episode of a measure, in numbers of groups.

    Attributes:
        place: of its first group among the `size` groups of its tasks.
    """

    measure: Measure
    episode: Episode
    since: int
    until: int | None
    place: int
    size: int
    summary: ToldChange


class DriftCheck:
    """Finds what changes for the worse in a run, and since which group.

    Args:
        keep: the last groups of each task that are compared.
    """

    def __init__(self, *, keep: int = 2**40) -> None:
        self._keep = keep
        self._added = 0
        # Unknown since a group was added.
        self._flags: list[dict[str, Any]] | None = None
        self._categories: dict[str, str] = {}
        self._rows: dict[str, array[float]] = {}  # COLUMNS numbers a group
        self._past: dict[str, PastProblems] = {}

    @property
    def groups(self) -> int:
        """The groups that were taken in."""
        return self._added

    def add(self, group: StoredGroup, category: str) -> None:
        """Take in a group of a task of that category."""
        self._added += 1
        self._flags = None
        self._categories[group.task] = category
        past = self._past.setdefault(group.task, PastProblems())
        row = measured(group, past, number=self._added)
        rows = self._rows.setdefault(group.task, array("d"))
        rows.extend(row)
        del rows[: -COLUMNS * self._keep]

    def flags(self) -> list[dict[str, Any]]:
        """Return each change, those that last and the clearest first.

        Each has its task or category (None for all), `kind`, `since`, `until` (None if it lasts),
        the numbers of its `measures`, the condition `where` that selects its rollouts, and a
        `text`.
        """
        if self._flags is None:
            self._flags = self.search()()
        return self._flags

    def search(self) -> Callable[[], list[dict[str, Any]]]:
        """Return what finds the changes of now, in another thread if you like.

        With a hundred tasks it takes 60 ms.
        """
        import numpy as np  # slow, not for help

        tables = {
            task: np.array(rows).reshape(-1, COLUMNS)
            for task, rows in self._rows.items()
            if rows
        }
        scopes = list(self._scopes(tables))
        return functools.partial(_find, tables, scopes)

    def _scopes(self, tasks: Iterable[str]) -> Iterator[_Scope]:
        """Yield what may change together, the widest first."""
        all_tasks = list(tasks)
        if len(all_tasks) > 1:
            yield _Scope(None, None, all_tasks)
        by_category = group_by(self._categories.__getitem__, all_tasks)
        for category, of_category in by_category.items():
            if 1 < len(of_category) < len(all_tasks):
                yield _Scope(None, category, of_category)
        for task in all_tasks:
            yield _Scope(task, None, [task])


def _find(tables: Mapping[str, Rows], scopes: Sequence[_Scope]) -> list[dict[str, Any]]:
    """Return the flags of all scopes, the widest of which come first; see `DriftCheck.flags`."""
    wider_changes: list[tuple[_ScopeChange, set[str]]] = []
    flags: list[tuple[tuple[bool, float], dict[str, Any]]] = []
    for scope in scopes:
        changes = [
            change
            for change in _changes(scope, tables, series=len(scopes) * len(MEASURES))
            if not any(_is_part(change, scope, *wider) for wider in wider_changes)
        ]
        wider_changes += [(change, set(scope.tasks)) for change in changes]
        for changes_of_flag in _together(changes):
            flags.append(_flag(scope, changes_of_flag))
    return [flag for _, flag in sorted(flags, key=lambda ranked: ranked[0])]


def _changes(
    scope: _Scope, tables: Mapping[str, Rows], *, series: int
) -> list[_ScopeChange]:
    """Return the changes of a scope's tasks, by measure; `series` are looked at in all."""
    import numpy as np  # slow, not for help

    rows_of = [tables[task] for task in scope.tasks]
    rows = np.concatenate(rows_of)
    order = rows[:, NUMBER].argsort(kind="stable")
    raw = rows[order]
    task_numbers = np.repeat(
        np.arange(len(rows_of)), [len(task_rows) for task_rows in rows_of]
    )
    tasks = task_numbers[order]
    changes: list[_ScopeChange] = []
    for measure in MEASURES:
        is_known = ~np.isnan(raw[:, measure.column])
        known_rows = raw[is_known]
        values = measure.sign * _centered(known_rows, tasks[is_known], measure)
        for episode in episodes(
            values,
            least_rise=measure.least_rise,
            deviation=noise(values, measure.least_deviation),
            sigmas=least_sigmas(series, len(values)),
        ):
            if not _is_shown(measure, known_rows, values, tasks[is_known], episode):
                continue
            end = len(known_rows) if episode.end is None else episode.end
            change = _ScopeChange(
                measure=measure,
                episode=episode,
                since=int(known_rows[episode.begin, NUMBER]),
                until=None if episode.end is None else int(known_rows[end - 1, NUMBER]),
                place=int(np.flatnonzero(is_known)[episode.begin]),
                size=len(raw),
                summary=tell(measure, known_rows, episode),
            )
            # A collapse is told once.
            if not any(_is_same(change, earlier) for earlier in changes):
                changes.append(change)
    return changes


def _centered(rows: Rows, tasks: Rows, measure: Measure) -> Rows:
    """Return a column less its mean over the groups of the same task and, perhaps, level."""
    import numpy as np  # slow, not for help

    keys = tasks * 1000.0 + (rows[:, LEVEL] if measure.by_level else 0.0)
    _, cells = np.unique(keys, return_inverse=True)
    values = rows[:, measure.column]
    sums = np.bincount(cells, weights=values)
    means = sums / np.bincount(cells)
    centered: Rows = values - means[cells]
    return centered


def _shown_by_most(values: Rows, tasks: Rows, episode: Episode) -> bool:
    """Return whether several tasks have groups on both sides, and their median half of a change."""
    import numpy as np  # slow, not for help

    rise = episode.within - episode.before
    rises = []
    for task in np.unique(tasks):
        of_task = tasks == task
        before = values[: episode.begin][of_task[: episode.begin]]
        within = values[episode.begin : episode.end][
            of_task[episode.begin : episode.end]
        ]
        if len(before) and len(within):
            rises.append(float(within.mean() - before.mean()))
    least = min(LEAST_TASKS, len(np.unique(tasks)))
    return len(rises) >= least and float(np.median(rises)) >= SHOWN_BY_TASKS * rise


def _is_shown(
    measure: Measure, rows: Rows, values: Rows, tasks: Rows, episode: Episode
) -> bool:
    """Return whether the groups themselves, and most of several tasks, show a change."""
    old, new = means(rows, episode)
    rise = measure.sign * (new[measure.column] - old[measure.column])
    if rise < measure.least_rise / 2:
        return False  # only a change of levels makes it one
    if measure is COLLAPSE and new[SOLVED] > COLLAPSED:
        return False
    has_several_tasks = bool((tasks != tasks[0]).any())
    return not has_several_tasks or _shown_by_most(values, tasks, episode)


def _is_same(change: _ScopeChange, earlier: _ScopeChange) -> bool:
    """Return whether two changes of a kind overlap."""
    if change.measure.kind != earlier.measure.kind:
        return False
    begins_in_it = earlier.until is None or change.since <= earlier.until
    ends_after_its_begin = change.until is None or change.until >= earlier.since
    return begins_in_it and ends_after_its_begin


def _is_part(
    change: _ScopeChange, scope: _Scope, wider: _ScopeChange, tasks: set[str]
) -> bool:
    """Return whether a change is that of a wider scope, seen in one of its parts."""
    return tasks >= {*scope.tasks} and _is_same(change, wider)


def _together(changes: Sequence[_ScopeChange]) -> Iterator[list[_ScopeChange]]:
    """Yield changes that begin at the same place, which one sentence names."""
    remaining = list(changes)
    while remaining:
        leading = remaining[0]
        reach = max(2.0, SAME_PLACE * leading.size)
        changes_together = [
            change
            for change in remaining
            if abs(change.place - leading.place) <= reach
            and (change.until is None) == (leading.until is None)
        ]
        remaining = [change for change in remaining if change not in changes_together]
        yield changes_together


def _flag(
    scope: _Scope, together: Sequence[_ScopeChange]
) -> tuple[tuple[bool, float], dict[str, Any]]:
    """Return the rank of changes that begin together, and their flag."""
    leading = together[0]
    clearest = max(change.episode.sigmas for change in together)
    span = f"since group {leading.since}"
    if leading.until is not None:
        span = f"from group {leading.since} to {leading.until}, over since then"
    texts = "; ".join(change.summary.text for change in together)
    rank = (leading.until is not None, -clearest)
    return rank, {
        "task": scope.task,
        "category": scope.category,
        "kind": leading.measure.kind,
        "kinds": [change.measure.kind for change in together],
        "measures": [change.summary._asdict() for change in together],
        "since": leading.since,
        "until": leading.until,
        "text": f"{scope.name}: {texts}, {span}",
        "where": condition(
            task=scope.task,
            category=scope.category,
            kind=leading.measure.kind,
            since=leading.since,
            until=leading.until,
        ),
    }
