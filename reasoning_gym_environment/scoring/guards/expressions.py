"""Expressions that aren't the answer but what the verifier would have to work out."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

_NAME = re.compile(r"(?<!\w)[^\W\d]\w*")
_CONSTANT = re.compile(r"(?![NOQS]$)[A-Za-z]_?\d*|[Cc]onst(ant)?")
"""Names for the constant of integration; N, O, Q and S are functions of sympy."""

_FUNCTION = re.compile(
    "exp|log|ln|sqrt|cbrt|root|Abs|abs|sign|Rational|pi"
    "|a?(sin|cos|tan|cot|sec|csc)h?|atan2"
    "|erf[ci]?|Ei|expint|[lL]i|[SC]h?i|(lower|upper)?gamma|fresnel[sc]|polylog"
)
"""What an antiderivative is written with."""

_OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_UNREADABLE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, ArithmeticError)


def antiderivative(answer: str, entry: Mapping[str, Any]) -> float:
    """`Integral(f, x)` and `integrate(f, x)` have the derivative f: a closed form is asked for."""
    names = set(_NAME.findall(answer)) - {entry["metadata"]["variable"]}
    closed = all(_FUNCTION.fullmatch(name) or _CONSTANT.fullmatch(name) for name in names)
    return 1.0 if closed and not _is_quoting(answer) else 0.0


def polynomial(answer: str, entry: Mapping[str, Any]) -> float:
    """`expand(…)` of the question is worked out by the parser: no names but the variables."""
    named = set(_NAME.findall(answer)) <= set(map(str, entry["metadata"]["variables"]))
    return 1.0 if named and not _is_quoting(answer) else 0.0


def _is_quoting(answer: str) -> bool:
    return "'" in answer or '"' in answer


def make_24(answer: str, entry: Mapping[str, Any]) -> float:
    """Any four numbers pass, and any value that rounds down to 24."""
    return _makes(24, answer, entry)


def make_target(answer: str, entry: Mapping[str, Any]) -> float:
    """Numbers written as `0x…` or `1e2` aren't counted, and near the target is enough."""
    return _makes(entry["metadata"]["target"], answer, entry)


def _makes(target: int, answer: str, entry: Mapping[str, Any]) -> float:
    """0 unless exactly the numbers given are used; little unless they make the target exactly."""
    numbers: list[int] = []
    try:
        value = _value(ast.parse(" ".join(answer.split()), mode="eval").body, numbers)
    except _UNREADABLE:
        return 0.0
    if sorted(numbers) != sorted(entry["metadata"]["numbers"]):
        return 0.0
    return 1.0 if value == target else 0.05


def _value(node: ast.AST, numbers: list[int]) -> Fraction:
    """Work out sums, differences, products and quotients of integers, noting the integers.

    An integer may have a decimal point: a full stop behind the expression gives it one.

    Raises:
        ValueError: there is something else in it.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        value = Fraction(node.value)
        if value.denominator == 1:
            numbers.append(value.numerator)
            return value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        operand = _value(node.operand, numbers)
        return -operand if isinstance(node.op, ast.USub) else operand
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = _value(node.left, numbers), _value(node.right, numbers)
        result: Fraction = _OPERATIONS[type(node.op)](left, right)
        return result
    raise ValueError(type(node).__name__)


def literal(answer: str, entry: Mapping[str, Any]) -> float:
    """These evaluate the answer where the oracle is in reach: only plain lists of constants."""
    if answer.strip() == entry["answer"].strip():
        return 1.0
    if answer in entry["metadata"].get("valid_answers", ()):
        return 1.0
    try:
        ast.literal_eval(answer.strip())
    except _UNREADABLE:
        return 0.0
    return 1.0
