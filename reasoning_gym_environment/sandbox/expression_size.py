"""How large an expression becomes when it is evaluated and simplified, read off its tree.

Rough upper bounds, as log2, found from the leaves up: what is refused here would fill the
memory, or keep a processor busy for longer than any deadline.
"""

from __future__ import annotations

import ast
import math
from fractions import Fraction
from typing import NamedTuple

MAX_BITS = 1024  # honest coefficients have up to 275
_MAX_EXPONENT_BITS = 12
_MAX_EXPONENT_BITS_WITH_FUNCTIONS = 6


class TooLarge(Exception):
    """The message says what is."""


class Size(NamedTuple):
    """The size of a subexpression.

    Attributes:
        bits: of its largest number, every name standing for 2.
        terms: log2 of the terms of its numerator, multiplied out over one denominator. A
            function counts for four: simplification tries its sums of others.
        under: log2 of the terms of that denominator.
        functions: how many there are, roots and other powers that stay included.
        depth: functions inside functions.
        value: where it is a plain number.
    """

    bits: float
    terms: float = 0
    under: float = 0
    functions: int = 0
    depth: int = 0
    value: Fraction | None = None


NAME = Size(bits=1)
ONE = Size(bits=1, value=Fraction(1))
_FUNCTION = Size(bits=0, terms=2, functions=1, depth=1)


def of_number(value: Fraction) -> Size:
    """Measure a written number; raises TooLarge."""
    bits = max(value.numerator.bit_length(), value.denominator.bit_length())
    if bits > MAX_BITS:
        raise TooLarge("a number too large")
    return Size(bits=bits, value=value)


def of_float(value: float) -> Size:
    """Measure a float by its magnitude: sympy gives it as many digits as were written."""
    return of_number(Fraction(value))._replace(bits=max(1, math.log2(abs(value) + 1)))


def of_negative(size: Size) -> Size:
    return size if size.value is None else size._replace(value=-size.value)


def of_call(arguments: list[Size]) -> Size:
    """Measure a function's value, which may be as large a number as its arguments."""
    return Size(
        bits=sum(argument.bits for argument in arguments),
        terms=_FUNCTION.terms,
        functions=1 + sum(argument.functions for argument in arguments),
        depth=1 + max(argument.depth for argument in arguments),
    )


def check_exponent(exponent: Size) -> None:
    """Refuse an exponent that is too large, or may turn out so; raises TooLarge.

    `exp(99999*log(x))` is `x**99999`, and `2**(99999*x)` is simplified to `(2**99999)**x`.
    """
    bits = exponent.bits if exponent.value is None else math.log2(abs(exponent.value) + 1)
    if bits > (_MAX_EXPONENT_BITS_WITH_FUNCTIONS if exponent.depth else _MAX_EXPONENT_BITS):
        raise TooLarge("a power too large")


def of_operation(operator: ast.operator, left: Size, right: Size) -> Size:
    """Measure `left operator right`.

    Raises:
        TooLarge: it is, or the operator is not one of arithmetic.
    """
    match operator:
        case ast.Add() | ast.Sub():
            size = _sum(left, right)
        case ast.Mult() | ast.BitXor():
            size = _product(left, right)
        case ast.Div() | ast.FloorDiv():
            size = _product(left, _inverse(right))
        case ast.Pow():
            size = _power(left, right)
        case _:
            raise TooLarge(f"operator {type(operator).__name__}")
    if size.bits > MAX_BITS:
        raise TooLarge("a number or power too large")
    if left.value is not None and right.value is not None:
        exact = _exactly(operator, left.value, right.value)
        if exact is not None:
            return of_number(exact)
    return size


def _together(left: Size, right: Size, *, bits: float, terms: float) -> Size:
    return Size(
        bits=bits,
        terms=terms,
        under=left.under + right.under,
        functions=left.functions + right.functions,
        depth=max(left.depth, right.depth),
    )


def _log_sum(left: float, right: float) -> float:
    """Add numbers given by their log2; gives the log2 of the sum."""
    low, high = sorted((left, right))
    return high + math.log2(1 + 2 ** (low - high))


def _sum(left: Size, right: Size) -> Size:
    terms = _log_sum(left.terms + right.under, right.terms + left.under)
    return _together(left, right, bits=_log_sum(left.bits, right.bits), terms=terms)


def _product(left: Size, right: Size) -> Size:
    return _together(left, right, bits=left.bits + right.bits, terms=left.terms + right.terms)


def _inverse(size: Size) -> Size:
    return size._replace(terms=size.under, under=size.terms)


def _power(base: Size, exponent: Size) -> Size:
    check_exponent(exponent)
    if exponent.value is None:
        size = _product(_product(base, exponent), _FUNCTION)
        return size._replace(depth=size.depth + 1)
    times = max(1, math.ceil(abs(exponent.value)))
    stays = exponent.value.denominator != 1
    size = base._replace(
        bits=base.bits * times,
        terms=base.terms * times,
        under=base.under * times,
        functions=base.functions + stays,
        depth=base.depth + stays,
        value=None,
    )
    return size if exponent.value >= 0 else _inverse(size)


def _exactly(operator: ast.operator, left: Fraction, right: Fraction) -> Fraction | None:
    """Work an operation out exactly; None where what comes out is no number, or no fraction."""
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div() if right:
            return left / right
        case ast.FloorDiv() if right:
            return Fraction(left // right)
        case ast.Pow() if right.denominator == 1 and (left or right > 0):
            return Fraction(left ** int(right))
    return None
