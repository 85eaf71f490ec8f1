"""Guards of tasks of the category arithmetic."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from .oracle import closeness, has_odd_separators


def decimal_digits(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse wrong and missing digits: the verifier allows an error of 0.001, whatever is asked.

    A label with as many digits as the question asks for is rounded, and an answer may show more.
    Any other label is exact.
    """
    if has_odd_separators(answer):
        return 0.0
    try:
        value = Decimal(answer)
        right = Decimal(entry["answer"])
        digits = int(
            re.findall(r"maximum of (\d+) significant digits", entry["question"])[0]
        )
        is_rounded = len(right.as_tuple().digits) >= digits
        last_place = int(right.as_tuple().exponent)
        allowed = Decimal("0.5").scaleb(last_place) if is_rounded else Decimal(0)
        return 1.0 if abs(value - right) <= allowed else 0.0
    except (ArithmeticError, ValueError):  # not a number, or not finite
        return 0.0


def plain_number(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse odd separators: the verifier ignores underscores, wherever they are."""
    return 0.0 if has_odd_separators(answer) else 1.0


def chosen_number(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse other candidates: the verifier allows an error of 0.01, and theirs are closer."""
    try:
        number, right = (
            float(text.replace(",", "")) for text in (answer, entry["answer"])
        )
    except ValueError:
        return 0.0
    # The numbers are written with fifteen digits.
    return float(math.isclose(number, right, rel_tol=1e-14))


def duration(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay by relative error: on the scale of the whole range any constant is near.

    Refuse a second duration, which the verifier ignores. A minus sign before a zero changes nothing
    for the verifier: it reads `-00:05` as `00:05`.
    """
    kind = entry["metadata"]["task_type"]
    if _is_negative(answer) != _is_negative(entry["answer"]):
        return 0.0
    try:
        actual = _seconds(answer, kind)
    except (ValueError, IndexError, OverflowError):
        return 0.0  # no time: the verifier reads `12:00:00.-5`
    return closeness(actual, _seconds(entry["answer"], kind))


def _is_negative(text: str) -> bool:
    """Return whether a duration has a minus sign, in days or hours."""
    return re.search(r"(^|,)\s*-", text) is not None


_DAYS = re.compile(r"d(ays?)?\b(?!.*\bor\b)\D*", re.IGNORECASE | re.DOTALL)
"""What may follow a number of days: no other unit, and no second number. Questions ask for `D`."""


def _seconds(text: str, kind: str) -> float:
    """Read a duration as the verifier does (days instead of seconds for `date`).

    Raises ValueError if there is more than one, or none.
    """
    if kind == "date":
        number, *words = text.split()
        if words and not _DAYS.fullmatch(" ".join(words)):
            raise ValueError(f"must be one number of days, got {text}")
        return float(int(number))
    days = 0
    clock = text
    if not kind.startswith("time"):
        days_text, clock, *more = text.split(",")
        if any(map(str.isdigit, "".join(more))):
            raise ValueError(f"must be one duration, got {text}")
        days = int(days_text.removesuffix(" days"))
    parts = clock.strip().split(":")
    hours, minutes, seconds = parts if len(parts) == 3 else [*parts, "0"]
    return days * 86_400 + int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def prime_factors(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse factors that aren't primes of the number: the number itself has the right product."""
    try:
        factors = {
            int(factor)
            for factor in answer.split("\N{MULTIPLICATION SIGN}")
            if factor.strip()
        }
    except ValueError:  # the verifier raises
        return 0.0
    return 1.0 if factors <= set(entry["metadata"]["factors"]) else 0.0
