"""Guards of tasks of the category probability."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from .oracle import closeness


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
    if value and abs(value - expected) <= Fraction(1, 10_000):  # as the verifier
        return 1.0
    return closeness(float(value), float(expected)) if value <= 1 else 0.0
