"""Finds changes during a run: where a share or a length begins to differ from what it was."""

from __future__ import annotations

import math
from array import array
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..records import recipe_key
from ..storage.rows import StoredGroup
from ..util.values import group_by

if TYPE_CHECKING:
    from numpy.typing import NDArray
from .answer_check import NEARLY_ALL


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
        self._flags: list[dict[str, Any]] | None = None  # unknown since a group was added
        self._categories: dict[str, str] = {}
        self._rows: dict[str, array[float]] = {}  # six numbers a group, see `_changes`
        self._past: dict[str, deque[tuple[str, Counter[int], int]]] = {}

    def add(self, group: StoredGroup, category: str) -> None:
        """Take in a group of a task of that category."""
        self._added = self._added + 1
        self._flags = None
        given = [rollout for rollout in group.rollouts if rollout.tokens]
        if not given:
            return
        self._categories[group.task] = category
        rows = self._rows.setdefault(group.task, array("d"))
        past = self._past.setdefault(group.task, deque(maxlen=4))
        right = group.oracle or recipe_key(group.recipe)
        answers = Counter(hash(rollout.answer) for rollout in given if rollout.answer)
        pairs = [  # of an answer and one to a problem with another right answer: equal, all
            (sum(n * theirs[answer] for answer, n in answers.items()), len(given) * size)
            for their_right, theirs, size in past
            if their_right != right
        ]
        repeats = fmean(same / of for same, of in pairs) if pairs else rows[-2] if rows else 0.0
        past.append((right, answers, len(given)))
        if len(past) > 1:
            truncated = fmean(rollout.truncated for rollout in given)
            shortness = -fmean(math.log(max(1, rollout.completion_tokens)) for rollout in given)
            means = (truncated, shortness, repeats, fmean(rollout.score for rollout in given))
            rows.extend((group.number or self._added, group.recipe.level or 0.0, *means))
            del rows[: -6 * self._keep]

    def flags(self) -> list[dict[str, Any]]:
        """Return each change: its task or category (None for all), kind, first group and text."""
        self._flags = list(self._find()) if self._flags is None else self._flags
        return self._flags

    def _find(self) -> Iterator[dict[str, Any]]:
        import numpy as np  # slow, not for help

        own = {task: np.array(rows).reshape(-1, 6) for task, rows in self._rows.items() if rows}
        scopes: list[tuple[str | None, str | None, list[str]]] = [(None, None, [*own])]
        by_category = group_by(self._categories.__getitem__, own)
        scopes += [(None, category, tasks) for category, tasks in by_category.items()]
        scopes = [scope for scope in scopes if len(scope[2]) > 1]
        scopes += [(name, None, [name]) for name in own]
        found: set[tuple[str, str]] = set()  # kind and task
        for task, category, tasks in scopes:
            for kind, since, text in _changes([own[each] for each in tasks]):
                if found.isdisjoint((kind, each) for each in tasks):  # no wider scope has changed
                    found.update((kind, each) for each in tasks)
                    about = {
                        "task": task,
                        "category": category,
                        "kind": kind,
                        "since": since,
                    }
                    yield {**about, "text": f"{task or category or 'all tasks'}: {text}"}


def _changes(tasks: Sequence[NDArray[Any]]) -> Iterator[tuple[str, int, str]]:
    """Yield kind, first group and description of each change that all of some tasks show.

    A task's row is a group's number, level, share of truncated completions, minus the mean
    logarithm of tokens, how often answers to two problems with different right answers are the
    same, and mean reward.
    """
    import numpy as np  # slow, not for help

    order = np.concatenate([rows[:, 0] for rows in tasks]).argsort(kind="stable")
    raw = np.concatenate(tasks)[order]
    rows = np.concatenate([rows - rows.mean(axis=0) for rows in tasks])[order]  # the mix may change
    at = np.arange(3, len(rows) - 2)  # the first group after a possible change
    low = np.maximum(0, at - 24)
    high = np.minimum(len(rows), at + 24)
    left = (at - low)[:, None]
    right = (high - at)[:, None]
    sums, squares = (np.vstack([rows[:1] * 0, each.cumsum(axis=0)]) for each in (rows, rows**2))
    before = (sums[at] - sums[low]) / left
    after = (sums[high] - sums[at]) / right
    recent = np.maximum(at, len(rows) - 24)
    lasting = (sums[-1] - sums[recent]) / (len(rows) - recent)[:, None] - before
    spread = squares[high] - squares[low] - left * before**2 - right * after**2
    spread = np.sqrt(np.maximum(spread, 0.0) / (left + right - 2))
    spread = np.maximum(spread, [1.0, 0.5, 0.15, 0.3, 0.15, 0.15])  # a few groups may be equal
    rise = after - before
    weight = np.sqrt(left * right / (left + right))
    sigmas = rise * weight / spread
    level = rise[:, 1]
    rewarded = (rise[:, 5] > 0.1) & (sigmas[:, 5] > 3)
    for kind, of, least, beyond, groups, possible in (
        ("truncated", 2, 0.3, 7, 5, level < 0.5),  # a higher level explains it
        ("shorter", 3, math.log(2), 6, 3, rewarded & (level > -0.5)),
        ("repeats", 4, 0.4, 10, 6, abs(level) < 0.5),
    ):
        fits = possible & (rise[:, of] >= least) & (sigmas[:, of] >= beyond)
        fits &= (lasting[:, of] >= rise[:, of] / 2) & (np.minimum(left, right)[:, 0] >= groups)
        if not fits.any():
            continue
        place = np.argmax(fits * rise[:, of] * weight[:, 0])
        since = int(raw[at[place], 0])
        halves = [(own[own[:, 0] < since, of], own[own[:, 0] >= since, of]) for own in tasks]
        rises = [b.mean() - a.mean() >= least / 2 for a, b in halves if len(a) and len(b)]
        if 2 * len(rises) > len(tasks) and sum(rises) >= NEARLY_ALL * len(rises):
            old = raw[low[place] : at[place]]
            new = raw[at[place] : high[place]]
            text = _describe(kind, old.mean(axis=0).tolist(), new.mean(axis=0).tolist())
            yield kind, since, f"{text[0]} since group {since}, {text[1]}"


def _describe(kind: str, old: Sequence[float], new: Sequence[float]) -> tuple[str, str]:
    """Return what is so since a change, and what was before, from mean rows."""
    if kind == "truncated":
        return f"{new[2]:.0%} of completions are truncated", f"{old[2]:.0%} before"
    if kind == "repeats":
        return f"{new[4]:.0%} of answers repeat another problem's", f"{old[4]:.0%} before"
    reward = f"while the mean reward rises from {old[5]:.2f} to {new[5]:.2f}"
    tokens = [math.exp(-each[3]) for each in (new, old)]
    return f"completions have {tokens[0]:.0f} tokens", f"{tokens[1]:.0f} before, {reward}"
