"""The outcome of every group, and the statistics of a run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum

from ..records import GroupResult
from ..util.values import replace_surrogates
from .values import Means, group_values

item_counts: ContextVar[Counter[str]] = ContextVar("work")
"""Counts of the item at work, in this task and those that it started: groups that the statistics
know, that were handed out, delivered and lost."""


class GroupOutcome(str, Enum):
    """What became of a collected group; the value is its name among the counts."""

    SENT = "sent"
    """Accepted by the API."""
    WRITTEN = "written"
    """Written to a file, in `process`."""
    REFUSED = "refused"
    """Refused as invalid, before or by the API."""
    FAILED = "send_failures"
    CANCELLED = "cancelled"
    UNSCORED = "unscored"
    """No rollout has a score."""
    DROPPED = "dropped"
    """Dropped by a subclass."""
    FILTERED = "filtered"
    """No trainer learns from equal scores."""
    TOO_LONG = "too_long"
    """The trainer has no room for one of its rows."""


class Statistics:
    """The metrics of a run: means, event counts, and the accounting of its groups.

    Groups are counted as `groups/<name>`, and each has exactly one outcome: started = collected +
    lost + interrupted + generating, and collected = all outcomes + in_flight. At the end of a run,
    generating and in_flight are 0.

    Attributes:
        categories: category by task; set before the first group finishes.
        interval: means since the last `take_report`.
        counts: events of the whole run.

    Example:
        >>> statistics = Statistics()
        >>> with statistics.generating(lost_on=ConnectionError), statistics.delivering():
        ...     statistics.record_collected()
        ...     statistics.record(GroupOutcome.SENT)
        >>> statistics.accounting().split(";")[0]
        '1 started = 1 collected'
        >>> statistics.unaccounted()
        {'groups/generating': 0, 'groups/in_flight': 0}
    """

    def __init__(self) -> None:
        self.categories: Mapping[str, str] = {}
        self.interval = Means()
        self.counts: Counter[str] = Counter()
        self._reported = Means()
        self._unreported = Means()

    @contextmanager
    def generating(self, *, lost_on: type[BaseException]) -> Iterator[None]:
        """Start a group; `lost_on` counts it as lost, any other exception as interrupted."""
        self.counts["groups/started"] += 1
        item_counts.get(Counter())["known"] += 1
        try:
            yield
        except lost_on:
            self.counts["groups/lost"] += 1
            item_counts.get(Counter())["lost"] += 1
            raise
        except BaseException:
            self.counts["groups/interrupted"] += 1
            raise

    def record_collected(self) -> None:
        self.counts["groups/collected"] += 1
        self._unreported.add({"groups": 1.0})

    def hand_out(self) -> None:
        """Note that a collected group leaves for delivery, perhaps through a subclass."""
        item_counts.get(Counter()).update(["known", "handed_out"])

    def begin_delivery(self) -> None:
        """Note that a group is delivered; beyond those handed out, a subclass has made it."""
        work = item_counts.get(None)
        if work is not None:
            if work["delivered"] == work["handed_out"]:
                self._collect_own()
            work["delivered"] += 1

    def _collect_own(self) -> None:
        self.counts["groups/started"] += 1
        self.record_collected()
        self.hand_out()

    @contextmanager
    def working(self, *, lost_on: type[BaseException]) -> Iterator[Counter[str]]:
        """Account for an item's groups, those that a subclass makes, changes or drops as well.

        An item without a group counts as a dropped one, or as `generating` counts what raises.
        """
        work = Counter[str]()
        outcome = GroupOutcome.CANCELLED
        token = item_counts.set(work)
        try:
            yield work
            outcome = GroupOutcome.DROPPED
            if not work["known"]:
                self._collect_own()
        except BaseException as error:
            if isinstance(error, Exception):
                outcome = GroupOutcome.FAILED
            if not work["known"]:
                with self.generating(lost_on=lost_on):
                    raise
            raise
        finally:
            item_counts.reset(token)
            for _ in range(work["handed_out"] - work["delivered"]):
                self.record(outcome)

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
        self.counts[f"groups/{outcome.value}"] += 1
        item_counts.get(Counter()).update(["known", outcome.value])

    def unaccounted(self) -> dict[str, int]:
        """Count the groups without an outcome by stage; empty before the first group."""
        if not self.counts["groups/started"]:
            return {}
        generated = sum(
            self.counts[f"groups/{n}"] for n in ("collected", "lost", "interrupted")
        )
        delivered = sum(
            self.counts[f"groups/{outcome.value}"] for outcome in GroupOutcome
        )
        return {
            "groups/generating": self.counts["groups/started"] - generated,
            "groups/in_flight": self.counts["groups/collected"] - delivered,
        }

    def accounting(self) -> str:
        """Format the counts of groups as two sums, without what did not happen."""

        def counted(*names: str) -> str:
            count_by_name = {name: self.counts[f"groups/{name}"] for name in names}
            shown = [
                f"{count} {name}" for name, count in count_by_name.items() if count
            ]
            return " + ".join(shown) or f"0 {names[0]}"

        started = counted("collected", "lost", "interrupted")
        text = f"{counted('started')} = {started}"
        if self.counts["groups/collected"]:
            outcomes = counted(*(outcome.value for outcome in GroupOutcome))
            text += f"; {counted('collected')} = {outcomes}"
        return text

    @property
    def total(self) -> Means:
        """The means over the whole run, and `groups` and `level`, which reports leave out."""
        total = Means()
        for means in (self._reported, self.interval, self._unreported):
            total.merge(means)
        return total

    def group_finished(self, group: GroupResult) -> None:
        """Count a scored group."""
        self.record_collected()
        for values in group_values(group, self.categories):
            self.interval.add(values)
        recipe = group.problem.recipe
        level = {} if recipe.level is None else {"level": float(recipe.level)}
        self._unreported.add(level)
        errors = sum(attempt.verdict.errors for attempt in group.attempts)
        if errors:
            self.counts[f"verifier_errors/{recipe.task}"] += errors
        ended = [attempt.completion.finish_reason for attempt in group.attempts]
        others = sum(reason not in ("stop", "length") for reason in ended)
        if others:
            self.counts["rollouts/ended_otherwise"] += others
        broken = sum(
            replace_surrogates(a.completion.text)[1] > 0 for a in group.attempts
        )
        if broken:
            self.counts["rollouts/broken_text"] += broken

    def take_report(self) -> dict[str, float]:
        """Return wandb's `train/*` since the last call, and the run's `counts/*`."""
        taken = self.interval
        self.interval = Means()
        self._reported.merge(taken)
        report = {f"train/{name}": value for name, value in taken.values().items()}
        return report | {
            f"counts/{name}": float(n) for name, n in self.reported_counts().items()
        }

    def reported_counts(self) -> dict[str, int]:
        """Return the event counts and the groups in progress."""
        return dict(sorted({**self.counts, **self.unaccounted()}.items()))
