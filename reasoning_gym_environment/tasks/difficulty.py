"""Difficulty in [0, 1] and the levels of a task's ladder."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any


class ComplexityMode(str, Enum):
    """Where on its ladder a task is trained."""

    RANDOM = "random"
    CURRICULUM = "curriculum"
    FIXED = "fixed"


Ladder = tuple[Mapping[str, Any], ...]
"""A task's levels, easiest first, each as dataset parameters."""


def position_of(difficulty: float, height: int) -> float:
    """Where a difficulty in [0, 1] stands on a ladder of `height` levels: in [0, height - 1]."""
    return difficulty * (height - 1)


def level_at(position: float, uniform: float) -> int:
    """The level at a position; between two levels they mix, so that small steps change something.

    Args:
        position: on the ladder, 0 or more.
        uniform: a random number in [0, 1).

    Example:
        >>> level_at(2.25, 0.1), level_at(2.25, 0.9)
        (3, 2)
    """
    lower = int(position)
    return lower + (uniform < position - lower)
