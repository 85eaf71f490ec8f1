"""Which level of its ladder a task's next problem has, and which levels may not be drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..errors import ConfigurationError
from ..records import Ladder

LEAST_WITHOUT_ROOM = 5
"""So many questions without room are needed: single long ones are no trait of a level."""


class ComplexityMode(str, Enum):
    """Where on its ladder a task is trained."""

    RANDOM = "random"
    CURRICULUM = "curriculum"
    FIXED = "fixed"


def require_level_where_fixed(mode: ComplexityMode | None, level: float | None) -> None:
    """Refuse a complexity level without the mode that takes one, or the other way round.

    Raises:
        ConfigurationError: so it is, or the level is not in [0, 1].
    """
    if (mode is ComplexityMode.FIXED) != (level is not None) or not 0 <= (level or 0) <= 1:
        raise ConfigurationError(
            f"complexity_mode is {mode.value if mode else 'unset'} and complexity_level is "
            f"{'unset' if level is None else level}: fixed needs a level from 0 to 1, and no other "
            "mode takes one"
        )


def position_of(difficulty: float, height: int) -> float:
    """Place a difficulty in [0, 1] on a ladder of `height` levels: in [0, height - 1]."""
    return difficulty * (height - 1)


def level_at(position: float, uniform: float) -> int:
    """Choose the level at a position; in between levels mix, so that small steps change something.

    Args:
        position: on the ladder, 0 or more.
        uniform: a random number in [0, 1).

    Example:
        >>> level_at(2.25, 0.1), level_at(2.25, 0.9)
        (3, 2)
    """
    lower = int(position)
    return lower + (uniform < position - lower)


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A task's step along its ladder.

    Attributes:
        before, after: positions on the ladder, levels with a fraction.
        top: the highest level the run may draw.
        solved_share: of the answers expected at `before`, in [0, 1]; what caused the step.
        target: the share that is aimed at.
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
            f"({self.solved_share:.2f} solved, {self.target:.2f} wanted)"
        )


class Levels:
    """Chooses no level: every task has the library's default configuration.

    Args:
        ladders: task name to its levels, for all tasks of the run; empty where none is used.
    """

    def __init__(self, ladders: Mapping[str, Ladder] | None = None) -> None:
        self._ladders = ladders or {}
        self._tops = {task: len(ladder) - 1 for task, ladder in self._ladders.items()}

    def level(self, task: str, uniform: float) -> int | None:
        """Choose the level of the next problem; None is the library's default configuration.

        Args:
            uniform: a random number in [0, 1).
        """
        return None

    def parameters(self, task: str, level: int | None) -> Mapping[str, Any]:
        """Say what differs from the default configuration at a level."""
        return {} if level is None else self._ladders[task][level]

    def record(self, task: str, level: int | None, *, solved: int, scored: int) -> Move | None:
        """Learn from a group made at `level`: `solved` of its `scored` rollouts, at least one."""
        return None

    def cap(self, task: str, top_level: int) -> bool:
        """Never again draw a level above `top_level`; the easiest always stays.

        Returns:
            Whether that changes anything.
        """
        if task not in self._tops:  # a recipe that another mode has drawn
            return False
        before = self._tops[task]
        self._tops[task] = max(0, min(top_level, before))
        return self._tops[task] < before

    def state_dict(self) -> dict[str, Any]:
        """Give the caps as JSON."""
        heights = {task: len(ladder) for task, ladder in self._ladders.items()}
        return {
            "caps": {
                task: {"top_level": top, "height": heights[task]}
                for task, top in self._tops.items()
                if top < heights[task] - 1
            }
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what fits: a cap found on a ladder of another height says nothing here."""
        for task, cap in state.get("caps", {}).items():
            if len(self._ladders.get(task, ())) == cap["height"]:
                self.cap(task, cap["top_level"])


class RandomLevels(Levels):
    """Chooses a level for every draw, all equally likely."""

    def level(self, task: str, uniform: float) -> int:
        return int(uniform * (self._tops[task] + 1))


class FixedLevels(Levels):
    """Chooses the same difficulty throughout.

    Args:
        difficulty: in [0, 1], from the easiest level of every ladder to its hardest.
    """

    def __init__(self, ladders: Mapping[str, Ladder], difficulty: float) -> None:
        super().__init__(ladders)
        self._difficulty = difficulty

    def level(self, task: str, uniform: float) -> int:
        position = position_of(self._difficulty, len(self._ladders[task]))
        return min(level_at(position, uniform), self._tops[task])


class PromptRoom:
    """Counts, for each level of each task, the questions with and without room in the budget.

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
        return without >= LEAST_WITHOUT_ROOM and without > self._seen[task, level, True]

    def state_dict(self) -> list[Any]:
        """Give the counts as JSON."""
        return [[*key, count] for key, count in self._seen.items()]

    def load_state_dict(self, state: Iterable[Any]) -> None:
        self._seen = Counter({(task, level, fits): count for task, level, fits, count in state})
