"""A group's life from the request to what became of it, and the statistics of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum

from ..records import GroupResult
from ..util.values import replace_surrogates
from .values import Means, group_values


class GroupOutcome(str, Enum):
    """What became of a group; the value is its name among the counts."""

    LOST = "lost"
    """No valid completions came in time."""
    INTERRUPTED = "interrupted"
    """Its collection was cancelled, or raised an error that is not the server's."""
    SENT = "sent"
    """Accepted by the API."""
    WRITTEN = "written"
    """Written to a file, in `process`."""
    REFUSED = "refused"
    """Refused as invalid, before or by the API."""
    FAILED = "send_failures"
    """Could not be sent or written, or a subclass raised while it was delivered."""
    CANCELLED = "cancelled"
    """Had not arrived when the run ended."""
    UNSCORED = "unscored"
    """No rollout has a score."""
    DROPPED = "dropped"
    """Dropped by a subclass."""
    FILTERED = "filtered"
    """No trainer learns from equal scores."""
    TOO_LONG = "too_long"
    """The trainer has no room for one of its rows."""


NOT_COLLECTED = (GroupOutcome.LOST, GroupOutcome.INTERRUPTED)
"""The outcomes of groups that were requested, and not collected."""

COLLECTED = tuple(outcome for outcome in GroupOutcome if outcome not in NOT_COLLECTED)
"""The outcomes of groups that were collected."""


class Group:
    """One group of completions: it is requested, collected, and has one outcome.

    Attributes:
        is_collected: whether its completions have come.
        outcome: what became of it; None while it goes on.
    """

    def __init__(self, statistics: Statistics) -> None:
        self.is_collected = False
        self.outcome: GroupOutcome | None = None
        self._statistics = statistics

    def mark_collected(self) -> None:
        """Note that the completions have come; raises RuntimeError the second time."""
        if self.outcome is not None:
            raise RuntimeError(f"the group has ended already: {self.outcome.value}")
        if self.is_collected:
            raise RuntimeError("the group has been collected already")
        self.is_collected = True
        self._statistics.record_collected()

    def end(self, outcome: GroupOutcome) -> None:
        """Set what became of the group.

        Raises:
            RuntimeError: the group has ended already, or its stage has no such outcome.
        """
        if self.outcome is not None:
            raise RuntimeError(
                f"the group has ended as {self.outcome.value}, so not as {outcome.value}"
            )
        if self.is_collected == (outcome in NOT_COLLECTED):
            stage = "collected" if self.is_collected else "requested"
            raise RuntimeError(f"a group that is {stage} can't end as {outcome.value}")
        self.outcome = outcome
        self._statistics.record_outcome(outcome)


class Statistics:
    """The metrics of a run: means, event counts, and the accounting of its groups.

    Groups are counted as `groups/<name>`, and each has exactly one outcome: started = collected +
    lost + interrupted + generating, and collected = all other outcomes + in_flight. At the end of a
    run, generating and in_flight are 0.

    Attributes:
        categories: category by task, as `use_categories` sets it.
        interval: means since the last `take_report`.
        counts: events of the whole run.

    Example:
        >>> statistics = Statistics()
        >>> group = statistics.begin_group()
        >>> group.mark_collected()
        >>> group.end(GroupOutcome.SENT)
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

    def use_categories(self, categories: Mapping[str, str]) -> None:
        """Count by these categories of tasks from now on."""
        self.categories = categories

    def begin_group(self) -> Group:
        """Return a group whose completions are requested from now on."""
        self.counts["groups/started"] += 1
        return Group(self)

    def record_collected(self) -> None:
        self.counts["groups/collected"] += 1
        self._unreported.add({"groups": 1.0})

    def record_outcome(self, outcome: GroupOutcome) -> None:
        self.counts[f"groups/{outcome.value}"] += 1

    def outcomes(self) -> dict[str, int]:
        """Return the number of groups by what became of them, without what did not happen."""
        counts = {
            outcome.value: self.counts[f"groups/{outcome.value}"]
            for outcome in GroupOutcome
        }
        return {name: count for name, count in counts.items() if count}

    def unaccounted(self) -> dict[str, int]:
        """Count the groups without an outcome by stage; empty before the first group."""
        if not self.counts["groups/started"]:
            return {}
        collected = self.counts["groups/collected"]
        not_collected = sum(self.counts[f"groups/{end.value}"] for end in NOT_COLLECTED)
        ended = sum(self.counts[f"groups/{end.value}"] for end in COLLECTED)
        return {
            "groups/generating": self.counts["groups/started"]
            - collected
            - not_collected,
            "groups/in_flight": collected - ended,
        }

    def accounting(self) -> str:
        """Format the counts of groups as two sums, without what did not happen."""

        def counted(*names: str) -> str:
            count_by_name = {name: self.counts[f"groups/{name}"] for name in names}
            nonzero_counts = [
                f"{count} {name}" for name, count in count_by_name.items() if count
            ]
            return " + ".join(nonzero_counts) or f"0 {names[0]}"

        started = counted("collected", *(end.value for end in NOT_COLLECTED))
        text = f"{counted('started')} = {started}"
        if self.counts["groups/collected"]:
            outcomes = counted(*(outcome.value for outcome in COLLECTED))
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
        """Count the rollouts of a scored group."""
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
