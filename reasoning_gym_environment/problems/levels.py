"""The choice of a level on a task's ladder, with caps on levels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..errors import ConfigurationError
from ..records import Ladder


class ComplexityMode(str, Enum):
    """How the level of a training problem is chosen."""

    RANDOM = "random"
    CURRICULUM = "curriculum"
    FIXED = "fixed"


def require_difficulty_where_fixed(mode: ComplexityMode | None, difficulty: float | None) -> None:
    """Check that a difficulty is set if and only if the mode is fixed.

    Raises:
        ConfigurationError: it isn't, or the difficulty is not in [0, 1].
    """
    fixed, given = mode is ComplexityMode.FIXED, difficulty is not None
    if fixed != given or not 0 <= (difficulty or 0) <= 1:
        raise ConfigurationError(
            f"difficulty must be {'a number from 0 to 1' if fixed else 'unset'} with "
            f"complexity_mode {mode.value if mode else 'unset'}, "
            f"got {difficulty if given else 'unset'}"
        )


def position_of(difficulty: float, height: int) -> float:
    """Return the position of a difficulty in [0, 1] on a ladder: in [0, height - 1]."""
    return difficulty * (height - 1)


def level_at(position: float, uniform: float) -> int:
    """Return the level at a position; between two levels, both occur in proportion.

    Args:
        position: on the ladder, at least 0.
        uniform: a random number in [0, 1).

    Example:
        >>> level_at(2.25, 0.1), level_at(2.25, 0.9)
        (3, 2)
    """
    lower = int(position)
    return lower + (uniform < position - lower)


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A task's move along its ladder.

    Attributes:
        before, after: positions on the ladder, between levels if fractional.
        top: the highest level the run may draw.
        solved_share: of the answers expected at `before`, in [0, 1].
        target: the target share.
    """

    task: str
    before: float
    after: float
    top: int
    solved_share: float
    target: float

    def __str__(self) -> str:
        return (
            f"{self.task}: level {self.before:.2f} -> {self.after:.2f} of {self.top} "
            f"({self.solved_share:.2f} solved, target {self.target:.2f})"
        )


class LevelPolicy(ABC):
    """The choice of levels on the ladders of a run's tasks.

    Args:
        ladders: task name to its levels, for all tasks of the run; empty if none is used.
    """

    def __init__(self, ladders: Mapping[str, Ladder]) -> None:
        self._ladders = ladders
        self._tops = {task: len(ladder) - 1 for task, ladder in self._ladders.items()}

    @abstractmethod
    def level(self, task: str, uniform: float) -> int | None:
        """Return the level of the next problem; None is the library's default configuration.

        Args:
            uniform: a random number in [0, 1).
        """

    def has(self, task: str, level: int | None) -> bool:
        """Return whether a task has this level."""
        return level is None or level in range(len(self._ladders.get(task, ())))

    def parameters(self, task: str, level: int | None) -> Mapping[str, Any]:
        """Return the parameters of a level."""
        return {} if level is None else self._ladders[task][int(level)]

    def record(self, task: str, level: int | None, *, solved: int, scored: int) -> Move | None:
        """Learn from a group: `solved` of its `scored` rollouts, at least one."""
        return None

    def cap(self, task: str, top_level: int) -> bool:
        """Stop drawing levels above `top_level`, except the easiest; return whether this is new."""
        if task not in self._tops:  # another mode drew the recipe
            return False
        before = self._tops[task]
        self._tops[task] = max(0, min(top_level, before))
        return self._tops[task] < before

    def state_dict(self) -> dict[str, Any]:
        """Return the caps as JSON."""
        heights = {task: len(ladder) for task, ladder in self._ladders.items()}
        return {
            "caps": {
                task: {"top_level": top, "height": heights[task]}
                for task, top in self._tops.items()
                if top < heights[task] - 1
            }
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the caps, except those of ladders that now have another height."""
        for task, cap in state.get("caps", {}).items():
            if len(self._ladders.get(task, ())) == cap["height"]:
                self.cap(task, cap["top_level"])


class DefaultLevels(LevelPolicy):
    """The library's default configuration for every task."""

    def __init__(self) -> None:
        super().__init__({})

    def level(self, task: str, uniform: float) -> None:
        return None


class RandomLevels(LevelPolicy):
    """Levels drawn uniformly."""

    def level(self, task: str, uniform: float) -> int:
        return int(uniform * (self._tops[task] + 1))


class FixedLevels(LevelPolicy):
    """Levels of one difficulty.

    Args:
        difficulty: in [0, 1], from the easiest level of every ladder to its hardest.
    """

    def __init__(self, ladders: Mapping[str, Ladder], difficulty: float) -> None:
        super().__init__(ladders)
        self._difficulty = difficulty

    def level(self, task: str, uniform: float) -> int:
        position = position_of(self._difficulty, len(self._ladders[task]))
        return min(level_at(position, uniform), self._tops[task])
