"""The level at which each task teaches: where the target share of its answers is solved.

A logistic curve of the solved share over the ladder is fitted to each task's recent groups,
every group counting for the level it was made at, and the task goes to where the curve meets
the target. docs/curriculum.md says why this rule, and how it compares with others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..records import Ladder
from ..util.grouping import group_by
from .curve import fit_curve
from .levels import Levels, Move, level_at

DEAD_BAND = 0.04
"""A task stays where it is while the share expected there is so near the target."""

AGE = 0.93
"""What a group leaves of the older evidence on its own level."""

AGE_ELSEWHERE = 0.98
"""What it leaves of that on other levels: enough to remember, across everything in flight, that
the next level is too hard, so that two levels don't take turns for ever."""

LONGEST_STREAK = 12
"""The evidence ages once more for every result in a row on the same side of the target, since
the skill has then probably changed; for no more than these."""

FORGOTTEN = 0.01
"""Evidence of fewer answers is dropped."""

ALIKE = 0.1
"""Correlation of the answers to one question: a group says less than its answers would singly."""


@dataclass(slots=True)
class _Standing:
    """Where a task stands. Mutable: it is what `record` moves.

    Attributes:
        evidence: level to (solved, answered), aged.
        streak: how many results in a row lay on one side of the target; below 0 the lower one.
        groups: results that came from where the task stood.
        stale: results that came from elsewhere.
    """

    position: float
    evidence: dict[int, tuple[float, float]] = field(default_factory=dict)
    streak: int = 0
    groups: int = 0
    stale: int = 0
    moves: int = 0

    def learn(self, level: int, times: int, solved: float, answered: float) -> None:
        """Age the evidence so many times and add a group to it."""
        aged = {}
        for known, (good, all_) in self.evidence.items():
            keep = (AGE if known == level else AGE_ELSEWHERE) ** times
            if keep * all_ > FORGOTTEN:
                aged[known] = (keep * good, keep * all_)
        good, all_ = aged.get(level, (0.0, 0.0))
        aged[level] = (good + solved, all_ + answered)
        self.evidence = aged

    def levels(self) -> tuple[int, int]:
        """Name the levels that are drawn here; twice the same where the position is whole."""
        return math.floor(self.position), math.ceil(self.position)

    def solved_share(self) -> float | None:
        """Work out the solved share of the recent answers at the levels drawn here."""
        here = [self.evidence[level] for level in {*self.levels()} if level in self.evidence]
        answered = sum(counts[1] for counts in here)
        return sum(counts[0] for counts in here) / answered if answered else None


class Curriculum(Levels):
    """Holds every task where `target` of its answers is solved.

    A group made at a level where the task no longer stands moves nothing: it is evidence on
    its own level, used when the next group from the present one comes.

    Args:
        ladders: of all tasks of the run; each task begins in the middle of its own.
        target: share of solved answers, in (0, 1).

    Example:
        >>> curriculum = Curriculum({"gcd": ({}, {}, {})}, target=0.7)
        >>> print(curriculum.record("gcd", 1, solved=8, scored=8))
        gcd: level 1.00 -> 1.78 of 2 (0.93 solved, 0.70 wanted)
    """

    def __init__(self, ladders: Mapping[str, Ladder], target: float = 0.7) -> None:
        super().__init__(ladders)
        self._target = target
        self._tasks = {task: _Standing(position=top / 2) for task, top in self._tops.items()}

    def level(self, task: str, uniform: float) -> int:
        return level_at(self._tasks[task].position, uniform)

    def record(self, task: str, level: int | None, *, solved: int, scored: int) -> Move | None:
        if level is None:
            return None
        standing = self._tasks[task]
        fresh = level in standing.levels()
        if fresh:
            surplus = solved - self._target * scored
            side = (surplus > 0) - (surplus < 0)
            standing.streak = standing.streak + side if standing.streak * side > 0 else side
        times = min(max(1, abs(standing.streak)), LONGEST_STREAK) if fresh else 1
        weight = 1 / (1 + ALIKE * (scored - 1))
        standing.learn(level, times, weight * solved, weight * scored)
        standing.groups += fresh
        standing.stale += not fresh
        return self._move(task, standing) if fresh else None

    def _move(self, task: str, standing: _Standing) -> Move | None:
        """Go to where the curve meets the target, unless it nearly does so here."""
        height, top, before = len(self._ladders[task]), self._tops[task], standing.position
        if top == 0:
            return None
        curve = fit_curve(standing.evidence, height, self._target)
        share = curve.at(before)
        after = curve.position(self._target, top)
        if abs(share - self._target) <= DEAD_BAND or after == before:
            return None
        standing.position = after
        standing.moves += 1
        return Move(
            task=task,
            before=before,
            after=after,
            top=top,
            solved_share=share,
            target=self._target,
        )

    def cap(self, task: str, top_level: int) -> bool:
        changed = super().cap(task, top_level)
        if changed:
            standing = self._tasks[task]
            standing.position = min(standing.position, self._tops[task])
        return changed

    def stats(self) -> dict[str, Any]:
        """Say where all tasks stand, as JSON. Tasks of one level are left out of the average."""
        details = {task: self._details(task) for task in sorted(self._tasks)}
        movable = [d["difficulty"] for d in details.values() if d["height"] > 1]
        return {
            "total_tasks_tracked": len(details),
            "tasks_with_adjustments": sum(d["adjustments"] > 0 for d in details.values()),
            "average_complexity": sum(movable) / len(movable) if movable else 0.0,
            "task_details": details,
        }

    def _details(self, task: str) -> dict[str, Any]:
        standing, height = self._tasks[task], len(self._ladders[task])
        return {
            "level": standing.position,
            "height": height,
            "top_level": self._tops[task],
            "difficulty": standing.position / (height - 1) if height > 1 else 0.0,
            "solved_share": standing.solved_share(),
            "groups": standing.groups,
            "stale_groups": standing.stale,
            "adjustments": standing.moves,
        }

    def state_dict(self) -> dict[str, Any]:
        tasks = {
            task: {
                "height": len(self._ladders[task]),
                "position": standing.position,
                "evidence": [[level, *counts] for level, counts in standing.evidence.items()],
                "streak": standing.streak,
                "groups": standing.groups,
                "stale": standing.stale,
                "moves": standing.moves,
            }
            for task, standing in self._tasks.items()
        }
        return {**super().state_dict(), "tasks": tasks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what fits; on a ladder of another height, a task keeps its difficulty alone."""
        super().load_state_dict(state)
        for task, stored in state.get("tasks", {}).items():
            if task in self._tasks:
                self._tasks[task] = self._restored(task, stored)

    def _restored(self, task: str, stored: Mapping[str, Any]) -> _Standing:
        top, height = len(self._ladders[task]) - 1, stored["height"]
        if height != top + 1:
            difficulty = stored["position"] / (height - 1) if height > 1 else 0.5
            return _Standing(position=min(difficulty * top, self._tops[task]))
        return _Standing(
            position=min(stored["position"], self._tops[task]),
            evidence={level: (good, answered) for level, good, answered in stored["evidence"]},
            **{name: stored[name] for name in ("streak", "groups", "stale", "moves")},
        )


def curriculum_metrics(stats: Mapping[str, Any], categories: Mapping[str, str]) -> dict[str, float]:
    """Name a curriculum's state `curriculum/*`, by task and, as means, by category.

    Args:
        stats: as `ReasoningGymEnv.get_curriculum_stats` gives them, in curriculum mode.
        categories: category by task.

    Returns:
        Levels count from 0; complexities and difficulties are in [0, 1].
    """
    details: Mapping[str, Mapping[str, Any]] = stats["task_details"]
    movable = {task: one["difficulty"] for task, one in details.items() if one["height"] > 1}
    shares = {
        task: one["solved_share"]
        for task, one in details.items()
        if one["solved_share"] is not None
    }
    by_category = group_by(lambda task: categories[task], movable)
    summary = {
        "total_tasks_tracked": stats["total_tasks_tracked"],
        "tasks_with_adjustments": stats["tasks_with_adjustments"],
        "target_accuracy": stats["target_accuracy"],
        "avg_complexity": stats["average_complexity"],
        "min_complexity": min(movable.values(), default=0.0),
        "max_complexity": max(movable.values(), default=0.0),
        **({"avg_recent_accuracy": sum(shares.values()) / len(shares)} if shares else {}),
        **{
            f"category/{name}": sum(movable[task] for task in tasks) / len(tasks)
            for name, tasks in by_category.items()
        },
        **{f"task/{task}/level": one["level"] for task, one in details.items()},
        **{f"task/{task}/difficulty": difficulty for task, difficulty in movable.items()},
        **{f"task/{task}/recent_accuracy": share for task, share in shares.items()},
    }
    return {f"curriculum/{name}": float(value) for name, value in summary.items()}
