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
from .power import TELLING_CHANGE, Power, power_of
from .tables import MAX_TASKS

Key = TypeVar("Key")

BEYOND_NOISE = "beyond noise"
WITHIN_NOISE = "within noise"
CANNOT_TELL = "can't tell"

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
    attempts: int
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

    @property
    def verdict(self) -> str:
        """Whether a task changed: "beyond noise", "within noise" or "can't tell".

        Within noise means that its interval has no change of TELLING_CHANGE.
        """
        if self.beyond_noise:
            return BEYOND_NOISE
        _, _, low, high = self.difference
        if low > -TELLING_CHANGE and high < TELLING_CHANGE:
            return WITHIN_NOISE
        return CANNOT_TELL

    def to_json(self) -> dict[str, Any]:
        tested = {} if self.beyond_noise is None else {"verdict": self.verdict}
        return {**asdict(self), "difference": self.difference._asdict(), **tested}


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The solved shares of two evaluations, paired.

    Attributes:
        by_items, by_tasks: overall, with equal weights of items or of tasks.
        score: the mean score, by items.
        only_before, only_after: number of items that the other evaluation lacks.
        unscored: number of items in both without a scored attempt in one.
        power: of the test of each task; None if no task has two questions.
        coverage: of each evaluation, "before" and "after", where it is known.
    """

    by_items: Change
    by_tasks: Change
    score: Change
    tasks: Mapping[str, Change]
    only_before: int
    only_after: int
    unscored: int
    power: Power | None
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
        unclear = sum(c.verdict == CANNOT_TELL for c in self.tasks.values())
        text = f"{beyond} of {len(self.tasks)} tasks changed beyond noise (solved)"
        return f"{text}; {unclear} have too few items to tell" if unclear else text

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
            "power": self.power and asdict(self.power),
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
    before_by_key = {sample.item_key: sample for sample in before}
    after_by_key = {sample.item_key: sample for sample in after}
    comparison = compare_items(
        {key: _item(sample) for key, sample in before_by_key.items()},
        {key: _item(sample) for key, sample in after_by_key.items()},
    )
    if comparison is None:
        return None
    coverage = {
        "before": Coverage.of(before_by_key.values()),
        "after": Coverage.of(after_by_key.values()),
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
        attempts=len(scored),
        solved=fmean(float(rollout.solved) for rollout in scored),
        score=fmean(rollout.raw_score or 0.0 for rollout in scored),
    )


def compare_items(
    before: Mapping[Key, Item | None], after: Mapping[Key, Item | None]
) -> Comparison | None:
    """Pair the items of two evaluations by key; see `compare`. An item of None is unscored."""
    common = [(before[key], after[key]) for key in before if key in after]
    scored_items = [(old, new) for old, new in common if old and new]
    if not scored_items:
        return None
    scored = _pairs_by_question(scored_items)
    by_task = group_by(lambda pair: pair[0].task, scored)
    tasks = {task: _solved(of_task) for task, of_task in sorted(by_task.items())}
    differences = {task: _differences(pairs) for task, pairs in tasks.items()}
    changes = {task: _by_items(pairs) for task, pairs in tasks.items()}
    p_values = {task: sign_flip_p(of_task) for task, of_task in differences.items()}
    changed_tasks = discoveries(p_values)
    return Comparison(
        by_items=_by_items(_solved(scored)),
        by_tasks=Change(
            items=len(scored),
            before=fmean(change.before for change in changes.values()),
            after=fmean(change.after for change in changes.values()),
            difference=mean_difference(*differences.values()),
        ),
        score=_by_items([(old.score, new.score) for old, new in scored]),
        tasks={
            task: replace(
                change, p_value=p_values[task], beyond_noise=task in changed_tasks
            )
            for task, change in changes.items()
        },
        only_before=len(before) - len(common),
        only_after=len(after) - len(common),
        unscored=len(common) - len(scored_items),
        power=power_of(
            differences.values(),
            [(item.solved, item.attempts) for pair in scored for item in pair],
            changed_tasks=len(changed_tasks),
        ),
    )


def _pairs_by_question(pairs: Iterable[tuple[Item, Item]]) -> list[tuple[Item, Item]]:
    """Return one pair for each question, with the means of the pairs that ask it."""
    by_question = group_by(lambda pair: (pair[0].task, pair[0].question), pairs)
    return [
        (_mean([old for old, _ in asked_alike]), _mean([new for _, new in asked_alike]))
        for asked_alike in by_question.values()
    ]


def _mean(items: Sequence[Item]) -> Item:
    """Return an item with the means of some that ask the same question."""
    return items[0]._replace(
        attempts=sum(item.attempts for item in items),
        solved=fmean(item.solved for item in items),
        score=fmean(item.score for item in items),
    )


def _solved(pairs: Iterable[tuple[Item, Item]]) -> list[Pair]:
    return [(old.solved, new.solved) for old, new in pairs]


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
    for name, coverage in comparison.coverage.items():
        if coverage.missing:
            yield f"INCOMPLETE: {name} stands on {coverage}"
    yield ["", "items", "before", "after", "change", "95 %"]
    yield _row("solved, mean over items", comparison.by_items)
    yield _row("solved, mean over tasks", comparison.by_tasks)
    yield _row("score, mean over items", comparison.score)
    yield ""
    hint = ": evaluate both with a higher --limit (--env.num_eval_samples_per_task)"
    yield comparison.verdict + ("" if comparison.is_tested else hint)
    beyond = [entry for entry in ranked if entry[1].beyond_noise]
    yield from (_row(f"  {task}", change) for task, change in beyond)
    yield from _unchanged_rows([entry for entry in ranked if entry not in beyond])
    yield ""
    yield (
        "Beyond noise: paired randomization test at a false discovery rate of 5 % over all tasks "
        "(Benjamini-Hochberg). Within noise: the interval has no change of 15 points. Each "
        "interval is its own row's 95 %: among many tasks, some exclude 0 by chance. It covers "
        "other questions of the same tasks and levels."
    )
    if comparison.power is not None:
        yield comparison.power.advice
    yield comparison.excluded


def _unchanged_rows(tasks: Sequence[tuple[str, Change]]) -> Iterator[Sequence[str]]:
    """Yield the tasks that didn't change beyond noise, by what is known of them."""
    table_tasks = tasks
    if len(tasks) > 2 * MAX_TASKS:
        by_size = sorted(tasks, key=lambda entry: abs(entry[1].difference.value))
        largest = by_size[-2 * MAX_TASKS :]
        table_tasks = [
            entry for entry in tasks if entry in largest and entry[1].difference.value
        ]
    for verdict in (CANNOT_TELL, WITHIN_NOISE):
        rows = [
            _row(f"  {task}", change)
            for task, change in table_tasks
            if change.verdict == verdict
        ]
        if rows:
            yield from ("", verdict, *rows)
    unlisted = len(tasks) - len(table_tasks)
    if unlisted:
        less = "with a smaller change or none" if table_tasks else "without a change"
        yield f"  {unlisted} tasks {less}; --json has all"


def _row(title: str, change: Change) -> list[str]:
    difference = change.difference
    by, low, high = (
        f"{part * 100:+.1f}"
        for part in (difference.value, difference.low, difference.high)
    )
    shares = (f"{change.before:.1%}", f"{change.after:.1%}")
    return [title, str(change.items), *shares, by, f"{low} to {high}"]
