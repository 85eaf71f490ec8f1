"""Run metrics: means since the last report and over the whole run, event counts, accounting.

A mean carries its sum and count, which tells a mean of 0 from no data.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from ..records import Attempt, GroupResult, Signal, Status
from ..scoring.rewards import signal
from ..util.text import replace_surrogates

_SHARES = {status: f"status/{status.value}" for status in Status}
"""Status to the name of its share of rollouts."""

_OLD_COUNTS = MappingProxyType(
    {
        "groups/started": "groups/begun",
        "groups/generating": "groups/asked",
        "groups/in_flight": "groups/on_the_way",
        "problems/retried": "problems/asked_again",
        "sandbox/restarts": "workers/restarts",
        "sandbox/failed_starts": "workers/failed_starts",
    }
)
"""Count to its name in earlier versions, which reports still carry for dashboards."""


@dataclass(slots=True)
class Mean:
    """A running mean of numbers in any order; a mutable accumulator."""

    total: float = 0.0
    squares: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.total += value
        self.squares += value * value
        self.count += 1

    def merge(self, other: Mean) -> None:
        """Add the values of another mean."""
        self.total += other.total
        self.squares += other.squares
        self.count += other.count

    @property
    def value(self) -> float:
        """The mean; NaN without values."""
        return self.total / self.count if self.count else math.nan

    @property
    def standard_error(self) -> float:
        """The standard error, from the unbiased sample variance; NaN below two values."""
        if self.count < 2:
            return math.nan
        variance = max(0.0, self.squares - self.total**2 / self.count) / (self.count - 1)
        return math.sqrt(variance / self.count)


class Means:
    """Means by name.

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
        """Add the values of other means."""
        for name, mean in other._means.items():
            self._means[name].merge(mean)

    def since(self, earlier: Means) -> Means:
        """Return the means of the values added since an earlier state of these."""
        difference = Means()
        for name, mean in self._means.items():
            before = earlier[name]
            difference._means[name] = Mean(
                mean.total - before.total, mean.squares - before.squares, mean.count - before.count
            )
        return difference

    def __getitem__(self, name: str) -> Mean:
        return self._means[name] if name in self._means else Mean()

    def values(self) -> dict[str, float]:
        return {name: mean.value for name, mean in sorted(self._means.items())}

    def counts(self) -> dict[str, int]:
        return {name: mean.count for name, mean in sorted(self._means.items())}


def attempt_values(attempt: Attempt) -> dict[str, float]:
    """Return the averaged numbers of one rollout; an unscored one has its status alone."""
    completion, verdict = attempt.completion, attempt.verdict
    values = {name: float(verdict.status is status) for status, name in _SHARES.items()}
    if not completion.tokens:  # the server returned none
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
    """Return the keys of a group's number for its category and for its task."""
    task = group.problem.recipe.task
    return f"category/{categories[task]}/{name}", f"task/{task}/{name}"


def signal_values(
    kind: Signal, group: GroupResult, categories: Mapping[str, str]
) -> dict[str, float]:
    """Return a group's signal overall, for its category, its task and the task's level if any."""
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
    """Return the averaged numbers of a group.

    Those are its rollouts overall, their solved share by category and task, and its signal.
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


class GroupOutcome(str, Enum):
    """What became of a collected group; the value is its name among the counts."""

    SENT = "sent"
    """To the API."""
    WRITTEN = "written"
    """To a file, in `process`."""
    REFUSED = "refused"
    """As invalid, by us or by the API."""
    FAILED = "send_failures"
    CANCELLED = "cancelled"
    UNSCORED = "unscored"
    """No rollout has a score."""
    FILTERED = "filtered"
    """No trainer learns from it."""


class GroupAccounting:
    """Counts groups as `groups/<name>`: each has exactly one outcome, whatever goes wrong.

    started = collected + lost + interrupted + generating, and collected is the sum of all outcomes
    and in_flight. At the end of a run, generating and in_flight are 0.

    Example:
        >>> accounting = GroupAccounting(Counter())
        >>> with accounting.generating(lost_on=ConnectionError), accounting.delivering():
        ...     accounting.record_collected()
        ...     accounting.record(GroupOutcome.SENT)
        >>> str(accounting).split(";")[0]
        '1 started = 1 collected + 0 lost + 0 interrupted'
        >>> accounting.unaccounted()
        {'groups/generating': 0, 'groups/in_flight': 0}
    """

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts

    @contextmanager
    def generating(self, *, lost_on: type[BaseException]) -> Iterator[None]:
        """Start a group; `lost_on` counts it as lost, any other exception as interrupted."""
        self._add("started")
        try:
            yield
        except lost_on:
            self._add("lost")
            raise
        except BaseException:
            self._add("interrupted")
            raise

    def record_collected(self) -> None:
        """Count a group whose completions are scored."""
        self._add("collected")

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """Record a collected group as cancelled or failed if the body raises."""
        try:
            yield
        except asyncio.CancelledError:
            self.record(GroupOutcome.CANCELLED)
            raise
        except BaseException:
            self.record(GroupOutcome.FAILED)
            raise

    def record(self, outcome: GroupOutcome) -> None:
        """Record the outcome of a collected group."""
        self._add(outcome.value)

    def unaccounted(self) -> dict[str, int]:
        """Count the groups without an outcome by stage; empty before the first group."""
        if not self._count("started"):
            return {}
        generated = sum(map(self._count, ("collected", "lost", "interrupted")))
        delivered = sum(self._count(outcome.value) for outcome in GroupOutcome)
        return {
            "groups/generating": self._count("started") - generated,
            "groups/in_flight": self._count("collected") - delivered,
        }

    def _add(self, name: str) -> None:
        self._counts[f"groups/{name}"] += 1

    def _count(self, name: str) -> int:
        return self._counts[f"groups/{name}"]

    def _sum(self, *names: str) -> str:
        return " + ".join(f"{self._count(name)} {name}" for name in names)

    def __str__(self) -> str:
        started = self._sum("collected", "lost", "interrupted")
        collected = self._sum(*(outcome.value for outcome in GroupOutcome))
        return f"{self._sum('started')} = {started}; {self._sum('collected')} = {collected}"


class Statistics:
    """Run metrics: rollouts and groups as means, and event counts.

    Attributes:
        categories: category by task; set before the first group finishes.
        interval: means since the last `take_report`.
        counts: events over the whole run, by name.
        accounting: the groups among them.
    """

    def __init__(self) -> None:
        self.categories: Mapping[str, str] = {}
        self.interval = Means()
        self.counts: Counter[str] = Counter()
        self.accounting = GroupAccounting(self.counts)
        self._reported = Means()
        self._unreported = Means()

    @property
    def total(self) -> Means:
        """The means over the whole run, and `groups` and `level`, which reports leave out."""
        total = Means()
        for means in (self._reported, self.interval, self._unreported):
            total.merge(means)
        return total

    def group_finished(self, group: GroupResult) -> None:
        """Count a scored group."""
        self.accounting.record_collected()
        for values in group_values(group, self.categories):
            self.interval.add(values)
        recipe = group.problem.recipe
        level = {} if recipe.level is None else {"level": float(recipe.level)}
        self._unreported.add({"groups": 1.0, **level})
        errors = sum(attempt.verdict.errors for attempt in group.attempts)
        if errors:
            self.counts[f"verifier_errors/{recipe.task}"] += errors
        if broken := sum(replace_surrogates(a.completion.text)[1] > 0 for a in group.attempts):
            self.counts["rollouts/broken_text"] += broken

    def take_report(self) -> dict[str, float]:
        """Return wandb's `train/*` since the last call, and the run's `counts/*`."""
        taken, self.interval = self.interval, Means()
        self._reported.merge(taken)
        report = {f"train/{name}": value for name, value in taken.values().items()}
        if "train/solved" in report:
            report["train/percent_correct"] = report["train/solved"]
        return report | {f"counts/{name}": float(n) for name, n in self.reported_counts().items()}

    def reported_counts(self) -> dict[str, int]:
        """Return the event counts and the groups in progress, under current and old names."""
        counts = {**self.counts, **self.accounting.unaccounted()}
        old = {_OLD_COUNTS[name]: n for name, n in counts.items() if name in _OLD_COUNTS}
        return dict(sorted((counts | old).items()))


def signal_line(means: Means, of: str = "") -> str:
    """Format the shares of groups with and without learning signal.

    Args:
        of: prefix of the means: "", or "category/games/" for example.

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
    """Format a `signal_line` for all groups, and for each category that has any."""
    names = {f"category/{category}/": category for category in sorted(set(categories))}
    seen = {
        of: name for of, name in names.items() if means[f"{of}groups/{Signal.MIXED.value}"].count
    }
    return [
        signal_line(means),
        *(f"{name}: {signal_line(means, of)}" for of, name in seen.items()),
    ]
