"""What a run counts: means since the last report and over the whole run, and events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..records import GroupResult
from .metrics import Means, add_group


class Statistics:
    """Attributes:
    interval: means since `take_report` was last called.
    total: means over the whole run.
    counts: events over the whole run, by name.
    """

    def __init__(self) -> None:
        self.interval = Means()
        self.total = Means()
        self.counts: Counter[str] = Counter()

    def add_group(self, group: GroupResult, categories: Mapping[str, str]) -> None:
        for means in (self.interval, self.total):
            add_group(means, group, categories)
        self.counts["groups/collected"] += 1
        errors = sum(attempt.verdict.errors for attempt in group.attempts)
        if errors:
            self.counts[f"verifier_errors/{group.problem.recipe.task}"] += errors

    def take_report(self) -> dict[str, float]:
        """wandb's `train/*` since the last call, and the run's `counts/*`."""
        taken, self.interval = self.interval, Means()
        report = {f"train/{name}": value for name, value in taken.values().items()}
        if "train/solved" in report:
            report["train/percent_correct"] = report["train/solved"]
        return report | {f"counts/{name}": float(n) for name, n in sorted(self.counts.items())}
