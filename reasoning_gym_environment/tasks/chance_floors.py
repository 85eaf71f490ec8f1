"""Chance floors: what a task pays without any skill.

`reasoning-gym-environment audit --floors FILE` measures them; `chance_floors.json` holds them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
def _measured() -> Mapping[str, Floors]:
    stored = json.loads(_FILE.read_text(encoding="utf-8"))["floors"]
    return {
        task: Floors(chance=Floor(**own["chance"]), no_reasoning=Floor(**own["no_reasoning"]))
        for task, own in stored.items()
    }


def floors(solved_threshold: float | None = None) -> Mapping[str, Floors]:
    """Return every task's floors; empty for a threshold that they were not measured at.

    Args:
        solved_threshold: the score from which an answer counts as solved; None is each task's own.
    """
    return _measured() if solved_threshold is None else {}
