"""Functions that `benchmarks/contain.py` calls: one costs nothing, one imports and warms sympy."""

from __future__ import annotations


def contains(text: str, data: str) -> float:
    """Return 1 if the data is in the text."""
    return float(data in text)


def same_expression(text: str, data: str) -> float:
    """Return 1 if two expressions are equal."""
    from sympy import simplify
    from sympy.parsing.sympy_parser import parse_expr

    return float(simplify(parse_expr(text) - parse_expr(data)) == 0)
