"""Guards of tasks of the category cognition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .oracle import bare


def read_letters(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for the share of right letters: ten of them earn full credit, and more are ignored."""
    letters = bare(answer.replace(" ", ""))
    right = bare(entry["answer"])
    if len(letters) > len(right):
        return 0.0
    return sum(a == b for a, b in zip(letters, right, strict=False)) / len(right)
