"""Guards of tasks of the category probability."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from .oracle import closeness

LARGEST_ERROR = Fraction(1, 200)
"""Of a right answer, relative: rounding to three digits changes no more.

The verifier's absolute 1e-4 is three times the smallest probability of the highest level, so that a
constant would earn full credit.
"""


def probability(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay by nearness: the verifier pays for a prefix common with the shorter text, such as `0.`.

    The form is checked before the value: `1e999999999` takes forever to compute.
    """
    plain = answer.replace(",", "")
    if not re.fullmatch(
        r"\s*\+?(\d{1,400}/\d{1,400}|(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][-+]?\d{1,3})?)\s*",
        plain,
        re.ASCII,
    ):
        return 0.0
    try:
        value = Fraction(plain)
    except ZeroDivisionError:
        return 0.0
    expected = Fraction(entry["answer"].replace(",", ""))
    if abs(value - expected) <= expected * LARGEST_ERROR:
        return 1.0
    return closeness(float(value), float(expected)) if value <= 1 else 0.0
