"""The chance that a task's next group has signal: some rollouts solve it and some don't.

Each task has a Beta distribution of that chance. Drawing tasks by weight and accepting each
with a chance drawn from its distribution draws them in proportion to weight times estimated
chance (posterior sampling after Thompson, Biometrika 25, 1933), in a time that depends neither
on the number of tasks nor on the length of the run.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from typing import Any

PRIOR = 0.5
"""Of both counts: Jeffreys' prior, which expects chances near 0 or 1 more than between."""

FLOOR = 0.05
"""No task is accepted with a smaller chance, so that each one is seen again."""

HALF_LIFE = 10
"""Half of an estimate's weight is gone when so many groups have been drawn for each task."""


class SignalEstimates:
    """What is known about the signal of each task's groups; what is not renewed fades.

    Args:
        tasks: all tasks of the run.
    """

    def __init__(self, tasks: Collection[str]) -> None:
        self._half_life = HALF_LIFE * len(tasks)
        self._counts = dict.fromkeys(tasks, (0.0, 0.0, 0))

    def _aged(self, task: str, draw: int) -> tuple[float, float]:
        mixed, flat, since = self._counts[task]
        keep = 0.5 ** ((draw - since) / self._half_life)
        return keep * mixed, keep * flat

    def chance(self, task: str, draw: int, rng: random.Random) -> float:
        """A chance drawn from what is believed at a draw, not below FLOOR."""
        mixed, flat = self._aged(task, draw)
        return max(FLOOR, rng.betavariate(PRIOR + mixed, PRIOR + flat))

    def record(self, task: str, draw: int, *, mixed: bool) -> None:
        """Learn from a group that came back when `draw` recipes had been drawn."""
        had, lacked = self._aged(task, draw)
        self._counts[task] = (had + mixed, lacked + (not mixed), draw)

    def widen(self, task: str, levels: float) -> None:
        """The task has moved by so many levels: half of what was known remains for each."""
        mixed, flat, since = self._counts[task]
        keep = 0.5**levels
        self._counts[task] = (keep * mixed, keep * flat, since)

    def state_dict(self) -> dict[str, Any]:
        """JSON."""
        return {task: list(counts) for task, counts in self._counts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what is known about the tasks still in use."""
        for task, (mixed, flat, since) in state.items():
            if task in self._counts:
                self._counts[task] = (mixed, flat, since)
