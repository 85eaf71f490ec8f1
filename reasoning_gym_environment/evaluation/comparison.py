"""Comparison of evaluations with the first of them, paired by item."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePath
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from ..errors import ConfigurationError
from ..storage.rows import StoredGroup
from ..util.values import group_by, shorten, table
from .comparability import nothing_in_common, require_comparable, require_one_rule
from .estimators import (
    SIGNIFICANCE,
    Estimate,
    difference_p,
    mean_difference,
    paired_difference,
    share,
    significance_among,
)
from .metrics import Coverage
from .power import TELLING_CHANGE, Power, power_of
from .store import EvaluationResults
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
        p_value: the lowest significance at which the interval excludes 0; None if not tested.
        significance: of the interval, corrected for what is tested beside it.
    """

    items: int
    before: float
    after: float
    difference: Estimate
    p_value: float | None = None
    significance: float = SIGNIFICANCE

    @property
    def beyond_noise(self) -> bool | None:
        """Whether the interval excludes 0; None if not tested."""
        if self.p_value is None:
            return None
        return not self.difference.low <= 0 <= self.difference.high

    @property
    def verdict(self) -> str:
        """Whether it changed: "beyond noise", "within noise" or "can't tell".

        Within noise means that its interval has no change of TELLING_CHANGE.
        """
        if self.beyond_noise:
            return BEYOND_NOISE
        _, _, low, high = self.difference
        if low > -TELLING_CHANGE and high < TELLING_CHANGE:
            return WITHIN_NOISE
        return CANNOT_TELL

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        tested = {} if self.beyond_noise is None else {"verdict": self.verdict}
        return {
            **asdict(self),
            "difference": self.difference._asdict(),
            "beyond_noise": self.beyond_noise,
            **tested,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedEvaluation:
    """One evaluation of a comparison.

    Attributes:
        solved: the share of the items that are compared.
        path: of its results; empty where they are in memory.
        model: its name, as far as stored.
    """

    solved: Estimate
    path: str = ""
    model: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {**asdict(self), "solved": self.solved._asdict()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The solved shares of two evaluations, paired.

    Attributes:
        before, after: the two evaluations.
        by_items, by_tasks: overall, with equal weights of items or of tasks.
        score: the mean score, by items.
        only_before, only_after: number of items that another evaluation lacks.
        unscored: number of items in all without a scored attempt in one.
        power: of the test of each task; None if no task has two questions.
        coverage: of each evaluation, "before" and "after", where it is known.
    """

    before: ComparedEvaluation
    after: ComparedEvaluation
    by_items: Change
    by_tasks: Change
    score: Change
    tasks: Mapping[str, Change]
    power: Power | None
    only_before: int = 0
    only_after: int = 0
    unscored: int = 0
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
        """Return plain JSON."""
        coverage = {name: counts._asdict() for name, counts in self.coverage.items()}
        tasks = {task: change.to_json() for task, change in self.tasks.items()}
        return {
            "before": self.before.to_json(),
            "after": self.after.to_json(),
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
    first: EvaluationResults, second: EvaluationResults, *more: EvaluationResults
) -> list[Comparison]:
    """Compare each other evaluation with the first one, on the items that all have scored.

    A task changed beyond noise if its interval excludes 0. The intervals of all tasks of all
    comparisons are corrected together, for a false discovery rate of 5 %. So are those of the
    means over items, for the number of comparisons.

    Raises:
        ConfigurationError: an argument is not what `read_results` or `evaluate` returns.
        FixableError: no item is scored in all, or they were made or scored by different rules.

    Example:
        [change] = compare(read_results("evals/base"), read_results("evals/tuned"))
        print(change.by_items.difference, change.tasks["gcd"].verdict)
    """
    evaluations = [first, second, *more]
    for results in evaluations:
        if not isinstance(results, EvaluationResults):
            raise ConfigurationError(
                f"compare takes the results of evaluations, got {shorten(results)}: pass "
                "read_results(folder)"
            )
    candidates = evaluations[1:]
    for candidate in candidates:
        require_one_rule(first, candidate)
    comparisons = compare_samples(*(results.samples for results in evaluations))
    if not comparisons:
        raise nothing_in_common(evaluations)
    for candidate in candidates:
        require_comparable(first, candidate)
    named = []
    for comparison, candidate in zip(comparisons, candidates, strict=True):
        before = _of_results(first, comparison.before)
        after = _of_results(candidate, comparison.after)
        named.append(replace(comparison, before=before, after=after))
    return named


def _of_results(
    results: EvaluationResults, compared: ComparedEvaluation
) -> ComparedEvaluation:
    model = str(results.settings.get("model_name", ""))
    return replace(compared, path=str(results.path), model=model)


def compare_samples(*evaluations: Iterable[StoredGroup]) -> list[Comparison]:
    """Compare samples as `compare` does; nothing where no item is scored in all."""
    by_key = [{s.item_key: s for s in samples} for samples in evaluations]
    comparisons = _compared(
        [{key: _item(sample) for key, sample in samples.items()} for samples in by_key]
    )
    before, *coverages = [Coverage.of(samples.values()) for samples in by_key]
    return [
        replace(comparison, coverage={"before": before, "after": after})
        for comparison, after in zip(comparisons, coverages, strict=bool(comparisons))
    ]


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
    comparisons = _compared([before, after])
    return comparisons[0] if comparisons else None


def _compared(
    evaluations: Sequence[Mapping[Key, Item | None]],
) -> list[Comparison]:
    """Compare each other evaluation with the first one; nothing without a common scored item."""
    first, *candidates = evaluations
    common = [key for key in first if all(key in candidate for candidate in candidates)]
    scored_keys = [
        key for key in common if all(evaluation[key] for evaluation in evaluations)
    ]
    if not scored_keys:
        return []
    pairings = []
    for candidate in candidates:
        items = [(first[key], candidate[key]) for key in scored_keys]
        pairings.append(_pairs_by_question([(a, b) for a, b in items if a and b]))
    of_tasks = [of_task for pairs in pairings for of_task in _by_task(pairs).values()]
    significance = _significance_among(_solved(pairs) for pairs in pairings)
    task_significance = _significance_among(of_tasks)
    comparisons = []
    for candidate, pairs in zip(candidates, pairings, strict=True):
        comparison = _comparison(
            pairs, significance=significance, task_significance=task_significance
        )
        comparisons.append(
            replace(
                comparison,
                only_before=len(first) - len(common),
                only_after=len(candidate) - len(common),
                unscored=len(common) - len(scored_keys),
            )
        )
    return comparisons


def _significance_among(tests: Iterable[Sequence[Pair]]) -> float:
    return significance_among([difference_p(_differences(pairs)) for pairs in tests])


def _by_task(pairs: Iterable[tuple[Item, Item]]) -> dict[str, list[Pair]]:
    """Return the solved shares of each task's items, by its name."""
    by_task = group_by(lambda pair: pair[0].task, pairs)
    return {task: _solved(of_task) for task, of_task in sorted(by_task.items())}


def _comparison(
    pairs: Sequence[tuple[Item, Item]],
    *,
    significance: float,
    task_significance: float,
) -> Comparison:
    """Return the comparison of paired items.

    Args:
        significance: of the interval of the mean over items.
        task_significance: of the intervals of tasks.
    """
    by_task = _by_task(pairs)
    tasks = {
        task: _tested_change(of_task, task_significance)
        for task, of_task in by_task.items()
    }
    differences = [_differences(of_task) for of_task in by_task.values()]
    before, after = (
        ComparedEvaluation(solved=share([[item.solved] for item in items]))
        for items in zip(*pairs, strict=True)
    )
    return Comparison(
        before=before,
        after=after,
        by_items=_tested_change(_solved(pairs), significance),
        by_tasks=Change(
            items=len(pairs),
            before=fmean(change.before for change in tasks.values()),
            after=fmean(change.after for change in tasks.values()),
            difference=mean_difference(*differences),
        ),
        score=_change([(old.score, new.score) for old, new in pairs]),
        tasks=tasks,
        power=power_of(
            differences,
            [(item.solved, item.attempts) for pair in pairs for item in pair],
            changed_tasks=sum(bool(change.beyond_noise) for change in tasks.values()),
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


def _change(pairs: Sequence[Pair]) -> Change:
    return Change(
        items=len(pairs),
        before=fmean(before for before, _ in pairs),
        after=fmean(after for _, after in pairs),
        difference=mean_difference(_differences(pairs)),
    )


def _tested_change(pairs: Sequence[Pair], significance: float) -> Change:
    differences = _differences(pairs)
    return replace(
        _change(pairs),
        difference=paired_difference(differences, significance),
        p_value=difference_p(differences),
        significance=significance,
    )


def comparison_table(*comparisons: Comparison) -> str:
    """Return the changes of one comparison, or a table of all that `compare` has returned.

    Of one, the overall changes, then those of tasks: beyond noise first, from loss to gain. Of the
    others, only the largest are shown.
    """
    if len(comparisons) == 1:
        return table(list(_table_rows(comparisons[0])))
    names = names_of(
        [comparisons[0].before, *(comparison.after for comparison in comparisons)]
    )
    lines = [
        f"INCOMPLETE: {name} stands on {coverage}"
        for name, coverage in zip(names, _coverages(comparisons), strict=False)
        if coverage.missing
    ]
    return "\n".join(
        [
            *lines,
            table(list(_overall_rows(comparisons, names))),
            "",
            table(list(_task_rows(comparisons, names))),
            "",
            table(
                [
                    _explanation(comparisons),
                    f"Excluded: {_excluded(comparisons, names)}.",
                ]
            ),
        ]
    )


def names_of(evaluations: Sequence[ComparedEvaluation]) -> list[str]:
    """Return a short name of each: the last part of its path, or all of it if that has a twin."""
    paths = [evaluation.path for evaluation in evaluations]
    names = [PurePath(path).name for path in paths]
    return names if len(set(names)) == len(names) else paths


def _coverages(comparisons: Sequence[Comparison]) -> list[Coverage]:
    """Return the coverage of each evaluation, where it is known."""
    coverages = [
        comparison.coverage for comparison in comparisons if comparison.coverage
    ]
    before = [coverage["before"] for coverage in coverages[:1]]
    return [*before, *(coverage["after"] for coverage in coverages)]


def _overall_rows(
    comparisons: Sequence[Comparison], names: Sequence[str]
) -> Iterator[Sequence[str]]:
    """Yield each evaluation's solved share, and its difference from the first one's."""
    first = comparisons[0].before
    items = str(comparisons[0].by_items.items)
    yield ["", "model", "items", "solved", "95 %", "change", "95 % of all", "verdict"]
    yield [names[0], first.model, items, *_share_cells(first.solved), "", "", ""]
    for name, comparison in zip(names[1:], comparisons, strict=True):
        change = comparison.by_items
        yield [
            name,
            comparison.after.model,
            items,
            *_share_cells(comparison.after.solved),
            *_difference_cells(change.difference),
            change.verdict,
        ]


def _task_rows(
    comparisons: Sequence[Comparison], names: Sequence[str]
) -> Iterator[Sequence[str]]:
    """Yield the solved shares of tasks; of many, those where any changed beyond noise."""
    tasks = list(comparisons[0].tasks)
    listed = tasks
    if len(tasks) > 2 * MAX_TASKS:
        listed = [
            task
            for task in tasks
            if any(comparison.tasks[task].beyond_noise for comparison in comparisons)
        ]
    yield ["solved by task", "items", *names]
    for task in listed:
        changes = [comparison.tasks[task] for comparison in comparisons]
        cells = [f"{change.after:.1%}{_mark(change)}" for change in changes]
        yield [f"  {task}", str(changes[0].items), f"{changes[0].before:.1%} ", *cells]
    if len(listed) < len(tasks):
        yield f"  {len(tasks) - len(listed)} tasks without a change beyond noise; --json has all"


def _mark(change: Change) -> str:
    if not change.beyond_noise:
        return " "
    return "+" if change.difference.value > 0 else "-"


def _share_cells(solved: Estimate) -> list[str]:
    return [f"{solved.value:.1%}", f"{solved.low * 100:.1f} - {solved.high * 100:.1f}"]


def _difference_cells(difference: Estimate) -> list[str]:
    by, low, high = (
        f"{part * 100:+.1f}"
        for part in (difference.value, difference.low, difference.high)
    )
    return [by, f"{low} to {high}"]


def _explanation(comparisons: Sequence[Comparison]) -> str:
    """Return what the verdicts and marks mean, and for how many they are corrected."""
    tasks = sum(len(comparison.tasks) for comparison in comparisons)
    first_change = next(iter(comparisons[0].tasks.values()))
    return (
        "change, + and -: from the first one, on the items that all have scored. Beyond noise: "
        "the interval excludes 0. Within noise: it has no change of 15 points. Can't tell: it has "
        f"one. Intervals of changes are corrected for {len(comparisons)} comparisons, the marks of "
        f"tasks for {tasks} ({1 - first_change.significance:.2%} each)."
    )


def _excluded(comparisons: Sequence[Comparison], names: Sequence[str]) -> str:
    """Return how many items of each evaluation others lack, or are unscored, in words."""
    counts = [
        comparisons[0].only_before,
        *(comparison.only_after for comparison in comparisons),
    ]
    lacking = [
        f"{count} items of {name} that another lacks"
        for name, count in zip(names, counts, strict=True)
        if count
    ]
    return ", ".join([*lacking, f"{comparisons[0].unscored} unscored in one"])


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
    significance = next(iter(comparison.tasks.values())).significance
    yield (
        "Beyond noise: the interval excludes 0. Within noise: it has no change of 15 points. The "
        f"intervals of tasks are corrected for the number of tasks ({1 - significance:.2%} each), "
        "for a false discovery rate of 5 %. They cover other questions of the same tasks and "
        "levels."
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
    shares = (f"{change.before:.1%}", f"{change.after:.1%}")
    return [title, str(change.items), *shares, *_difference_cells(change.difference)]
