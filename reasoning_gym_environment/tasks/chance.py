"""What guessing earns: the audit's chance floors, for evaluation code to measure against."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ..records import SOLVED_SCORE

_FILE = Path(__file__).with_name("chance_floors.json")


@cache
def _measured() -> dict[str, float]:
    floors: dict[str, float] = json.loads(_FILE.read_text(encoding="utf-8"))["floors"]
    return floors


def chance_floors(solved_threshold: float = SOLVED_SCORE) -> Mapping[str, float]:
    """Read every task's `chance_floor`; none for another threshold than they were measured at.

    Args:
        solved_threshold: the score from which an answer counts as solved.
    """
    return _measured() if solved_threshold == SOLVED_SCORE else {}


def chance_floor(task: str) -> float:
    """Read what share of a task's default items the best constant answer solves, in [0, 1].

    Raises:
        KeyError: the task was not there when the audit was last kept.
    """
    return _measured()[task]
