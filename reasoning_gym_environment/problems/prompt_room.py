"""Which levels have questions too long for a run's token budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

LEAST = 5
"""So many questions without room are needed: single long ones are no trait of a level."""


class PromptRoom:
    """Counts, for each level of each task, the questions with and without room.

    Example:
        >>> room = PromptRoom()
        >>> [room.too_long("gcd", 3, fits=False) for _ in range(5)]
        [False, False, False, False, True]
    """

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, int, bool]] = Counter()

    def too_long(self, task: str, level: int, *, fits: bool) -> bool:
        """Count one more question; whether most questions of its level have no room."""
        self._seen[task, level, fits] += 1
        without = self._seen[task, level, False]
        return without >= LEAST and without > self._seen[task, level, True]

    def state_dict(self) -> list[Any]:
        """JSON."""
        return [[*key, count] for key, count in self._seen.items()]

    def load_state_dict(self, state: Iterable[Any]) -> None:
        self._seen = Counter({(task, level, fits): count for task, level, fits, count in state})
