"""What is earned without solving anything: the audit's floors, for evaluations to measure against.

The audit writes `chance_floors.json` (`reasoning-gym-environment audit --floors FILE`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..records import SOLVED_SCORE

_FILE = Path(__file__).with_name("chance_floors.json")


class Floor(NamedTuple):
    """What share of a task's default items one way to answer them all solves.

    Attributes:
        label: the constant answer, or the strategy's name; the best on other items than these.
        solved: in [0, 1].
        low, high: the 95 % interval.
    """

    label: str
    items: int
    solved: float
    low: float
    high: float


class Floors(NamedTuple):
    """A task's floors: of one constant answer, and of a strategy that copies from the question."""

    chance: Floor
    no_reasoning: Floor


@cache
def floors() -> Mapping[str, Floors]:
    """Read every task's floors."""
    stored = json.loads(_FILE.read_text(encoding="utf-8"))["floors"]
    return {
        task: Floors(chance=Floor(**own["chance"]), no_reasoning=Floor(**own["no_reasoning"]))
        for task, own in stored.items()
    }


def chance_floors(solved_threshold: float = SOLVED_SCORE) -> Mapping[str, float]:
    """Read every task's `chance_floor`; none for another threshold than they were measured at.

    Args:
        solved_threshold: the score from which an answer counts as solved.
    """
    if solved_threshold != SOLVED_SCORE:
        return {}
    return {task: own.chance.solved for task, own in floors().items()}


def no_reasoning_floors(solved_threshold: float = SOLVED_SCORE) -> Mapping[str, float]:
    """Read what share of each task's default items a copy from the question solves at best.

    Args:
        solved_threshold: as for `chance_floors`.
    """
    if solved_threshold != SOLVED_SCORE:
        return {}
    return {task: own.no_reasoning.solved for task, own in floors().items()}


def chance_floor(task: str) -> float:
    """Read what share of a task's default items the best constant answer solves, in [0, 1].

    Raises:
        KeyError: the task was not there when the audit was last kept.
    """
    return floors()[task].chance.solved
