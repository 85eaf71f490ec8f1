"""Checks of long columns of numbers, which take microseconds where all is well.

They may doubt what is sound, and never pass what isn't: who is told no looks at each number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def are_ids(column: Sequence[Any], vocabulary: int) -> bool:
    """Whether all are token ids of a vocabulary of that size.

    Example:
        >>> are_ids([0, 9], 10), are_ids([10], 10), are_ids([True], 10)
        (True, False, False)
    """
    if not {*map(type, column)} <= {int}:
        return False
    return not column or (min(column) >= 0 and max(column) < vocabulary)


def are_finite(column: Sequence[Any]) -> bool:
    """Whether all are finite numbers; no where their sum is none.

    Example:
        >>> are_finite([-0.5, 0]), are_finite([math.nan]), are_finite([None])
        (True, False, False)
    """
    try:
        return {*map(type, column)} <= {int, float} and math.isfinite(sum(column))
    except OverflowError:
        return False


def are_id_array(ids: np.ndarray[Any, Any], vocabulary: int) -> bool:
    return not len(ids) or bool(ids.min() >= 0 and ids.max() < vocabulary)
