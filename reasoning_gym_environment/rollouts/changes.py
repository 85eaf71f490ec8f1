"""Finds changes during a run: where a share or a length begins to differ from what it was."""

from __future__ import annotations

import math
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from ..records import recipe_key
from ..storage.rows import StoredGroup
from ..util.values import group_by
from .answer_check import NEARLY_ALL

if TYPE_CHECKING:
    from numpy.typing import NDArray

NUMBER, LEVEL, TRUNCATED, SHORTNESS, REPEATS, REWARD = range(6)
"""Columns of a task's rows: a group's number and level, its share of truncated completions, minus
the mean logarithm of their tokens, how often answers to two problems with different right answers
are the same, and the mean reward."""

COLUMNS = 6

COMPARED_PROBLEMS = 4
"""Earlier problems to whose answers those of a group are compared."""

WINDOW = 24
"""Groups before and after a possible change whose means are compared."""

FIRST_PLACE = 3
LAST_GROUPS = 2
"""Groups at the beginning and at the end where no change is looked for."""

LEAST_SPREAD = (1.0, 0.5, 0.15, 0.3, 0.15, 0.15)
"""Least standard deviation of each column: a few groups may be equal by chance."""

LEVEL_STEP = 0.5
"""A mean level that moves by less is the same."""

LEAST_REWARD_RISE = 0.1
LEAST_REWARD_SIGMAS = 3


class _Test(NamedTuple):
    """A kind of change, and from when on it is one: by size, standard errors and groups.

    The figures were chosen on recorded and invented runs (`tests/report/test_changes.py`).
    """

    kind: str
    column: int
    least_rise: float
    least_sigmas: float
    least_groups: int


TRUNCATED_TEST = _Test("truncated", TRUNCATED, 0.3, 7, 5)
SHORTER_TEST = _Test("shorter", SHORTNESS, math.log(2), 6, 3)
REPEATS_TEST = _Test("repeats", REPEATS, 0.4, 10, 6)


class _Scope(NamedTuple):
    """Tasks that may change together: one, those of a category, or all."""

    task: str | None
    category: str | None
    tasks: list[str]


class DriftCheck:
    """Finds tasks whose completions change for the worse, and since which group.

    They become `truncated`, or `shorter` while the reward rises, or the answer to one problem
    `repeats` as the answer to another. A category is named where all of its tasks change, and the
    whole run where all tasks do.

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
        self._past: dict[str, deque[tuple[str, Counter[int], int]]] = {}

    def add(self, group: StoredGroup, category: str) -> None:
        """Take in a group of a task of that category."""
        self._added += 1
        self._flags = None
        completed = [rollout for rollout in group.rollouts if rollout.tokens]
        if not completed:
            return
        self._categories[group.task] = category
        rows = self._rows.setdefault(group.task, array("d"))
        past = self._past.setdefault(group.task, deque(maxlen=COMPARED_PROBLEMS))
        oracle = group.oracle or recipe_key(group.recipe)
        answers = Counter(
            hash(rollout.answer) for rollout in completed if rollout.answer
        )
        repeats = _repeated_share(oracle, answers, len(completed), past)
        # All problems had the same right answer: nothing has changed.
        if repeats is None:
            repeats = rows[REPEATS - COLUMNS] if rows else 0.0
        past.append((oracle, answers, len(completed)))
        if len(past) == 1:
            return
        rows.append(group.number or self._added)
        rows.append(group.recipe.level or 0.0)
        rows.append(fmean(rollout.truncated for rollout in completed))
        rows.append(-fmean(math.log(max(1, r.completion_tokens)) for r in completed))
        rows.append(repeats)
        rows.append(fmean(rollout.score for rollout in completed))
        del rows[: -COLUMNS * self._keep]

    def flags(self) -> list[dict[str, Any]]:
        """Return each change: its task or category (None for all), kind, first group and text."""
        if self._flags is None:
            self._flags = list(self._find())
        return self._flags

    def _find(self) -> Iterator[dict[str, Any]]:
        import numpy as np  # slow, not for help

        tables = {
            task: np.array(rows).reshape(-1, COLUMNS)
            for task, rows in self._rows.items()
            if rows
        }
        named: set[tuple[str, str]] = set()  # kind and task
        for scope in self._scopes(tables):
            for kind, since, text in _changes([tables[task] for task in scope.tasks]):
                changed = {(kind, task) for task in scope.tasks}
                if not named.isdisjoint(changed):
                    continue  # a wider scope has this change
                named |= changed
                yield {
                    "task": scope.task,
                    "category": scope.category,
                    "kind": kind,
                    "since": since,
                    "text": f"{scope.task or scope.category or 'all tasks'}: {text}",
                }

    def _scopes(self, tasks: Iterable[str]) -> Iterator[_Scope]:
        """Yield what may change together, the widest first."""
        everything = list(tasks)
        if len(everything) > 1:
            yield _Scope(None, None, everything)
        by_category = group_by(self._categories.__getitem__, everything)
        for category, of_category in by_category.items():
            if len(of_category) > 1:
                yield _Scope(None, category, of_category)
        for task in everything:
            yield _Scope(task, None, [task])


def _repeated_share(
    oracle: str,
    answers: Counter[int],
    size: int,
    past: Iterable[tuple[str, Counter[int], int]],
) -> float | None:
    """Return how often an answer equals one to an earlier problem with another right answer.

    None if there is no such problem.
    """
    shares = []
    for past_oracle, past_answers, past_size in past:
        if past_oracle != oracle:
            equal_pairs = sum(n * past_answers[answer] for answer, n in answers.items())
            shares.append(equal_pairs / (size * past_size))
    return fmean(shares) if shares else None


def _changes(tasks: Sequence[NDArray[Any]]) -> Iterator[tuple[str, int, str]]:
    """Yield kind, first group and description of each change that all of some tasks show.

    A task's row has the COLUMNS above.
    """
    import numpy as np  # slow, not for help

    order = np.concatenate([rows[:, NUMBER] for rows in tasks]).argsort(kind="stable")
    raw = np.concatenate(tasks)[order]
    # Each task is compared with its own mean, since the mix of tasks may change.
    centered = np.concatenate([rows - rows.mean(axis=0) for rows in tasks])[order]
    windows = _Windows.of(centered)
    if not len(windows.places):
        return
    level = windows.rise[:, LEVEL]
    rewarded = (windows.rise[:, REWARD] > LEAST_REWARD_RISE) & (
        windows.sigmas[:, REWARD] > LEAST_REWARD_SIGMAS
    )
    for test, possible in (
        (TRUNCATED_TEST, level < LEVEL_STEP),  # a higher level explains it
        (SHORTER_TEST, rewarded & (level > -LEVEL_STEP)),
        (REPEATS_TEST, abs(level) < LEVEL_STEP),
    ):
        place = windows.clearest(test, possible)
        if place is None:
            continue
        since = int(raw[windows.places[place], NUMBER])
        if _most_changed(tasks, test, since):
            old = raw[windows.low[place] : windows.places[place]].mean(axis=0).tolist()
            new = raw[windows.places[place] : windows.high[place]].mean(axis=0).tolist()
            now, before = _describe(test.kind, old, new)
            yield test.kind, since, f"{now} since group {since}, {before}"


class _Windows(NamedTuple):
    """The WINDOW groups before and after each place where something may have changed.

    Attributes:
        places: the first group after each possible change.
        low, high: where the windows begin and end.
        smaller: groups in the smaller of the two windows.
        rise: of the mean from one window to the other, by place and column.
        lasting: the same rise to the last groups of all.
        weight: grows with the groups in both windows.
        sigmas: `rise` in standard errors.
    """

    places: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]
    smaller: NDArray[Any]
    rise: NDArray[Any]
    lasting: NDArray[Any]
    weight: NDArray[Any]
    sigmas: NDArray[Any]

    @classmethod
    def of(cls, rows: NDArray[Any]) -> _Windows:
        import numpy as np  # slow, not for help

        places = np.arange(FIRST_PLACE, len(rows) - LAST_GROUPS)
        low = np.maximum(0, places - WINDOW)
        high = np.minimum(len(rows), places + WINDOW)
        left = (places - low)[:, None]
        right = (high - places)[:, None]
        # With sums from the beginning, those of each window are one difference.
        nothing = rows[:1] * 0
        sums = np.vstack([nothing, rows.cumsum(axis=0)])
        squares = np.vstack([nothing, (rows**2).cumsum(axis=0)])
        before = (sums[places] - sums[low]) / left
        after = (sums[high] - sums[places]) / right
        recent = np.maximum(places, len(rows) - WINDOW)
        last = (sums[-1] - sums[recent]) / (len(rows) - recent)[:, None]
        deviations = squares[high] - squares[low] - left * before**2 - right * after**2
        spread = np.sqrt(np.maximum(deviations, 0.0) / (left + right - 2))
        spread = np.maximum(spread, LEAST_SPREAD)
        weight = np.sqrt(left * right / (left + right))
        rise = after - before
        return cls(
            places=places,
            low=low,
            high=high,
            smaller=np.minimum(left, right)[:, 0],
            rise=rise,
            lasting=last - before,
            weight=weight[:, 0],
            sigmas=rise * weight / spread,
        )

    def clearest(self, test: _Test, possible: NDArray[Any]) -> int | None:
        """Return the place of the clearest change of a kind; None if there is none."""
        import numpy as np  # slow, not for help

        rise = self.rise[:, test.column]
        fits = possible & (rise >= test.least_rise)
        fits &= self.sigmas[:, test.column] >= test.least_sigmas
        fits &= self.lasting[:, test.column] >= rise / 2
        fits &= self.smaller >= test.least_groups
        if not fits.any():
            return None
        return int(np.argmax(fits * rise * self.weight))


def _most_changed(tasks: Sequence[NDArray[Any]], test: _Test, since: int) -> bool:
    """Return whether nearly all tasks changed at a group, of those with groups on both sides."""
    changed = 0
    compared = 0
    for rows in tasks:
        before = rows[rows[:, NUMBER] < since, test.column]
        after = rows[rows[:, NUMBER] >= since, test.column]
        if len(before) and len(after):
            compared += 1
            if after.mean() - before.mean() >= test.least_rise / 2:
                changed += 1
    return 2 * compared > len(tasks) and changed >= NEARLY_ALL * compared


def _describe(kind: str, old: Sequence[float], new: Sequence[float]) -> tuple[str, str]:
    """Return what is so since a change, and what was before, from mean rows."""
    if kind == "truncated":
        now = f"{new[TRUNCATED]:.0%} of completions are truncated"
        return now, f"{old[TRUNCATED]:.0%} before"
    if kind == "repeats":
        now = f"{new[REPEATS]:.0%} of answers repeat another problem's"
        return now, f"{old[REPEATS]:.0%} before"
    reward = f"while the mean reward rises from {old[REWARD]:.2f} to {new[REWARD]:.2f}"
    new_tokens = math.exp(-new[SHORTNESS])
    old_tokens = math.exp(-old[SHORTNESS])
    return (
        f"completions have {new_tokens:.0f} tokens",
        f"{old_tokens:.0f} before, {reward}",
    )
