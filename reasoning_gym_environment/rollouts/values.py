"""The numbers of a rollout and of a group, and their means."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ..records import ATROPOS_SOLVED_SCORE, Attempt, GroupResult, Signal, Status
from ..scoring.grading import signal
from ..tasks.facts import LIBRARY, known_categories


@dataclass(slots=True)
class Mean:
    """A running mean; its count tells a mean of 0 from no data."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1

    def merge(self, other: Mean) -> None:
        self.total += other.total
        self.count += other.count

    @property
    def value(self) -> float:
        """The mean; NaN without values."""
        return self.total / self.count if self.count else math.nan


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
        for name, mean in other._means.items():
            self._means[name].merge(mean)

    def since(self, earlier: Means) -> Means:
        """Return the means of the values added since an earlier state."""
        difference = Means()
        for name, mean in self._means.items():
            before = earlier[name]
            difference._means[name] = Mean(
                mean.total - before.total, mean.count - before.count
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
    completion = attempt.completion
    verdict = attempt.verdict
    values = {
        f"status/{status.value}": float(verdict.status is status) for status in Status
    }
    if not completion.length:  # the server returned none
        return values
    values["truncated"] = float(completion.truncated)
    values["completion_tokens"] = float(completion.completion_tokens)
    if verdict.status is not Status.UNSCORED and verdict.score is not None:
        values["solved"] = float(verdict.status is Status.SOLVED)
        values["percent_correct"] = float(verdict.score >= ATROPOS_SOLVED_SCORE)
        values["score"] = verdict.score
        values["reward"] = attempt.reward.value
    return values


def group_values(
    group: GroupResult, categories: Mapping[str, str]
) -> list[dict[str, float]]:
    """Return the averaged numbers of a group: one mapping for each rollout, one for its signal.

    Rollouts count overall, and their score and solved share by category and task as well. The
    signal counts overall, by category, task and level. With a user's own tasks, both count by
    source too: a module or the library.
    """
    recipe = group.problem.recipe
    scopes = [f"category/{categories[recipe.task]}/", f"task/{recipe.task}/"]
    if not categories.keys() <= known_categories().keys():
        scopes.append(f"source/{group.problem.source or LIBRARY}/")
    counted = []
    for attempt in group.attempts:
        values = attempt_values(attempt)
        for scope in scopes:
            for name in ("solved", "score"):
                if name in values:
                    values[f"{scope}{name}"] = values[name]
        counted.append(values)
    group_signal = signal([attempt.verdict for attempt in group.attempts])
    if group_signal is None:
        return counted
    scopes_of_signal = ["", *scopes]
    if recipe.level is not None:
        scopes_of_signal.append(f"task/{recipe.task}/level/{recipe.level}/")
    of_signal = {}
    for scope in scopes_of_signal:
        for kind in Signal:
            of_signal[f"{scope}groups/{kind.value}"] = float(kind is group_signal)
    return [*counted, of_signal]
