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
    """Ask for a closed form: `Integral(f, x)` and `integrate(f, x)` have the derivative f, too."""
    names = set(_NAME.findall(answer)) - {entry["metadata"]["variable"]}
    closed = all(_FUNCTION.fullmatch(name) or _CONSTANT.fullmatch(name) for name in names)
    return 1.0 if closed and not _is_quoting(answer) else 0.0


def polynomial(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse names but the variables: the parser works out `expand(…)` of the question."""
    named = set(_NAME.findall(answer)) <= set(map(str, entry["metadata"]["variables"]))
    return 1.0 if named and not _is_quoting(answer) else 0.0


def _is_quoting(answer: str) -> bool:
    return "'" in answer or '"' in answer


def make_24(answer: str, entry: Mapping[str, Any]) -> float:
    """Ask for 24 from the numbers given: any four pass, and any value that rounds down to 24."""
    return _makes(24, answer, entry)


def make_target(answer: str, entry: Mapping[str, Any]) -> float:
    """Ask for the target from the numbers given: `0x…` isn't counted, and near is enough."""
    return _makes(entry["metadata"]["target"], answer, entry)


def _makes(target: int, answer: str, entry: Mapping[str, Any]) -> float:
    """Pay 0 unless exactly the numbers given are used; little unless they make the target."""
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
    """Take plain lists of constants only: the answer is evaluated where the oracle is in reach."""
    if answer.strip() == entry["answer"].strip():
        return 1.0
    if answer in entry["metadata"].get("valid_answers", ()):
        return 1.0
    try:
        ast.literal_eval(answer.strip())
    except _UNREADABLE:
        return 0.0
    return 1.0
