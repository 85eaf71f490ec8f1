"""Compares two evaluations, paired by item."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from ..storage.rows import StoredGroup, StoredRollout
from ..util.grouping import group_by
from .estimators import (
    Estimate,
    discoveries,
    macro_difference,
    mean_difference,
    sign_flip_p,
)


class Pair(NamedTuple):
    """One item's mean over the scored attempts of each evaluation."""

    task: str
    before: float
    after: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """How a mean moved from one evaluation to the other, over the items in both.

    Attributes:
        difference: `after - before`, with its interval.
        beyond_noise: whether it stands out among all tasks; None where that isn't asked.
    """

    items: int
    before: float
    after: float
    difference: Estimate
    p_value: float | None = None
    beyond_noise: bool | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "difference": self.difference._asdict()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The solved shares of two evaluations, paired.

    Attributes:
        by_items, by_tasks: overall, with each item or each task of the same weight.
        score: the mean score, by items.
        only_before, only_after: items that the other one lacks; they are left out.
        unscored: items in both, without a scored attempt in one; they are left out.
    """

    by_items: Change
    by_tasks: Change
    score: Change
    tasks: Mapping[str, Change]
    only_before: int
    only_after: int
    unscored: int

    def to_json(self) -> dict[str, Any]:
        changes = {
            name: getattr(self, name).to_json() for name in ("by_items", "by_tasks", "score")
        }
        counts = {n: getattr(self, n) for n in ("only_before", "only_after", "unscored")}
        return {**changes, **counts, "tasks": {t: c.to_json() for t, c in self.tasks.items()}}


def compare(before: Iterable[StoredGroup], after: Iterable[StoredGroup]) -> Comparison | None:
    """Pair two evaluations; None when no item is scored in both.

    A task changed beyond noise when its randomisation test stands out among those of all tasks
    at a false discovery rate of 5 %. Its interval is its own: 95 %, without regard to the others.
    """
    one, other = ({sample.item_key: sample for sample in samples} for samples in (before, after))
    common = [(one[key], other[key]) for key in one if key in other]
    scored = [(a, b) for a, b in common if a.scored and b.scored]
    if not scored:
        return None
    solved = [_pair(a, b, lambda rollout: float(rollout.solved)) for a, b in scored]
    scores = [_pair(a, b, lambda rollout: rollout.raw_score or 0.0) for a, b in scored]
    tasks = dict(sorted(group_by(lambda pair: pair.task, solved).items()))
    return Comparison(
        by_items=_by_items(solved),
        by_tasks=_by_tasks(tasks.values()),
        score=_by_items(scores),
        tasks=_of_each_task(tasks),
        only_before=len(one) - len(common),
        only_after=len(other) - len(common),
        unscored=len(common) - len(scored),
    )


def _pair(before: StoredGroup, after: StoredGroup, value: Callable[[StoredRollout], float]) -> Pair:
    return Pair(
        task=before.task,
        before=_mean([value(rollout) for rollout in before.scored]),
        after=_mean([value(rollout) for rollout in after.scored]),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _differences(pairs: Iterable[Pair]) -> list[float]:
    return [pair.after - pair.before for pair in pairs]


def _by_items(pairs: Sequence[Pair]) -> Change:
    return Change(
        items=len(pairs),
        before=_mean([pair.before for pair in pairs]),
        after=_mean([pair.after for pair in pairs]),
        difference=mean_difference(_differences(pairs)),
    )


def _by_tasks(tasks: Collection[Sequence[Pair]]) -> Change:
    changes = [_by_items(pairs) for pairs in tasks]
    return Change(
        items=sum(change.items for change in changes),
        before=_mean([change.before for change in changes]),
        after=_mean([change.after for change in changes]),
        difference=macro_difference([_differences(pairs) for pairs in tasks]),
    )


def _of_each_task(tasks: Mapping[str, Sequence[Pair]]) -> dict[str, Change]:
    p_values = {task: sign_flip_p(_differences(pairs)) for task, pairs in tasks.items()}
    found = discoveries(p_values)
    return {
        task: replace(_by_items(pairs), p_value=p_values[task], beyond_noise=task in found)
        for task, pairs in tasks.items()
    }
