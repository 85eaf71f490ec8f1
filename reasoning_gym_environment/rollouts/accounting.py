"""Accounting of groups: every group that starts has exactly one outcome, whatever goes wrong.

    started   = collected + lost + interrupted + generating
    collected = sent + written + refused + send_failures + cancelled + unscored + filtered
                + in_flight

At the end of a run, `generating` and `in_flight` are 0.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum


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
    """Counts groups as `groups/<name>`.

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
