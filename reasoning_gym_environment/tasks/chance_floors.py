"""Chance floors: what a task pays without any skill.

`reasoning-gym-environment audit --floors FILE` measures them; `chance_floors.json` holds them.
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
    """The share of a task's default items that one way of answering them all solves.

    Attributes:
        label: the constant answer, or the strategy's name; chosen on other items than these.
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
    """Return every task's floors."""
    stored = json.loads(_FILE.read_text(encoding="utf-8"))["floors"]
    return {
        task: Floors(chance=Floor(**own["chance"]), no_reasoning=Floor(**own["no_reasoning"]))
        for task, own in stored.items()
    }


def chance_floors(solved_threshold: float = SOLVED_SCORE) -> Mapping[str, float]:
    """Return the share of each task's default items that the best constant answer solves.

    Args:
        solved_threshold: the score from which an answer counts as solved. The result is empty
            unless it is the one that the floors were measured at.
    """
    if solved_threshold != SOLVED_SCORE:
        return {}
    return {task: own.chance.solved for task, own in floors().items()}


def no_reasoning_floors(solved_threshold: float = SOLVED_SCORE) -> Mapping[str, float]:
    """Return the share of each task's default items that the best copy of the question solves.

    Args:
        solved_threshold: as for `chance_floors`.
    """
    if solved_threshold != SOLVED_SCORE:
        return {}
    return {task: own.no_reasoning.solved for task, own in floors().items()}
