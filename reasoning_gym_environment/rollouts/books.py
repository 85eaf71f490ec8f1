"""The books of a run: every group that was begun has exactly one end, whatever went wrong.

    begun     = collected + lost + interrupted + asked
    collected = sent + written + refused + send_failures + cancelled + unscored + filtered
                + on_the_way

At the end of a run nothing is asked for any more, and nothing is on its way.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum


class End(str, Enum):
    """How a collected group ends; the value is its name among the counts.

    Sent to the API or written to a file; refused, as unsound by us or by the API; failed on the
    way; cancelled on the way; without a scored rollout; filtered, since no trainer learns from it.
    """

    SENT = "sent"
    WRITTEN = "written"
    REFUSED = "refused"
    FAILED = "send_failures"
    CANCELLED = "cancelled"
    UNSCORED = "unscored"
    FILTERED = "filtered"


class Books:
    """Counts groups as `groups/<name>`.

    Example:
        >>> books = Books(Counter())
        >>> with books.asking(lost_by=ConnectionError), books.settling():
        ...     books.collect()
        ...     books.end(End.SENT)
        >>> str(books).split(";")[0]
        '1 begun = 1 collected + 0 lost + 0 interrupted'
        >>> books.owed()
        {'groups/asked': 0, 'groups/on_the_way': 0}
    """

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts

    @contextmanager
    def asking(self, *, lost_by: type[BaseException]) -> Iterator[None]:
        """Begin a group; this exception loses it, and any other interrupts it."""
        self._add("begun")
        try:
            yield
        except lost_by:
            self._add("lost")
            raise
        except BaseException:
            self._add("interrupted")
            raise

    def collect(self) -> None:
        """Note that a group's completions came and are scored."""
        self._add("collected")

    @contextmanager
    def settling(self) -> Iterator[None]:
        """End a collected group that leaves the body by an exception: cancelled, or failed."""
        try:
            yield
        except asyncio.CancelledError:
            self.end(End.CANCELLED)
            raise
        except BaseException:
            self.end(End.FAILED)
            raise

    def end(self, end: End) -> None:
        """End a collected group."""
        self._add(end.value)

    def owed(self) -> dict[str, int]:
        """Count by name the groups that have no end yet: at the end of a run none.

        Empty before the first group.
        """
        if not self._count("begun"):
            return {}
        before = sum(map(self._count, ("collected", "lost", "interrupted")))
        ended = sum(self._count(end.value) for end in End)
        return {
            "groups/asked": self._count("begun") - before,
            "groups/on_the_way": self._count("collected") - ended,
        }

    def _add(self, name: str) -> None:
        self._counts[f"groups/{name}"] += 1

    def _count(self, name: str) -> int:
        return self._counts[f"groups/{name}"]

    def _sum(self, *names: str) -> str:
        return " + ".join(f"{self._count(name)} {name}" for name in names)

    def __str__(self) -> str:
        begun = self._sum("collected", "lost", "interrupted")
        collected = self._sum(*(end.value for end in End))
        return f"{self._sum('begun')} = {begun}; {self._sum('collected')} = {collected}"
