"""Metrics of an evaluation, overall and by task, category and difficulty.

Metrics of items at the default configuration have plain names. Metrics at a difficulty have the
same names below `difficulty/<d>/`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from ..records import ATROPOS_SOLVED_SCORE, FORMAT_FAILURES, Recipe, Status
from ..scoring.extraction import has_untagged_box
from ..storage.rows import StoredGroup, StoredRollout
from ..tasks.facts import LIBRARY, Floor, floors, level_floors
from ..util.values import group_by
from .estimators import (
    Clusters,
    Estimate,
    Interval,
    macro_share,
    mean_interval,
    pass_at_k,
    share,
)

Numbers = dict[str, float]

FLOORS = ("chance", "no_reasoning_floor")
"""The numbers of what a constant answer and a copy from the question solve."""

LOW_TEMPERATURE = 0.5
"""Below it, attempts at an item are nearly alike, so that pass@k says little.

Chen et al. (2021) sample at 0.2 for pass@1, and at 0.8 for pass@100.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Baselines:
    """What metrics are compared with and grouped by.

    Attributes:
        categories: category by task; other tasks count as "other".
        chance_floors: by task, what the best constant answer solves of default items.
        attempts: requested completions per item.
        no_reasoning_floors: the same of the best rule that copies from the question or counts in
            it.
    """

    categories: Mapping[str, str]
    chance_floors: Mapping[str, Floor]
    attempts: int
    no_reasoning_floors: Mapping[str, Floor] = field(default_factory=dict)

    @classmethod
    def at_threshold(
        cls,
        solved_threshold: float | None,
        *,
        categories: Mapping[str, str],
        attempts: int,
    ) -> Baselines:
        """Return the floors for a threshold; they were measured at one threshold only."""
        measured = floors(solved_threshold)
        return cls(
            categories=categories,
            chance_floors={task: floor.chance for task, floor in measured.items()},
            no_reasoning_floors={
                task: floor.no_reasoning for task, floor in measured.items()
            },
            attempts=attempts,
        )


class Coverage(NamedTuple):
    """How many of the items have a scored attempt: what shares of solved items stand on.

    Example:
        >>> str(Coverage(scored=60, items=60)), str(Coverage(scored=43, items=60))
        ('60 items', '43 scored items; 17 of 60 not scored')
    """

    scored: int
    items: int

    @classmethod
    def of(cls, samples: Collection[StoredGroup]) -> Coverage:
        return cls(
            scored=sum(bool(sample.scored) for sample in samples), items=len(samples)
        )

    @property
    def missing(self) -> int:
        return self.items - self.scored

    def __str__(self) -> str:
        if not self.missing:
            return f"{self.items:,} items"
        return f"{self.scored:,} scored items; {self.missing:,} of {self.items:,} not scored"


class MissingItem(NamedTuple):
    """A planned item that the evaluation set lacks, since it could not be made.

    Attributes:
        difficulty: at which it would be asked; None is the default configuration.
    """

    recipe: Recipe
    difficulty: float | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe.to_json(),
            "difficulty": self.difficulty,
            "reason": self.reason,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """The metrics of some samples; metrics without any scored attempt have no entry.

    Unscored attempts count in `unscored` alone.

    Attributes:
        coverage: of the samples, or of tasks where tasks have equal weights.
        shares: metrics in [0, 1] with an error: score, solved, avg@n, pass@k.
        means: metrics without an error: unscored, format_failures, truncated,
            completion_tokens, reward, chance, no_reasoning_floor, above_chance.
        floor_intervals: of chance and no_reasoning_floor; none if that of a part is unknown.
    """

    coverage: Coverage
    shares: Mapping[str, Estimate]
    means: Mapping[str, float]
    floor_intervals: Mapping[str, Interval] = field(default_factory=dict)

    def value(self, name: str) -> float | None:
        """Return a share or a mean; None where it is unknown."""
        estimate = self.shares.get(name)
        return estimate.value if estimate else self.means.get(name)

    def numbers(self, size_name: str = "items") -> Numbers:
        """Return flat numbers."""
        scored, size = map(float, self.coverage)
        numbers = {size_name: size, f"scored_{size_name}": scored}
        for name, estimate in self.shares.items():
            numbers[name] = estimate.value
            numbers |= {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
            if estimate.standard_error is not None:
                numbers[f"{name}_stderr"] = estimate.standard_error
        for name, (low, high) in self.floor_intervals.items():
            numbers |= {f"{name}_low": low, f"{name}_high": high}
        return numbers | dict(self.means)


@dataclass(frozen=True, kw_only=True, slots=True)
class Breakdown:
    """The metrics of at least one sample at one difficulty.

    Attributes:
        by_items, by_tasks: overall, with equal weights of items or of tasks.
        statuses: shares of all attempts.
        percent_correct: share of the scored attempts with at least half of the score, as upstream
            counts; None without any.
        sources: by the user's module that has the task, or the library; empty with a single one.
        categories, tasks: by name, in alphabetical order.
    """

    by_items: Slice
    by_tasks: Slice
    statuses: Mapping[Status, float]
    percent_correct: float | None
    sources: Mapping[str, Slice]
    categories: Mapping[str, Slice]
    tasks: Mapping[str, Slice]

    def numbers(self) -> Numbers:
        """Return flat numbers."""
        numbers = self.by_items.numbers()
        numbers |= {
            f"status/{status.value}": part for status, part in self.statuses.items()
        }
        numbers |= _below("macro", self.by_tasks.numbers(size_name="tasks"))
        if self.percent_correct is not None:
            numbers["percent_correct"] = self.percent_correct
        kinds = {
            "source": self.sources,
            "category": self.categories,
            "task": self.tasks,
        }
        for kind, parts in kinds.items():
            for name, part in parts.items():
                numbers |= _below(f"{kind}/{name}", part.numbers())
        return numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationReport:
    """The metrics of an evaluation.

    Attributes:
        attempts: requested completions per item, the largest k of pass@k.
        default: of the samples at the default configuration; None without any.
        difficulties: of the samples at each difficulty, in ascending order.
        few_questions: number of questions of what has no more, such as "coin_flip at difficulty 0".
        missing_items: what the set lacks, since it could not be made.
        also_trained_on: the numbers of items of levels that training asks too, by name.
        without_trained: of the samples at all difficulties, without those; None where all are left,
            or none is.
        with_trained: the same with them.
        boxed_share: of the replies that are scored by their tags, the share of those that have none
            and an answer in a box.
        temperature: of the sampling; None if it is unknown.
    """

    attempts: int
    default: Breakdown | None = None
    difficulties: Mapping[float, Breakdown] = field(default_factory=dict)
    few_questions: Mapping[str, int] = field(default_factory=dict)
    missing_items: Sequence[MissingItem] = ()
    also_trained_on: Mapping[str, int] = field(default_factory=dict)
    without_trained: Slice | None = None
    with_trained: Slice | None = None
    boxed_share: float = 0.0
    temperature: float | None = None

    @property
    def attempts_are_alike(self) -> bool:
        """Whether an item has several attempts, sampled at a low temperature."""
        is_low = self.temperature is not None and self.temperature < LOW_TEMPERATURE
        return self.attempts > 1 and is_low

    @property
    def coverage(self) -> Coverage:
        """Of the samples at all difficulties, and of the items that could not be made."""
        parts = [*filter(None, [self.default]), *self.difficulties.values()]
        coverages = [part.by_items.coverage for part in parts]
        return Coverage(
            scored=sum(coverage.scored for coverage in coverages),
            items=sum(coverage.items for coverage in coverages)
            + len(self.missing_items),
        )

    def numbers(self) -> Numbers:
        """Return all numbers below `eval/`, as in `metrics.json`."""
        numbers = self.default.numbers() if self.default else {}
        for difficulty, part in self.difficulties.items():
            numbers |= _below(f"difficulty/{difficulty:g}", part.numbers())
        for name, items in (
            ("with_trained", self.with_trained),
            ("without_trained", self.without_trained),
        ):
            if items is not None:
                numbers |= _below(name, items.numbers())
        return _below("eval", numbers)

    def curves(self) -> Numbers:
        """Return the numbers for wandb: the main ones, `solved` and `score` of parts."""
        main = (
            f"solved(_low|_high)?|score|percent_correct|pass@{self.attempts}|above_chance|unscored|"
            "truncated|format_failures|completion_tokens|(scored_)?items|macro/solved"
        )
        at = "difficulty/[^/]+/"
        logged = rf"eval/({main}|{at}solved|({at})?(category|task|source)/[^/]+/(solved|score))"
        return {
            n: value for n, value in self.numbers().items() if re.fullmatch(logged, n)
        }


def evaluation_report(
    samples: Sequence[StoredGroup], baselines: Baselines
) -> EvaluationReport:
    """Calculate the metrics of an evaluation's samples."""
    parts = group_by(lambda sample: sample.difficulty, samples)
    named = sorted(difficulty for difficulty in parts if difficulty is not None)
    trained = Counter(_level_of(s) for s in samples if s.also_trained_on)
    untrained = [sample for sample in samples if not sample.also_trained_on]
    is_mixed = 0 < len(untrained) < len(samples)
    return EvaluationReport(
        attempts=baselines.attempts,
        default=_breakdown(parts[None], baselines) if None in parts else None,
        difficulties={d: _breakdown(parts[d], baselines) for d in named},
        also_trained_on=dict(sorted(trained.items())),
        with_trained=_slice(samples, baselines) if is_mixed else None,
        without_trained=_slice(untrained, baselines) if is_mixed else None,
        boxed_share=_boxed_share(samples),
    )


def _boxed_share(samples: Iterable[StoredGroup]) -> float:
    replies = _scored(s for s in samples if s.answer_format == "tags")
    untagged = [r for r in replies if r.status is Status.NO_ANSWER]
    boxed = sum(has_untagged_box(reply.text) for reply in untagged)
    return boxed / max(1, len(replies))


def _level_of(sample: StoredGroup) -> str:
    """Return the name of a sample's level."""
    level = sample.recipe.level
    return sample.task if level is None else f"{sample.task} {level:g}"


def _breakdown(samples: Sequence[StoredGroup], baselines: Baselines) -> Breakdown:
    tasks = group_by(lambda sample: sample.task, samples)
    categories = group_by(lambda s: baselines.categories.get(s.task, "other"), samples)
    sources = group_by(lambda sample: sample.source or LIBRARY, samples)
    if len(sources) == 1:
        sources = {}
    statuses = [rollout.status for sample in samples for rollout in sample.rollouts]
    scores = [
        rollout.raw_score or 0.0 for sample in samples for rollout in sample.scored
    ]
    percent_correct = None
    if scores:
        percent_correct = fmean(score >= ATROPOS_SOLVED_SCORE for score in scores)
    return Breakdown(
        by_items=_slice(samples, baselines),
        by_tasks=_by_tasks(list(tasks.values()), baselines),
        statuses={status: statuses.count(status) / len(statuses) for status in Status},
        percent_correct=percent_correct,
        sources=_slices(sources, baselines),
        categories=_slices(categories, baselines),
        tasks=_slices(tasks, baselines),
    )


def _slices(
    parts: Mapping[str, Sequence[StoredGroup]], baselines: Baselines
) -> dict[str, Slice]:
    """Return the metrics of each part by its name, in the order of the names."""
    return {name: _slice(samples, baselines) for name, samples in sorted(parts.items())}


def _slice(samples: Sequence[StoredGroup], baselines: Baselines) -> Slice:
    clusters = _clusters(samples, baselines.attempts)
    return Slice(
        coverage=Coverage.of(samples),
        shares={name: share(items) for name, items in clusters.items() if items},
        means=_means(samples, baselines),
        floor_intervals=_floor_intervals(samples, baselines),
    )


def _by_tasks(tasks: Sequence[Sequence[StoredGroup]], baselines: Baselines) -> Slice:
    clusters = [_clusters(samples, baselines.attempts) for samples in tasks]
    means = [_means(samples, baselines) for samples in tasks]
    intervals = [_floor_intervals(samples, baselines) for samples in tasks]
    scored: dict[str, list[Clusters]] = {}
    for name in clusters[0]:
        scored[name] = [of_task[name] for of_task in clusters if of_task[name]]
    names = sorted(set().union(*means))
    return Slice(
        coverage=Coverage(scored=len(scored["solved"]), items=len(tasks)),
        shares={
            name: macro_share(of_tasks) for name, of_tasks in scored.items() if of_tasks
        },
        means={name: fmean([m[name] for m in means if name in m]) for name in names},
        floor_intervals=_of_tasks(means, intervals),
    )


def _of_tasks(
    means: Sequence[Numbers], intervals: Sequence[Mapping[str, Interval]]
) -> dict[str, Interval]:
    """Return the intervals of the floors' means over tasks."""
    over_tasks = {}
    for name in FLOORS:
        parts = [
            (1.0, of_task[name], of_task_intervals.get(name))
            for of_task, of_task_intervals in zip(means, intervals, strict=True)
            if name in of_task
        ]
        if (interval := mean_interval(parts)) is not None:
            over_tasks[name] = interval
    return over_tasks


def _clusters(samples: Sequence[StoredGroup], attempts: int) -> dict[str, Clusters]:
    """Return the values of each share by question, without questions that have none.

    Items that ask the same question are one cluster.
    """
    by_question = group_by(lambda sample: (sample.task, sample.question), samples)
    scored = [
        rollouts for alike in by_question.values() if (rollouts := _scored(alike))
    ]
    solved = [(len(rollouts), sum(r.solved for r in rollouts)) for rollouts in scored]
    clusters: dict[str, Clusters] = {
        "score": [[r.raw_score or 0.0 for r in rollouts] for rollouts in scored],
        "solved": [[float(r.solved) for r in rollouts] for rollouts in scored],
        f"avg@{attempts}": [[right / attempted] for attempted, right in solved],
    }
    for k in range(1, attempts + 1):
        clusters[f"pass@{k}"] = [
            [pass_at_k(attempted, right, k)]
            for attempted, right in solved
            if attempted >= k
        ]
    return clusters


def _scored(samples: Iterable[StoredGroup]) -> list[StoredRollout]:
    return [rollout for sample in samples for rollout in sample.scored]


def _means(samples: Sequence[StoredGroup], baselines: Baselines) -> Numbers:
    """Return the means over all attempts, over those with a completion, or over scored ones."""
    rollouts = [rollout for sample in samples for rollout in sample.rollouts]
    completed = [r for r in rollouts if r.length is not None]
    values = {
        "unscored": [float(not r.scored) for r in rollouts],
        "format_failures": [float(r.status in FORMAT_FAILURES) for r in completed],
        "truncated": [float(r.truncated) for r in completed],
        "completion_tokens": [float(r.length or 0) for r in completed],
        "reward": [r.score for r in rollouts if r.scored],
    }
    values |= _against_floors(samples, baselines)
    return {name: fmean(numbers) for name, numbers in values.items() if numbers}


class _Floor(NamedTuple):
    """What no reasoning solves; the row of a user's own task has no interval of it."""

    solved: float
    interval: Interval | None


def _against_floors(
    samples: Iterable[StoredGroup], baselines: Baselines
) -> dict[str, list[float]]:
    """Return the floors of each scored rollout where they are known, and what it is above them."""
    values: dict[str, list[float]] = {name: [] for name in (*FLOORS, "above_chance")}
    for sample in samples:
        floors_of_sample = _floors_of(sample, baselines)
        for rollout in sample.scored if floors_of_sample else ():
            for name, floor in floors_of_sample.items():
                values[name].append(floor.solved)
            highest = max(floor.solved for floor in floors_of_sample.values())
            values["above_chance"].append(float(rollout.solved) - highest)
    return values


def _floor_intervals(
    samples: Iterable[StoredGroup], baselines: Baselines
) -> dict[str, Interval]:
    """Return the intervals of the floors' means over scored rollouts.

    Rollouts of one task with the same floor share its error.
    """
    rollouts = {name: Counter[tuple[str, _Floor]]() for name in FLOORS}
    for sample in samples:
        for name, floor in _floors_of(sample, baselines).items():
            rollouts[name][sample.task, floor] += len(sample.scored)
    intervals = {}
    for name, counts in rollouts.items():
        parts = [
            (count, floor.solved, floor.interval)
            for (_, floor), count in counts.items()
            if count
        ]
        if (interval := mean_interval(parts)) is not None:
            intervals[name] = interval
    return intervals


def _floors_of(sample: StoredGroup, baselines: Baselines) -> dict[str, _Floor]:
    """Return what a constant and a copy solve of the sample's task, or of its level."""
    task = sample.task
    if sample.recipe.is_default:
        floors_of_task = {
            "chance": baselines.chance_floors.get(task),
            "no_reasoning_floor": baselines.no_reasoning_floors.get(task),
        }
    else:
        of_level = level_floors(sample.recipe, sample.solved_threshold)
        floors_of_task = {}
        if of_level is not None:
            floors_of_task = {
                "chance": of_level.chance,
                "no_reasoning_floor": of_level.no_reasoning,
            }
    known = {}
    for name, floor in floors_of_task.items():
        if floor is not None:
            known[name] = _Floor(floor.solved, (floor.low, floor.high))
    if sample.recipe.is_default and sample.chance is not None:
        known["chance"] = _Floor(sample.chance, None)
    return known


def _below(prefix: str, numbers: Mapping[str, float]) -> Numbers:
    return {f"{prefix}/{name}": value for name, value in numbers.items()}
