"""Answers that are no finite numbers, not the numbers asked for, or far from them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

_PROBABILITY = re.compile(
    r"\s*\+?(\d{1,400}/\d{1,400}|(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][-+]?\d{1,3})?)\s*",
    re.ASCII,
)
_TOLERANCE = Fraction(1, 10_000)
"""How far from the right probability the verifier still gives full credit."""

_NO_SOLUTION = re.compile(r"\b(no|none)\b", re.IGNORECASE)

_NEAR = 0.02
"""The largest relative error of an answer that may still earn something."""


def near(actual: float, expected: float) -> float:
    """Measure nearness: 1 when equal, falling linearly to 0 at a relative error of 2 %."""
    if actual == expected:
        return 1.0
    error = abs(actual - expected)
    limit = _NEAR * abs(expected)
    return 1 - error / limit if error < limit else 0.0


def complex_number(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse letters but those of complex numbers: `nan` passes every comparison."""
    letters = {character for character in answer.lower() if character.isalpha()}
    return 1.0 if letters <= set("eij") else 0.0


def numbers_given(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse other numbers than the question's: each may be off by 1, and NaN by anything."""
    try:
        found = sorted(float(number) for number in json.loads(answer.replace("'", '"')))
    except (ValueError, TypeError, RecursionError):  # the verifier can't read it either
        return 1.0
    return 1.0 if found == sorted(map(float, entry["metadata"]["sorted_numbers"])) else 0.0


def probability(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay by nearness: the verifier pays for a prefix common with the shorter text, such as `0.`.

    The form is checked before the value: `1e999999999` takes for ever to compute.
    """
    plain = answer.replace(",", "")
    if not _PROBABILITY.fullmatch(plain):
        return 0.0
    try:
        value = Fraction(plain)
    except ZeroDivisionError:
        return 0.0
    expected = Fraction(entry["answer"].replace(",", ""))
    if value and abs(value - expected) <= _TOLERANCE:
        return 1.0
    return near(float(value), float(expected)) if value <= 1 else 0.0


def duration(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay by relative error: on the scale of the whole range any constant is near."""
    kind = entry["metadata"]["task_type"]
    try:
        actual = _seconds(answer, kind)
    except (ValueError, IndexError, OverflowError):  # no time: the verifier reads `12:00:00.-5`
        return 0.0
    return near(actual, _seconds(entry["answer"], kind))


def _seconds(text: str, kind: str) -> float:
    """Read a duration as the verifier does (days instead of seconds for `date`)."""
    if kind == "date":
        return float(int(text.split()[0]))
    days, clock = 0, text
    if not kind.startswith("time"):
        days, clock = int(text.split(" days,")[0]), text.split(",")[1]
    hours, minutes, *rest = clock.strip().split(":")
    return days * 86_400 + int(hours) * 3600 + int(minutes) * 60 + float(rest[0] if rest else 0)


def real_solutions(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse words among the numbers: alone they pass for "no solution"."""
    if not entry["answer"] and _NO_SOLUTION.search(answer):
        return 1.0
    parts = [part.strip() for part in answer.strip("[]()\"' ").split(",")]
    return 1.0 if all(_is_finite(part) for part in parts if part) else 0.0


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def prime_factors(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse factors that aren't primes of the number: it has itself the right product."""
    try:
        factors = {
            int(factor) for factor in answer.split("\N{MULTIPLICATION SIGN}") if factor.strip()
        }
    except ValueError:  # the verifier can't read it either
        return 1.0
    return 1.0 if factors <= set(entry["metadata"]["factors"]) else 0.0
