"""The chance that a group has signal: some of its rollouts solve the problem and some don't.

Each level of each task has a Beta distribution of that chance. Drawing by weight and accepting
what was drawn with a chance taken from its distribution draws in proportion to weight times
estimated chance (posterior sampling after Thompson, Biometrika 25, 1933), in a time that
depends neither on the number of tasks nor on the length of the run.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

PRIOR = 0.5
"""Of both counts: Jeffreys' prior, which expects chances near 0 or 1 more than between."""

FLOOR = 0.05
"""Nothing is accepted with a smaller chance, so that everything is seen again."""

HALF_LIFE = 20
"""Half of an estimate's weight is gone when so many groups have been drawn for each task."""


class SignalEstimates:
    """What is known about the signal of the groups at each level; what is not renewed fades.

    A level that was not seen lately, because the task has moved or other tasks had more
    signal, is as uncertain as a new one and so comes back.

    Args:
        tasks: all of the run.
    """

    def __init__(self, tasks: Collection[str]) -> None:
        self._tasks = frozenset(tasks)
        self._half_life = HALF_LIFE * len(self._tasks)
        self._counts: dict[tuple[str, int | None], tuple[float, float, int]] = {}

    def _aged(self, task: str, level: int | None, draw: int) -> tuple[float, float]:
        """Age the groups with and without signal: as much as they still count."""
        mixed, flat, since = self._counts.get((task, level), (0.0, 0.0, draw))
        keep = 0.5 ** ((draw - since) / self._half_life)
        return keep * mixed, keep * flat

    def chance(self, task: str, level: int | None, draw: int, rng: random.Random) -> float:
        """Draw a chance from what is believed at a draw, not below FLOOR."""
        mixed, flat = self._aged(task, level, draw)
        return max(FLOOR, rng.betavariate(PRIOR + mixed, PRIOR + flat))

    def record(self, task: str, level: int | None, draw: int, *, mixed: bool) -> None:
        """Learn from a group that came back when `draw` recipes had been drawn."""
        had, lacked = self._aged(task, level, draw)
        self._counts[task, level] = (had + mixed, lacked + (not mixed), draw)

    def state_dict(self) -> list[Any]:
        """Give what is known as JSON."""
        return [[*key, *counts] for key, counts in self._counts.items()]

    def load_state_dict(self, state: list[Any]) -> None:
        """Take over what is known about the tasks of this run."""
        self._counts = {
            (task, level): (mixed, flat, since)
            for task, level, mixed, flat, since in state
            if task in self._tasks
        }
