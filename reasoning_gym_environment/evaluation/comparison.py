"""Comparison of two evaluations, paired by item."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from ..storage.rows import StoredGroup
from ..util.values import group_by, table
from .estimators import (
    Estimate,
    discoveries,
    mean_difference,
    sign_flip_p,
)
from .metrics import Coverage
from .tables import MAX_TASKS

Key = TypeVar("Key")

MIN_ITEMS = 6
"""Items of a task that a test at 5 % needs: of 5, 2 of 32 patterns of signs are as extreme."""

Pair = tuple[float, float]
"""One item's means over the scored attempts of the evaluation before and of the one after."""


class Item(NamedTuple):
    """What an evaluation says of an item: means over its scored attempts, at least one.

    Items of a task with equal `question` ask the same and count as one.
    """

    task: str
    question: Hashable
    solved: float
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """The change of a mean between two evaluations, over the items in both.

    Attributes:
        items: number of different questions.
        difference: `after - before`, with its interval.
        beyond_noise: whether the change is significant among all tasks; None if not tested.
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
        by_items, by_tasks: overall, with equal weights of items or of tasks.
        score: the mean score, by items.
        only_before, only_after: number of items that the other evaluation lacks.
        unscored: number of items in both without a scored attempt in one.
        coverage: of each evaluation, "before" and "after", where it is known.
    """

    by_items: Change
    by_tasks: Change
    score: Change
    tasks: Mapping[str, Change]
    only_before: int
    only_after: int
    unscored: int
    coverage: Mapping[str, Coverage] = field(default_factory=dict)

    @property
    def is_tested(self) -> bool:
        """Whether any task has enough items for a test."""
        return any(change.items >= MIN_ITEMS for change in self.tasks.values())

    @property
    def verdict(self) -> str:
        """How many tasks changed beyond noise, in words."""
        if not self.is_tested:
            return f"too few items per task for a test (at least {MIN_ITEMS})"
        beyond = sum(bool(change.beyond_noise) for change in self.tasks.values())
        return f"{beyond} of {len(self.tasks)} tasks changed beyond noise (solved)"

    @property
    def excluded(self) -> str:
        """How many items are in one alone, or unscored, in words."""
        return (
            f"Excluded: {self.only_before} items only before, {self.only_after} only "
            f"after, {self.unscored} unscored in one."
        )

    def to_json(self) -> dict[str, Any]:
        coverage = {name: counts._asdict() for name, counts in self.coverage.items()}
        tasks = {task: change.to_json() for task, change in self.tasks.items()}
        return {
            "by_items": self.by_items.to_json(),
            "by_tasks": self.by_tasks.to_json(),
            "score": self.score.to_json(),
            "only_before": self.only_before,
            "only_after": self.only_after,
            "unscored": self.unscored,
            "coverage": coverage,
            "tasks": tasks,
        }


def compare(
    before: Iterable[StoredGroup], after: Iterable[StoredGroup]
) -> Comparison | None:
    """Pair two evaluations; None when no item is scored in both.

    A task changed beyond noise if its randomization test is significant at a false discovery rate
    of 5 % over all tasks. Its 95 % interval is not corrected for the other tasks.
    """
    one = {sample.item_key: sample for sample in before}
    other = {sample.item_key: sample for sample in after}
    comparison = compare_items(
        {key: _item(sample) for key, sample in one.items()},
        {key: _item(sample) for key, sample in other.items()},
    )
    if comparison is None:
        return None
    coverage = {
        "before": Coverage.of(one.values()),
        "after": Coverage.of(other.values()),
    }
    return replace(comparison, coverage=coverage)


def _item(sample: StoredGroup) -> Item | None:
    """Return the means of a sample; None without a scored attempt."""
    scored = sample.scored
    if not scored:
        return None
    return Item(
        task=sample.task,
        question=sample.question,
        solved=fmean(float(rollout.solved) for rollout in scored),
        score=fmean(rollout.raw_score or 0.0 for rollout in scored),
    )


def compare_items(
    before: Mapping[Key, Item | None], after: Mapping[Key, Item | None]
) -> Comparison | None:
    """Pair the items of two evaluations by key; see `compare`. An item of None is unscored."""
    common = [(before[key], after[key]) for key in before if key in after]
    scored_items = [(one, other) for one, other in common if one and other]
    if not scored_items:
        return None
    scored = _once(scored_items)
    by_task = group_by(lambda pair: pair[0].task, scored)
    tasks = {task: _solved(own) for task, own in sorted(by_task.items())}
    differences = {task: _differences(pairs) for task, pairs in tasks.items()}
    changes = {task: _by_items(pairs) for task, pairs in tasks.items()}
    p_values = {task: sign_flip_p(own) for task, own in differences.items()}
    changed_tasks = discoveries(p_values)
    return Comparison(
        by_items=_by_items(_solved(scored)),
        by_tasks=Change(
            items=len(scored),
            before=fmean(change.before for change in changes.values()),
            after=fmean(change.after for change in changes.values()),
            difference=mean_difference(*differences.values()),
        ),
        score=_by_items([(one.score, other.score) for one, other in scored]),
        tasks={
            task: replace(
                change, p_value=p_values[task], beyond_noise=task in changed_tasks
            )
            for task, change in changes.items()
        },
        only_before=len(before) - len(common),
        only_after=len(after) - len(common),
        unscored=len(common) - len(scored_items),
    )


def _once(pairs: Iterable[tuple[Item, Item]]) -> list[tuple[Item, Item]]:
    """Return one pair for each question, with the means of the pairs that ask it."""
    by_question = group_by(lambda pair: (pair[0].task, pair[0].question), pairs)
    return [
        (_mean([one for one, _ in own]), _mean([other for _, other in own]))
        for own in by_question.values()
    ]


def _mean(items: Sequence[Item]) -> Item:
    """Return an item with the means of some that ask the same question."""
    return items[0]._replace(
        solved=fmean(item.solved for item in items),
        score=fmean(item.score for item in items),
    )


def _solved(pairs: Iterable[tuple[Item, Item]]) -> list[Pair]:
    return [(one.solved, other.solved) for one, other in pairs]


def _differences(pairs: Iterable[Pair]) -> list[float]:
    return [after - before for before, after in pairs]


def _by_items(pairs: Sequence[Pair]) -> Change:
    return Change(
        items=len(pairs),
        before=fmean(before for before, _ in pairs),
        after=fmean(after for _, after in pairs),
        difference=mean_difference(_differences(pairs)),
    )


def comparison_table(comparison: Comparison) -> str:
    """Return the overall changes, then those of tasks: beyond noise first, from loss to gain.

    Of the others, only the largest changes are shown.
    """
    return table(list(_table_rows(comparison)))


def _table_rows(comparison: Comparison) -> Iterator[Sequence[str]]:
    ranked = sorted(
        comparison.tasks.items(), key=lambda entry: entry[1].difference.value
    )
    beyond = [(task, change) for task, change in ranked if change.beyond_noise]
    within = [(task, change) for task, change in ranked if not change.beyond_noise]
    for name, coverage in comparison.coverage.items():
        if coverage.missing:
            yield f"INCOMPLETE: {name} stands on {coverage}"
    yield ["", "items", "before", "after", "change", "95 %"]
    yield _row("solved, mean over items", comparison.by_items)
    yield _row("solved, mean over tasks", comparison.by_tasks)
    yield _row("score, mean over items", comparison.score)
    yield ""
    if not comparison.is_tested:
        yield (
            f"{comparison.verdict}: evaluate both with a higher --limit "
            "(--env.num_eval_samples_per_task)"
        )
    else:
        yield comparison.verdict
        yield from (_row(f"  {task}", change) for task, change in beyond)
        yield from ("", "within noise") if within else ()
    listed = within
    if len(within) > 2 * MAX_TASKS:
        by_size = sorted(within, key=lambda entry: abs(entry[1].difference.value))
        largest = by_size[-2 * MAX_TASKS :]
        listed = [
            entry for entry in within if entry in largest and entry[1].difference.value
        ]
    yield from (_row(f"  {task}", change) for task, change in listed)
    unlisted = len(within) - len(listed)
    if unlisted:
        less = "with a smaller change or none" if listed else "without a change"
        yield f"  {unlisted} tasks {less}; --json has all"
    yield ""
    yield (
        "Beyond noise: paired randomization test at a false discovery rate of 5 % over all tasks "
        "(Benjamini-Hochberg). It needs at least 6 items of a task, better 10 to 20. Each interval "
        "is its own row's 95 %: among many tasks, some exclude 0 by chance."
    )
    yield comparison.excluded


def _row(title: str, change: Change) -> list[str]:
    difference = change.difference
    by, low, high = (
        f"{part * 100:+.1f}"
        for part in (difference.value, difference.low, difference.high)
    )
    shares = (f"{change.before:.1%}", f"{change.after:.1%}")
    return [title, str(change.items), *shares, by, f"{low} to {high}"]
