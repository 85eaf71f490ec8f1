"""Guards of tasks of the category algebra."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any


def complex_number(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse letters other than those of complex numbers: `nan` passes every comparison."""
    letters = {character for character in answer.lower() if character.isalpha()}
    return 1.0 if letters <= set("eij") else 0.0


def real_solutions(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse words among the numbers: alone they pass for "no solution"."""
    if not entry["answer"] and re.search(r"\b(no|none)\b", answer, re.IGNORECASE):
        return 1.0
    parts = [part.strip() for part in answer.strip("[]()\"' ").split(",")]
    try:
        return 1.0 if all(math.isfinite(float(part)) for part in parts if part) else 0.0
    except ValueError:  # not a number
        return 0.0


_NAME = re.compile(r"(?<!\w)[^\W\d]\w*")


def antiderivative(answer: str, entry: Mapping[str, Any]) -> float:
    """Require a closed form: `Integral(f, x)` and `integrate(f, x)` have the derivative f, too."""
    function = re.compile(
        "exp|log|ln|sqrt|cbrt|root|Abs|abs|sign|Rational|pi"
        "|a?(sin|cos|tan|cot|sec|csc)h?|atan2"
        "|erf[ci]?|Ei|expint|[lL]i|[SC]h?i|(lower|upper)?gamma|fresnel[sc]|polylog"
    )
    # The constant of integration; N, O, Q and S are functions of sympy.
    constant = re.compile(r"(?![NOQS]$)[A-Za-z]_?\d*|[Cc]onst(ant)?")
    names = set(_NAME.findall(answer)) - {entry["metadata"]["variable"]}
    closed = all(function.fullmatch(name) or constant.fullmatch(name) for name in names)
    return 1.0 if closed and not _is_quoting(answer) else 0.0


def polynomial(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse names other than the variables: the parser evaluates `expand(…)` of the question."""
    named = set(_NAME.findall(answer)) <= set(map(str, entry["metadata"]["variables"]))
    return 1.0 if named and not _is_quoting(answer) else 0.0


def _is_quoting(answer: str) -> bool:
    return "'" in answer or '"' in answer
