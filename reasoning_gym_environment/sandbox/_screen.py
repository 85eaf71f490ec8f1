"""The screen: which answers may reach a verifier that passes them to `eval`, directly or by sympy.

An allow-list over the syntax tree: what is not known to be harmless is refused, and so is what
would grow too large. The tree is that of the very text that is evaluated. Sympy rewrites the
tokens before it evaluates: with the characters allowed here, names become symbols, numbers become
sympy's numbers, and nothing else changes. Refusing never costs a right answer its score.

Text that is not Python is safe before `eval`, which rejects it, but not before sympy, which gives a
meaning to `3!` and to `0or f(x)`.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

NOT_AN_EXPRESSION = "not an expression that this verifier reads"
"""The reason for honest mistakes of form: words, `x^2`, `2x`, LaTeX."""

UNREADABLE = "("
"""Earns what a verifier gives to any text that it can't read."""

MAX_FUNCTIONS = 12
"""Honest answers have up to 4; a product of thirty cosines takes longer than any deadline."""

MAX_DEPTH = 4
"""Functions inside functions; honest answers have none."""

MAX_EXPONENT_BITS = 12
"""Of an exponent: honest ones have up to 6, and `(x+1)**99999` outlasts any deadline."""

MAX_FUNCTION_EXPONENT_BITS = 6
"""The same of an exponent with functions, which may become larger; honest answers have none."""


class _RefusedError(Exception):
    """The answer may not be evaluated; the message says why."""


@dataclass(frozen=True, kw_only=True)
class _Rules:
    """What an expression may contain.

    Attributes:
        characters: a pattern of all its characters. It keeps out of sympy's tokens what the
            syntax tree doesn't show: comments, line continuations, letters that Python
            replaces by others.
        names: a pattern of the names that may stand for a value.
        functions: a pattern of the names that may be called.
        max_nodes: of the syntax tree.
        max_terms_bits: log2 of how many terms it may have once multiplied out.
    """

    characters: re.Pattern[str]
    names: re.Pattern[str] | None = None
    functions: re.Pattern[str] | None = None
    max_nodes: int = 1024
    max_terms_bits: float = 11


def _rules_by_task() -> dict[str, _Rules]:
    words = re.compile(r"[A-Za-z0-9 \t\n+\-*/().,^]*")
    symbols = re.compile(r"[A-Za-z][0-9]*|pi|[Cc]onst(ant)?")
    functions = re.compile(
        "a?(sin|cos|tan|cot|sec|csc)h?|exp|log|ln|sqrt|cbrt|[Aa]bs|Rational"
    )
    arithmetic = _Rules(characters=re.compile(r"[0-9 \t\n+\-*/().^]*"))
    integration = _Rules(characters=words, names=symbols, functions=functions)
    return {
        "countdown": arithmetic,
        "intermediate_integration": integration,
        # It compares and never multiplies out: a product may be as long as its text.
        "polynomial_multiplication": _Rules(
            characters=words,
            names=symbols,
            max_nodes=16 * 1024,
            max_terms_bits=math.inf,
        ),
        "puzzle24": arithmetic,
        "simple_integration": integration,
    }


_EXPRESSION_TASKS = _rules_by_task()
_LITERAL_TASKS = frozenset(
    {"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"}
)


def screen(task: str, answer: str) -> str | None:
    """Return why this task's verifier may not evaluate the answer, or None if it may.

    None for every task whose verifier evaluates nothing. A verifier gets `UNREADABLE` in place of
    an answer that is not an expression.
    """
    try:
        if task in _LITERAL_TASKS:
            _check_literal(answer)
        elif rules := _EXPRESSION_TASKS.get(task):
            _check_expression(answer, rules)
    except _RefusedError as refused:
        return str(refused)
    return None


def executes_nothing(task: str, answer: str) -> bool:
    """Return whether an executing task's verifier only builds the values that the answer spells.

    True for literals, for whole numbers that are added, subtracted, multiplied and divided (which
    give fractions), and for all that the screen keeps from the verifier.
    """
    if task in _LITERAL_TASKS:
        return True
    # Nothing but their answer goes through sympy, not even the problem.
    whole_numbers = r"(?:[0-9 \t\n()+-]|\*(?!\*)|/(?!/))*"
    if task in ("countdown", "puzzle24") and re.fullmatch(whole_numbers, answer):
        return True
    return screen(task, answer) is not None


def _parse(text: str, max_length: int) -> ast.Expression | None:
    """Parse the text; None if Python rejects it; raise _RefusedError if it is too large."""
    if len(text) > max_length:
        raise _RefusedError(f"longer than {max_length} characters")
    if re.search(r"(?:[-+~]\s*){50}", text):
        raise _RefusedError("a long run of signs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Some verifiers strip the text and some don't: accept what `eval` accepts either way.
            return ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError):  # ValueError: null bytes, lone surrogates
            return None
        except (MemoryError, RecursionError):
            raise _RefusedError("nested too deep") from None


def _check_literal(text: str) -> None:
    """Refuse what `eval` would do more with than build numbers, strings and lists."""
    tree = _parse(text, 128 * 1024)
    if tree is None:
        return
    harmless = (
        *(ast.Expression, ast.List, ast.Tuple, ast.Constant),
        *(ast.UnaryOp, ast.USub, ast.UAdd, ast.Name, ast.Load),
    )
    for node in ast.walk(tree):
        if not isinstance(node, harmless):
            raise _RefusedError(f"{type(node).__name__} in a literal")
        # Letters and empty squares without quotes: no verifier has a variable of such a name.
        if isinstance(node, ast.Name) and not re.fullmatch("[A-Z]+|_", node.id):
            raise _RefusedError("a name in a literal")
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            _check_bits(node.value.bit_length(), "a number too large")


def _check_expression(text: str, rules: _Rules) -> None:
    """Refuse what sympy would do more with than arithmetic of bounded size."""
    tree = _parse(text, 32 * 1024)
    if tree is None:
        raise _RefusedError(NOT_AN_EXPRESSION)
    if not rules.characters.fullmatch(text.strip()):
        raise _RefusedError("a character that expressions of this task do without")
    if re.search(r"[0-9.][eE][+-]?[0-9]{3}|\.[0-9]{100}", text):
        raise _RefusedError("a number too long")
    nodes = list(ast.walk(tree))
    if len(nodes) > rules.max_nodes:
        raise _RefusedError("too many parts")
    called = {node.func for node in nodes if isinstance(node, ast.Call)}
    expressions = [n for n in nodes if isinstance(n, ast.expr) and n not in called]
    parts: dict[ast.AST, _Size] = {}
    for node in reversed(expressions):  # parents come before children
        parts[node] = _node_size(node, parts, rules)
    size = parts[expressions[0]]
    if size.functions > MAX_FUNCTIONS or size.depth > MAX_DEPTH:
        raise _RefusedError("too many functions")
    if max(size.terms, size.under) > rules.max_terms_bits:
        raise _RefusedError("too many terms once multiplied out")
    if any(isinstance(node, ast.BitXor) for node in nodes):
        raise _RefusedError(NOT_AN_EXPRESSION)


class _Size(NamedTuple):
    """How large an expression becomes when it is evaluated and simplified: rough upper bounds.

    What exceeds them would fill the memory, or keep a processor busy beyond any deadline.

    Attributes:
        bits: of its largest number, every name standing for 2.
        terms: log2 of the terms of its numerator, multiplied out over one denominator. A
            function counts as four: simplification tries its sums of others.
        under: log2 of the terms of that denominator.
        functions: how many there are, including roots and other powers that stay.
        depth: functions inside functions.
        value: if it is a plain number.
    """

    bits: float
    terms: float = 0
    under: float = 0
    functions: int = 0
    depth: int = 0
    value: Fraction | None = None


def _node_size(node: ast.expr, parts: Mapping[ast.AST, _Size], rules: _Rules) -> _Size:
    """Measure a node whose parts have been measured; refuse what is not arithmetic."""
    match node:
        case ast.Constant(value=float(value)) if value != math.inf:
            # Sympy gives it as many digits as were written: its magnitude counts.
            bits = max(1, math.log2(abs(value) + 1))
            return _number_size(Fraction(value))._replace(bits=bits)
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return _number_size(Fraction(value))
        case ast.Constant():
            raise _RefusedError(f"{node.value!r:.20} in an expression")
        case ast.Name() if rules.names and rules.names.fullmatch(node.id):
            return _Size(bits=1)
        case ast.UnaryOp(op=ast.UAdd()):
            return parts[node.operand]
        case ast.UnaryOp(op=ast.USub()):
            size = parts[node.operand]
            return size if size.value is None else size._replace(value=-size.value)
        case ast.BinOp():
            return _operation_size(node.op, parts[node.left], parts[node.right])
        case ast.Call():
            return _call_size(node, [parts[argument] for argument in node.args], rules)
    raise _RefusedError(f"{type(node).__name__} in an expression")


def _number_size(value: Fraction) -> _Size:
    bits = max(value.numerator.bit_length(), value.denominator.bit_length())
    _check_bits(bits, "a number too large")
    return _Size(bits=bits, value=value)


def _check_bits(bits: float, reason: str) -> None:
    if bits > 1024:  # honest coefficients have up to 275
        raise _RefusedError(reason)


def _call_size(node: ast.Call, arguments: list[_Size], rules: _Rules) -> _Size:
    """Measure a call; a function's value may be as large a number as its arguments."""
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    is_allowed = rules.functions and rules.functions.fullmatch(name)
    if not is_allowed or node.keywords or not 1 <= len(arguments) <= 2:
        raise _RefusedError("a call of something other than an elementary function")
    if name == "Rational":
        unit = _Size(bits=1, value=Fraction(1))
        return _operation_size(ast.Div(), *[*arguments, unit][:2])
    if name == "exp":
        _check_exponent(arguments[0])
    return _Size(
        bits=sum(argument.bits for argument in arguments),
        terms=2,
        functions=1 + sum(argument.functions for argument in arguments),
        depth=1 + max(argument.depth for argument in arguments),
    )


def _check_exponent(exponent: _Size) -> None:
    """Refuse an exponent that is too large, or may become so.

    `exp(99999*log(x))` is `x**99999`, and `2**(99999*x)` is simplified to `(2**99999)**x`.
    """
    bits = (
        exponent.bits if exponent.value is None else math.log2(abs(exponent.value) + 1)
    )
    limit = MAX_FUNCTION_EXPONENT_BITS if exponent.depth else MAX_EXPONENT_BITS
    if bits > limit:
        raise _RefusedError("a power too large")


def _operation_size(operator: ast.operator, left: _Size, right: _Size) -> _Size:
    """Measure `left operator right`; refuse operators other than arithmetic ones."""
    match operator:
        case ast.Add() | ast.Sub():
            terms = _log_sum(left.terms + right.under, right.terms + left.under)
            size = _combine(
                left,
                right,
                bits=_log_sum(left.bits, right.bits),
                terms=terms,
            )
        case ast.Mult() | ast.BitXor():
            size = _product_size(left, right)
        case ast.Div() | ast.FloorDiv():
            size = _product_size(left, _inverse(right))
        case ast.Pow():
            size = _power_size(left, right)
        case _:
            raise _RefusedError(f"operator {type(operator).__name__}")
    _check_bits(size.bits, "a number or power too large")
    if left.value is not None and right.value is not None:
        exact = _evaluate(operator, left.value, right.value)
        if exact is not None:
            return _number_size(exact)
    return size


def _combine(left: _Size, right: _Size, *, bits: float, terms: float) -> _Size:
    return _Size(
        bits=bits,
        terms=terms,
        under=left.under + right.under,
        functions=left.functions + right.functions,
        depth=max(left.depth, right.depth),
    )


def _log_sum(left: float, right: float) -> float:
    """Return the log2 of the sum of two numbers given by their log2."""
    low, high = sorted((left, right))
    return high + math.log2(1 + 2 ** (low - high))


def _product_size(left: _Size, right: _Size) -> _Size:
    return _combine(
        left,
        right,
        bits=left.bits + right.bits,
        terms=left.terms + right.terms,
    )


def _inverse(size: _Size) -> _Size:
    return size._replace(terms=size.under, under=size.terms)


def _power_size(base: _Size, exponent: _Size) -> _Size:
    _check_exponent(exponent)
    if exponent.value is None:
        function = _Size(bits=0, terms=2, functions=1, depth=1)
        size = _product_size(_product_size(base, exponent), function)
        return size._replace(depth=size.depth + 1)
    times = max(1, math.ceil(abs(exponent.value)))
    is_root = exponent.value.denominator != 1
    size = base._replace(
        bits=base.bits * times,
        terms=base.terms * times,
        under=base.under * times,
        functions=base.functions + is_root,
        depth=base.depth + is_root,
        value=None,
    )
    return size if exponent.value >= 0 else _inverse(size)


def _evaluate(
    operator: ast.operator, left: Fraction, right: Fraction
) -> Fraction | None:
    """Return the exact value of an operation; None if it is not a number, or not a fraction."""
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
