"""The level of a task's next problem: the library's own, fixed, random, or by the curriculum.

The curriculum moves each task to the level where the target share of answers is solved. A logistic
curve of the solved share over the ladder is fitted to each task's recent groups, and the task moves
to where the curve meets the target. research/curriculum.md explains and compares this rule.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

from ..errors import ConfigurationError
from ..records import Ladder
from ..util.values import convert, group_by
from .curve import fit_curve
from .expected_signal import PRIOR_CORRELATION

ComplexityMode = Literal["random", "curriculum", "fixed"]
"""How the level of a training problem is chosen."""


def require_difficulty_where_fixed(
    mode: ComplexityMode | None, difficulty: float | None
) -> None:
    """Raise ConfigurationError unless a difficulty in [0, 1] is set if and only if it is used."""
    fixed = mode == "fixed"
    has_difficulty = difficulty is not None
    if fixed != has_difficulty or not 0 <= (difficulty or 0) <= 1:
        raise ConfigurationError(
            f"difficulty must be {'a number from 0 to 1' if fixed else 'unset'} with "
            f"complexity_mode {mode or 'unset'}, got {difficulty if has_difficulty else 'unset'}"
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

    def draws(self, task: str, level: int | None) -> bool:
        """Return whether this policy may draw a level, now or before it was capped."""
        return level is not None and self.has(task, level)

    def parameters(self, task: str, level: int | None) -> Mapping[str, Any]:
        """Return the parameters of a level."""
        return {} if level is None else self._ladders[task][int(level)]

    def report_result(
        self,
        task: str,
        level: int | None,
        *,
        solved: int,
        scored: int,
    ) -> str | None:
        """Learn from a group, of at least one scored rollout; describe the task's move, if any."""
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
        for task, cap in state["caps"].items():
            if len(self._ladders.get(task, ())) == cap["height"]:
                self.cap(task, cap["top_level"])


class DefaultLevels(LevelPolicy):
    """The library's default configuration for every task."""

    def __init__(self) -> None:
        super().__init__({})

    def level(self, task: str, uniform: float) -> None:
        return None

    def draws(self, task: str, level: int | None) -> bool:
        return level is None


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

    def draws(self, task: str, level: int | None) -> bool:
        if level is None or not self.has(task, level):
            return False
        position = position_of(self._difficulty, len(self._ladders[task]))
        positions = (position, min(position, self._tops[task]))
        return any(abs(level - each) < 1 for each in positions)


Count = Annotated[int, Meta(ge=0, le=2**53)]


Amount = Annotated[float, Meta(ge=0, le=2**53)]


Height = Annotated[int, Meta(ge=1, le=2**53)]


OWN_DECAY = 0.93
OTHER_DECAY = 0.98
"""Share of the evidence that stays with each group, on the group's level and on the others.

With these a task stays within 0.04 of its target (research/curriculum.md)."""

MAX_DECAYS = 12
"""Times that evidence decays with one group at the most, however long the streak is.

Evidence on the group's own level then keeps OWN_DECAY ** 12, 42 % of its weight: after a
change of the skill the last few groups decide, and not the last one alone."""

TARGET_TOLERANCE = 0.04
"""Distance of a task's solved share from the target within which the task stays at its level.

Moves would not bring it nearer: at rest it is as far off (research/curriculum.md)."""

LEAST_ANSWERS = 0.01
"""Decayed evidence of fewer answers is dropped."""


class TaskState(Struct):
    """A task in the curriculum; its stored state has these keys.

    Attributes:
        height: of its ladder.
        evidence: rows of a level and its decayed counts (solved, answered).
        streak: the number of results in a row on one side of the target; negative below it.
        groups: results from the task's position at the time.
        stale: results from other levels.
    """

    height: Height
    position: Amount
    evidence: list[tuple[Count, Amount, Amount]]
    streak: Annotated[int, Meta(ge=-(2**53), le=2**53)]
    groups: Count
    stale: Count
    moves: Count

    @classmethod
    def at(cls, position: float, height: int) -> TaskState:
        """Return a task without results."""
        return cls(
            height,
            position,
            evidence=[],
            streak=0,
            groups=0,
            stale=0,
            moves=0,
        )

    def counts(self) -> dict[int, tuple[float, float]]:
        """Return the evidence by level."""
        return {level: (solved, answered) for level, solved, answered in self.evidence}

    def learn(
        self,
        level: int,
        times: int,
        solved: float,
        answered: float,
    ) -> None:
        """Decay the evidence `times` times and add a group.

        Evidence on other levels outlasts the groups in flight, so that a task does not oscillate
        between two levels. Evidence of nearly no answers is dropped.
        """
        decayed = {}
        for past_level, (past_solved, past_answered) in self.counts().items():
            keep = (OWN_DECAY if past_level == level else OTHER_DECAY) ** times
            if keep * past_answered > LEAST_ANSWERS:
                decayed[past_level] = (keep * past_solved, keep * past_answered)
        past_solved, past_answered = decayed.get(level, (0.0, 0.0))
        decayed[level] = (past_solved + solved, past_answered + answered)
        self.evidence = [(seen, *counts) for seen, counts in decayed.items()]

    def levels(self) -> tuple[int, int]:
        """Return the two levels that mix here, which are equal at an integer position."""
        return math.floor(self.position), math.ceil(self.position)

    def solved_share(self) -> float | None:
        """Return the solved share of the recent answers at the levels drawn here."""
        solved = answered = 0.0
        for level, (level_solved, level_answered) in self.counts().items():
            if level in self.levels():
                solved += level_solved
                answered += level_answered
        return solved / answered if answered else None


class Cap(Struct):
    """A stored cap on a task's levels, and the height of the ladder it was for."""

    top_level: Count
    height: Height


class LevelsState(Struct):
    """The stored state of a run's levels: caps, and the curriculum's tasks."""

    caps: dict[str, Cap]
    tasks: dict[str, TaskState] = {}  # empty in other modes


class Curriculum(LevelPolicy):
    """Levels that keep every task where the share `target` of its answers is solved.

    A stale group, made at another level than the task's present one, adds evidence on its level
    but moves nothing until the next group from the present level.

    Args:
        ladders: of all tasks of the run; each task starts in the middle of its own.
        target: share of solved answers, in (0, 1).

    Example:
        >>> curriculum = Curriculum({"gcd": ({}, {}, {})}, target=0.7)
        >>> print(curriculum.report_result("gcd", 1, solved=8, scored=8))
        gcd: level 1.00 -> 1.78 of 2 (0.93 solved, target 0.70)
    """

    def __init__(self, ladders: Mapping[str, Ladder], target: float = 0.7) -> None:
        super().__init__(ladders)
        self._target = target
        self._tasks = {
            task: TaskState.at(top / 2, height=top + 1)
            for task, top in self._tops.items()
        }

    def level(self, task: str, uniform: float) -> int:
        return level_at(self._tasks[task].position, uniform)

    def report_result(
        self,
        task: str,
        level: int | None,
        *,
        solved: int,
        scored: int,
    ) -> str | None:
        if level is None:
            return None
        state = self._tasks[task]
        fresh = level in state.levels()
        if fresh:
            surplus = solved - self._target * scored
            side = (surplus > 0) - (surplus < 0)
            state.streak = state.streak + side if state.streak * side > 0 else side
        # Evidence decays faster after results in a row on one side: the skill has changed.
        times = min(max(1, abs(state.streak)), MAX_DECAYS) if fresh else 1
        # Answers to one question correlate, so a group counts less than its answers.
        weight = 1 / (1 + PRIOR_CORRELATION * (scored - 1))
        state.learn(level, times, weight * solved, weight * scored)
        state.groups += fresh
        state.stale += not fresh
        top = self._tops[task]
        before = state.position
        if not fresh or top == 0:
            return None
        # Move to where the curve meets the target, unless the share here is near it.
        curve = fit_curve(state.counts(), state.height, self._target)
        share = curve.at(before)
        after = curve.position(self._target, top)
        if abs(share - self._target) <= TARGET_TOLERANCE or after == before:
            return None
        state.position = after
        state.moves += 1
        return (
            f"{task}: level {before:.2f} -> {after:.2f} of {top} "
            f"({share:.2f} solved, target {self._target:.2f})"
        )

    def cap(self, task: str, top_level: int) -> bool:
        changed = super().cap(task, top_level)
        if changed:
            self._tasks[task].position = min(
                self._tasks[task].position, self._tops[task]
            )
        return changed

    def stats(self) -> dict[str, Any]:
        """Return every task's position as JSON. The average excludes tasks with one level."""
        details: dict[str, dict[str, Any]] = {
            task: {
                "level": state.position,
                "height": state.height,
                "top_level": self._tops[task],
                "difficulty": state.position / (state.height - 1)
                if state.height > 1
                else 0.0,
                "solved_share": state.solved_share(),
                "groups": state.groups,
                "stale_groups": state.stale,
                "adjustments": state.moves,
            }
            for task, state in sorted(self._tasks.items())
        }
        movable = [d["difficulty"] for d in details.values() if d["height"] > 1]
        return {
            "total_tasks_tracked": len(details),
            "tasks_with_adjustments": sum(
                d["adjustments"] > 0 for d in details.values()
            ),
            "average_complexity": sum(movable) / len(movable) if movable else 0.0,
            "task_details": details,
        }

    def state_dict(self) -> dict[str, Any]:
        tasks = {task: asdict(state) for task, state in self._tasks.items()}
        return {**super().state_dict(), "tasks": tasks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore all tasks; if a ladder's height has changed, a task keeps only its difficulty."""
        super().load_state_dict(state)
        for task, stored in convert(state, LevelsState).tasks.items():
            if task not in self._tasks:
                continue
            height = self._tasks[task].height
            top = self._tops[task]
            if stored.height != height:
                difficulty = (
                    stored.position / (stored.height - 1) if stored.height > 1 else 0.5
                )
                stored = TaskState.at(position_of(difficulty, height), height)
            stored.position = min(stored.position, top)
            self._tasks[task] = stored


def curriculum_metrics(
    stats: Mapping[str, Any], categories: Mapping[str, str]
) -> dict[str, float]:
    """Return a curriculum's state as metrics `curriculum/*`: by task, and means by category.

    Args:
        stats: from `TrainingProblems.curriculum_stats`, in curriculum mode.
        categories: category by task.

    Returns:
        Levels start at 0; complexities and difficulties are in [0, 1].
    """
    difficulties: dict[str, float] = {}
    shares: list[float] = []
    signals: list[float] = []
    metrics: dict[str, float] = {}
    for task, details in stats["task_details"].items():
        metrics[f"task/{task}/level"] = details["level"]
        if details["height"] > 1:
            difficulties[task] = details["difficulty"]
            metrics[f"task/{task}/difficulty"] = details["difficulty"]
        if details["solved_share"] is not None:
            shares.append(details["solved_share"])
            metrics[f"task/{task}/recent_accuracy"] = details["solved_share"]
        if details["expected_signal"] is not None:
            signals.append(details["expected_signal"])
            metrics[f"task/{task}/expected_signal"] = details["expected_signal"]
    for name, tasks in group_by(lambda task: categories[task], difficulties).items():
        mean = sum(difficulties[task] for task in tasks) / len(tasks)
        metrics[f"category/{name}/difficulty"] = mean
    if shares:
        metrics["avg_recent_accuracy"] = sum(shares) / len(shares)
    if signals:
        metrics["avg_expected_signal"] = sum(signals) / len(signals)
    metrics |= {
        "total_tasks_tracked": stats["total_tasks_tracked"],
        "tasks_with_adjustments": stats["tasks_with_adjustments"],
        "target_accuracy": stats["target_accuracy"],
        "avg_complexity": stats["average_complexity"],
        "min_complexity": min(difficulties.values(), default=0.0),
        "max_complexity": max(difficulties.values(), default=0.0),
    }
    return {f"curriculum/{name}": float(value) for name, value in metrics.items()}
