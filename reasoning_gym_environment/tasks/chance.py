"""What guessing earns: the audit's chance floors, for evaluation code to measure against."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("chance_floors.json")


@cache
def chance_floors() -> dict[str, float]:
    """Every task's `chance_floor`."""
    floors: dict[str, float] = json.loads(_FILE.read_text(encoding="utf-8"))["floors"]
    return floors


def chance_floor(task: str) -> float:
    """The share of a task's default items that the best constant answer solves, in [0, 1].

    Raises:
        KeyError: the task was not there when the audit was last kept.
    """
    return chance_floors()[task]
