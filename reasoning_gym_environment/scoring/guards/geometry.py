"""Guards of tasks of the category geometry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..notation import is_angle


def exact_angle(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse angles off by more than their places: the verifier compares two of the three asked.

    Of a point, refuse numbers after its two coordinates: the verifier ignores them.
    """
    metadata = entry["metadata"]
    more = "".join(answer.split(",")[2:])
    if metadata["task_type"] == "orthocenter" and any(map(str.isdigit, more)):
        return 0.01  # as the verifier for another point
    exact = metadata.get("angle_ABC_degrees")
    # As the verifier for another number.
    return 1.0 if exact is None or is_angle(answer, exact) else 0.05
