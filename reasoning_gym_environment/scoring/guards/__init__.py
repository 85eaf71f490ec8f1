"""What a degenerate answer may earn at most: checks of an answer before the library's verifier.

A guard never takes anything from an answer that deserves full credit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .accepted import ACCEPTED
from .table import GUARDS, Guard

__all__ = ["ACCEPTED", "GUARDS", "Guard", "ceiling"]


def ceiling(task: str, answer: str, entry: Mapping[str, Any]) -> float:
    """Say the most that the answer may earn, from 0.0 to 1.0; 1.0 means no objection.

    Runs in the verifier's child: well-formed but huge answers may take long.

    Args:
        answer: the bare answer, without tags.
        entry: the library's entry, as generated.
    """
    guard = GUARDS.get(task)
    if guard is None or answer == entry["answer"]:
        return 1.0
    return guard.ceiling(answer, entry)
