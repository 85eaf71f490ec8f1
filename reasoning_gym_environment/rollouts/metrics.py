"""What a run counts: means since the last report and over the whole run, and events.

A mean carries its sum and count, so that 0 and nothing stay apart.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..records import Attempt, GroupResult, Signal, Status
from ..scoring.rewards import signal
from ..util.text import replace_surrogates
from .books import Books

_SHARES = {status: f"status/{status.value}" for status in Status}
"""The share of rollouts with a status, by status."""


@dataclass(slots=True)
class Mean:
    """A running mean of numbers in any order. Mutable: it is an accumulator."""

    total: float = 0.0
    squares: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.total += value
        self.squares += value * value
        self.count += 1

    def merge(self, other: Mean) -> None:
        """Add all that was added to another mean."""
        self.total += other.total
        self.squares += other.squares
        self.count += other.count

    @property
    def value(self) -> float:
        """The mean; NaN where nothing was added."""
        return self.total / self.count if self.count else math.nan

    @property
    def standard_error(self) -> float:
        """The mean's standard error, from the unbiased sample variance; NaN below two values."""
        if self.count < 2:
            return math.nan
        variance = max(0.0, self.squares - self.total**2 / self.count) / (self.count - 1)
        return math.sqrt(variance / self.count)


class Means:
    """Keeps means by name.

    Example:
        >>> means = Means()
        >>> means.add({"solved": 1.0}); means.add({"solved": 0.0})
        >>> means.values()
        {'solved': 0.5}
    """

    def __init__(self) -> None:
        self._means: defaultdict[str, Mean] = defaultdict(Mean)

    def add(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._means[name].add(value)

    def merge(self, other: Means) -> None:
        """Add all that was added to others."""
        for name, mean in other._means.items():
            self._means[name].merge(mean)

    def __getitem__(self, name: str) -> Mean:
        return self._means[name] if name in self._means else Mean()

    def values(self) -> dict[str, float]:
        return {name: mean.value for name, mean in sorted(self._means.items())}

    def counts(self) -> dict[str, int]:
        return {name: mean.count for name, mean in sorted(self._means.items())}


def attempt_values(attempt: Attempt) -> dict[str, float]:
    """List the averaged numbers of one rollout; an unscored one says only that it is."""
    completion, verdict = attempt.completion, attempt.verdict
    values = {name: float(verdict.status is status) for status, name in _SHARES.items()}
    if not completion.tokens:  # the server gave none: there is nothing to measure
        return values
    values["truncated"] = float(completion.truncated)
    values["completion_tokens"] = float(completion.completion_tokens)
    if verdict.status is not Status.UNSCORED and verdict.score is not None:
        values["solved"] = float(verdict.status is Status.SOLVED)
        values["score"] = verdict.score
        values["reward"] = attempt.reward.value
    return values


def by_task_and_category(
    name: str, group: GroupResult, categories: Mapping[str, str]
) -> tuple[str, str]:
    """Name the keys under which a group's number is kept for its category and its task."""
    task = group.problem.recipe.task
    return f"category/{categories[task]}/{name}", f"task/{task}/{name}"


def signal_values(
    kind: Signal, group: GroupResult, categories: Mapping[str, str]
) -> dict[str, float]:
    """Count a group's signal overall, for its category, its task, and the task's level if any."""
    recipe = group.problem.recipe
    values: dict[str, float] = {}
    for one in Signal:
        key = f"groups/{one.value}"
        keys = [key, *by_task_and_category(key, group, categories)]
        if recipe.level is not None:
            keys.append(f"task/{recipe.task}/level/{recipe.level}/{key}")
        values |= dict.fromkeys(keys, float(one is kind))
    return values


def group_values(group: GroupResult, categories: Mapping[str, str]) -> list[dict[str, float]]:
    """List what counts of a group.

    That is its rollouts overall, their solved share by category and task, and its signal.
    """
    counted = []
    own = {name: by_task_and_category(name, group, categories) for name in ("solved", "score")}
    for attempt in group.attempts:
        values = attempt_values(attempt)
        counted.append(values)
        for name, keys in own.items():
            if name in values:
                counted.append(dict.fromkeys(keys, values[name]))
    kind = signal([attempt.verdict for attempt in group.attempts])
    if kind is not None:
        counted.append(signal_values(kind, group, categories))
    return counted


class Statistics:
    """Counts what a run does: its rollouts and groups as means, and events.

    Attributes:
        interval: means since `take_report` was last called.
        counts: events over the whole run, by name.
        books: the groups among them.
    """

    def __init__(self) -> None:
        self.interval = Means()
        self._reported = Means()
        self.counts: Counter[str] = Counter()
        self.books = Books(self.counts)

    @property
    def total(self) -> Means:
        """The means over the whole run."""
        total = Means()
        total.merge(self._reported)
        total.merge(self.interval)
        return total

    def add_group(self, group: GroupResult, categories: Mapping[str, str]) -> None:
        self.books.collect()
        for values in group_values(group, categories):
            self.interval.add(values)
        errors = sum(attempt.verdict.errors for attempt in group.attempts)
        if errors:
            self.counts[f"verifier_errors/{group.problem.recipe.task}"] += errors
        if broken := sum(replace_surrogates(a.completion.text)[1] > 0 for a in group.attempts):
            self.counts["rollouts/broken_text"] += broken

    def take_report(self) -> dict[str, float]:
        """Give wandb's `train/*` since the last call, and the run's `counts/*`."""
        taken, self.interval = self.interval, Means()
        self._reported.merge(taken)
        report = {f"train/{name}": value for name, value in taken.values().items()}
        if "train/solved" in report:
            report["train/percent_correct"] = report["train/solved"]
        counts = {**self.counts, **self.books.owed()}
        return report | {f"counts/{name}": float(n) for name, n in sorted(counts.items())}


def signal_line(means: Means, of: str = "") -> str:
    """Write the share of groups that teach, in one line.

    Args:
        of: where the shares are kept: "", or "category/games/" for example.

    Example:
        >>> signal_line(Means())
        '0 groups'
    """
    mixed, solved, unsolved = (means[f"{of}groups/{one.value}"] for one in Signal)
    if not mixed.count:
        return "0 groups"
    return (
        f"{mixed.count} groups: {mixed.value:.0%} with signal, {solved.value:.0%} all solved, "
        f"{unsolved.value:.0%} none solved"
    )


def signal_lines(means: Means, categories: Iterable[str]) -> list[str]:
    """Write a `signal_line` for all groups, and for each category that has any."""
    names = {f"category/{category}/": category for category in sorted(set(categories))}
    seen = {
        of: name for of, name in names.items() if means[f"{of}groups/{Signal.MIXED.value}"].count
    }
    return [
        signal_line(means),
        *(f"{name}: {signal_line(means, of)}" for of, name in seen.items()),
    ]
