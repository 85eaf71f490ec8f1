"""Guards of tasks of the category geometry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..notation import is_angle


def exact_angle(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse angles off by more than their places: the verifier compares two of the three asked.

    Of a point, refuse more than two coordinates: the verifier ignores the others.
    """
    metadata = entry["metadata"]
    if metadata["task_type"] == "orthocenter" and answer.count(",") > 1:
        return 0.01  # as the verifier for another point
    exact = metadata.get("angle_ABC_degrees")
    # As the verifier for another number.
    return 1.0 if exact is None or is_angle(answer, exact) else 0.05
