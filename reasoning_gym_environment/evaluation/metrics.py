"""Measures an evaluation: overall, by task, category and difficulty.

As flat numbers, samples at the default configuration have the plain names, so that these stay
comparable whether or not other difficulties are evaluated beside them; those at a named
difficulty have the same names below `difficulty/<d>/`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..records import FORMAT_FAILURES, Status
from ..storage.rows import StoredGroup, StoredRollout
from ..util.grouping import group_by
from .estimators import Clusters, Estimate, macro_share, pass_at_k, share

Numbers = dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Background:
    """What the numbers are set against.

    Attributes:
        categories: category by task; a task that is not in it counts as "other".
        floors: task to the share of its default items that the best constant answer solves.
        attempts: completions asked for per item.
        no_reasoning_floors: the same of the best copy from the question.
    """

    categories: Mapping[str, str]
    floors: Mapping[str, float]
    attempts: int
    no_reasoning_floors: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """The numbers of some samples; what is unknown, since nothing was scored, has no entry.

    Unscored attempts count in `unscored` alone.

    Attributes:
        size: how many samples, or tasks where each task has the same weight.
        shares: what is estimated with an error, in [0, 1]: score, solved, avg@n, pass@k.
        means: what is given without one: unscored, format_failures, truncated,
            completion_tokens, reward, chance, no_reasoning_floor, above_chance.
    """

    size: int
    shares: Mapping[str, Estimate]
    means: Mapping[str, float]

    def value(self, name: str) -> float | None:
        """Look up a share or a mean; None where it is unknown."""
        estimate = self.shares.get(name)
        return estimate.value if estimate else self.means.get(name)

    def numbers(self, counted: str = "items") -> Numbers:
        """Flatten the numbers; `counted` names the size."""
        numbers = {counted: float(self.size)}
        for name, estimate in self.shares.items():
            numbers[name] = estimate.value
            numbers |= {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
            if estimate.standard_error is not None:
                numbers[f"{name}_stderr"] = estimate.standard_error
        return numbers | dict(self.means)


@dataclass(frozen=True, kw_only=True, slots=True)
class Breakdown:
    """The numbers of the samples of one difficulty, of which there is one at least.

    Attributes:
        by_items, by_tasks: overall, with each item or each task of the same weight.
        statuses: shares of all attempts.
        categories, tasks: by name, in the order of names.
    """

    by_items: Slice
    by_tasks: Slice
    statuses: Mapping[Status, float]
    categories: Mapping[str, Slice]
    tasks: Mapping[str, Slice]

    def numbers(self, of_task: Callable[[Slice], Numbers]) -> Numbers:
        """Flatten the numbers, of each task what `of_task` gives."""
        numbers = self.by_items.numbers()
        numbers |= {f"status/{status.value}": part for status, part in self.statuses.items()}
        numbers |= _below("macro", self.by_tasks.numbers(counted="tasks"))
        if solved := self.by_items.shares.get("solved"):
            numbers["percent_correct"] = solved.value
        for name, part in self.categories.items():
            numbers |= _below(f"category/{name}", part.numbers())
        for name, part in self.tasks.items():
            numbers |= _below(f"task/{name}", of_task(part))
        return numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationReport:
    """The numbers of an evaluation.

    Attributes:
        attempts: completions asked for per item, the largest k of pass@k.
        default: of the samples at the default configuration; None without any.
        difficulties: of those at a named difficulty, in rising order.
    """

    attempts: int
    default: Breakdown | None = None
    difficulties: Mapping[float, Breakdown] = field(default_factory=dict)

    def numbers(self) -> Numbers:
        """Flatten all numbers below `eval/`, as `metrics.json` has them."""
        return self._flat(Slice.numbers)

    def curves(self) -> Numbers:
        """Flatten what is worth a curve: of single tasks only what they solve and score."""
        return self._flat(
            lambda task: {
                name: estimate.value
                for name, estimate in task.shares.items()
                if name in ("solved", "score")
            }
        )

    def _flat(self, of_task: Callable[[Slice], Numbers]) -> Numbers:
        numbers = self.default.numbers(of_task) if self.default else {}
        for difficulty, part in self.difficulties.items():
            numbers |= _below(f"difficulty/{difficulty:g}", part.numbers(of_task))
        return _below("eval", numbers)


def evaluation_report(samples: Sequence[StoredGroup], background: Background) -> EvaluationReport:
    """Measure the samples of an evaluation."""
    parts = group_by(lambda sample: sample.difficulty, samples)
    named = sorted(difficulty for difficulty in parts if difficulty is not None)
    return EvaluationReport(
        attempts=background.attempts,
        default=_breakdown(parts[None], background) if None in parts else None,
        difficulties={each: _breakdown(parts[each], background) for each in named},
    )


def _breakdown(samples: Sequence[StoredGroup], background: Background) -> Breakdown:
    tasks = group_by(lambda sample: sample.task, samples)
    categories = group_by(lambda s: background.categories.get(s.task, "other"), samples)
    return Breakdown(
        by_items=_slice(samples, background),
        by_tasks=_by_tasks(list(tasks.values()), background),
        statuses=_statuses(samples),
        categories={name: _slice(own, background) for name, own in sorted(categories.items())},
        tasks={name: _slice(own, background) for name, own in sorted(tasks.items())},
    )


def _slice(samples: Sequence[StoredGroup], background: Background) -> Slice:
    clusters = _clusters(samples, background.attempts)
    return Slice(
        size=len(samples),
        shares={name: share(own) for name, own in clusters.items() if own},
        means=_means(samples, background),
    )


def _by_tasks(tasks: Sequence[Sequence[StoredGroup]], background: Background) -> Slice:
    clusters = [_clusters(samples, background.attempts) for samples in tasks]
    means = [_means(samples, background) for samples in tasks]
    known = {name: [own[name] for own in clusters if own[name]] for name in clusters[0]}
    names = sorted({name for own in means for name in own})
    return Slice(
        size=len(tasks),
        shares={name: macro_share(own) for name, own in known.items() if own},
        means={name: _mean([own[name] for own in means if name in own]) for name in names},
    )


def _clusters(samples: Sequence[StoredGroup], attempts: int) -> dict[str, Clusters]:
    """Collect what is estimated with an error, by item, without items that say nothing of it."""
    scored = [rollouts for sample in samples if (rollouts := sample.scored)]
    solved = [(len(rollouts), sum(r.solved for r in rollouts)) for rollouts in scored]
    clusters: dict[str, Clusters] = {
        "score": [[r.raw_score or 0.0 for r in rollouts] for rollouts in scored],
        "solved": [[float(r.solved) for r in rollouts] for rollouts in scored],
        f"avg@{attempts}": [[right / made] for made, right in solved],
    }
    for k in range(1, attempts + 1):
        clusters[f"pass@{k}"] = [[pass_at_k(made, right, k)] for made, right in solved if made >= k]
    return clusters


def _means(samples: Sequence[StoredGroup], background: Background) -> Numbers:
    """Average what has no error: over all attempts, those that came or those scored."""
    rollouts = [rollout for sample in samples for rollout in sample.rollouts]
    given = [r for r in rollouts if r.length is not None]
    chance, no_reasoning = background.floors, background.no_reasoning_floors
    values = {
        "unscored": [float(not r.scored) for r in rollouts],
        "format_failures": [float(r.status in FORMAT_FAILURES) for r in given],
        "truncated": [float(r.truncated) for r in given],
        "completion_tokens": [float(r.length or 0) for r in given],
        "reward": [r.score for r in rollouts if r.scored],
        "chance": [floor for floor, _ in _against(chance, samples)],
        "no_reasoning_floor": [floor for floor, _ in _against(no_reasoning, samples)],
        "above_chance": [
            float(r.solved) - floor for floor, r in _against(_higher(chance, no_reasoning), samples)
        ],
    }
    return {name: _mean(own) for name, own in values.items() if own}


def _higher(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Take the higher floor of each task."""
    return {task: max(first.get(task, 0.0), second.get(task, 0.0)) for task in {*first, *second}}


def _against(
    floors: Mapping[str, float], samples: Iterable[StoredGroup]
) -> list[tuple[float, StoredRollout]]:
    """Pair the scored rollouts at the default configuration, where floors apply, with theirs."""
    return [
        (floors[sample.task], rollout)
        for sample in samples
        if sample.difficulty is None and sample.task in floors
        for rollout in sample.scored
    ]


def _statuses(samples: Iterable[StoredGroup]) -> dict[Status, float]:
    statuses = [rollout.status for sample in samples for rollout in sample.rollouts]
    return {status: statuses.count(status) / len(statuses) for status in Status}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _below(prefix: str, numbers: Mapping[str, float]) -> Numbers:
    return {f"{prefix}/{name}": value for name, value in numbers.items()}
