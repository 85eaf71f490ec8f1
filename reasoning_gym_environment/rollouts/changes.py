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


class _Found(NamedTuple):
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
    told: ToldChange


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
        everything = list(tasks)
        if len(everything) > 1:
            yield _Scope(None, None, everything)
        by_category = group_by(self._categories.__getitem__, everything)
        for category, of_category in by_category.items():
            if 1 < len(of_category) < len(everything):
                yield _Scope(None, category, of_category)
        for task in everything:
            yield _Scope(task, None, [task])


def _find(tables: Mapping[str, Rows], scopes: Sequence[_Scope]) -> list[dict[str, Any]]:
    """Return the flags of all scopes, the widest of which come first; see `DriftCheck.flags`."""
    told: list[tuple[_Found, set[str]]] = []
    flags: list[tuple[tuple[bool, float], dict[str, Any]]] = []
    for scope in scopes:
        changes = [
            found
            for found in _changes(scope, tables, series=len(scopes) * len(MEASURES))
            if not any(_is_part(found, scope, *wider) for wider in told)
        ]
        told += [(found, set(scope.tasks)) for found in changes]
        for together in _together(changes):
            flags.append(_flag(scope, together))
    return [flag for _, flag in sorted(flags, key=lambda ranked: ranked[0])]


def _changes(scope: _Scope, tables: Mapping[str, Rows], *, series: int) -> list[_Found]:
    """Return the changes of a scope's tasks, by measure; `series` are looked at in all."""
    import numpy as np  # slow, not for help

    rows_of = [tables[task] for task in scope.tasks]
    rows = np.concatenate(rows_of)
    order = rows[:, NUMBER].argsort(kind="stable")
    raw = rows[order]
    task_numbers = np.repeat(np.arange(len(rows_of)), [len(own) for own in rows_of])
    tasks = task_numbers[order]
    found: list[_Found] = []
    for measure in MEASURES:
        known = ~np.isnan(raw[:, measure.column])
        shown = raw[known]
        values = measure.sign * _centered(shown, tasks[known], measure)
        for episode in episodes(
            values,
            least_rise=measure.least_rise,
            deviation=noise(values, measure.least_deviation),
            sigmas=least_sigmas(series, len(values)),
        ):
            if not _is_shown(measure, shown, values, tasks[known], episode):
                continue
            end = len(shown) if episode.end is None else episode.end
            change = _Found(
                measure=measure,
                episode=episode,
                since=int(shown[episode.begin, NUMBER]),
                until=None if episode.end is None else int(shown[end - 1, NUMBER]),
                place=int(np.flatnonzero(known)[episode.begin]),
                size=len(raw),
                told=tell(measure, shown, episode),
            )
            # A collapse is told once.
            if not any(_is_same(change, other) for other in found):
                found.append(change)
    return found


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
        own = tasks == task
        before = values[: episode.begin][own[: episode.begin]]
        within = values[episode.begin : episode.end][own[episode.begin : episode.end]]
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
    several = bool((tasks != tasks[0]).any())
    return not several or _shown_by_most(values, tasks, episode)


def _is_same(change: _Found, other: _Found) -> bool:
    """Return whether two changes of a kind overlap."""
    if change.measure.kind != other.measure.kind:
        return False
    begins_in_it = other.until is None or change.since <= other.until
    ends_after_its_begin = change.until is None or change.until >= other.since
    return begins_in_it and ends_after_its_begin


def _is_part(found: _Found, scope: _Scope, wider: _Found, tasks: set[str]) -> bool:
    """Return whether a change is that of a wider scope, seen in one of its parts."""
    return tasks >= {*scope.tasks} and _is_same(found, wider)


def _together(changes: Sequence[_Found]) -> Iterator[list[_Found]]:
    """Yield changes that begin at the same place, which one sentence names."""
    left = list(changes)
    while left:
        first = left[0]
        reach = max(2.0, SAME_PLACE * first.size)
        group = [
            found
            for found in left
            if abs(found.place - first.place) <= reach
            and (found.until is None) == (first.until is None)
        ]
        left = [found for found in left if found not in group]
        yield group


def _flag(
    scope: _Scope, together: Sequence[_Found]
) -> tuple[tuple[bool, float], dict[str, Any]]:
    """Return the rank of changes that begin together, and their flag."""
    first = together[0]
    clearest = max(found.episode.sigmas for found in together)
    span = f"since group {first.since}"
    if first.until is not None:
        span = f"from group {first.since} to {first.until}, over since then"
    texts = "; ".join(found.told.text for found in together)
    rank = (first.until is not None, -clearest)
    return rank, {
        "task": scope.task,
        "category": scope.category,
        "kind": first.measure.kind,
        "kinds": [found.measure.kind for found in together],
        "measures": [found.told._asdict() for found in together],
        "since": first.since,
        "until": first.until,
        "text": f"{scope.name}: {texts}, {span}",
        "where": condition(
            task=scope.task,
            category=scope.category,
            kind=first.measure.kind,
            since=first.since,
            until=first.until,
        ),
    }
