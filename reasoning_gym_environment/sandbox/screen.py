"""Which answers may reach a verifier that hands them to `eval`, directly or through sympy.

An allow-list over the syntax tree: what is not known to be harmless is refused. The tree is
that of the very text that is evaluated. Sympy rewrites the tokens before it evaluates: on the
characters let through here, names become symbols, numbers sympy's numbers, and nothing else
changes. Refusing never costs a right answer its score.

Text that is no Python at all is safe before `eval`, which rejects it, but not before sympy,
which gives a meaning to `3!` and to `0or f(x)`.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from . import expression_size as sizes
from .expression_size import Size, TooLarge

NOT_AN_EXPRESSION = "not an expression that this verifier reads"
"""The reason for honest mistakes of form: words, `x^2`, `2x`, LaTeX."""

UNREADABLE = "("
"""Earns what a verifier gives to any text it can't read."""

_MAX_LITERAL_LENGTH = 128 * 1024
_MAX_EXPRESSION_LENGTH = 32 * 1024
_MAX_NODES = 16 * 1024
_MAX_TERMS_BITS = 11
_MAX_FUNCTIONS = 12  # honest answers have up to 4
_MAX_DEPTH = 4


class _Refused(Exception):
    """The answer may not be evaluated; the message says why."""


@dataclass(frozen=True, kw_only=True)
class _Rules:
    """What an expression may hold.

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
    max_terms_bits: float = _MAX_TERMS_BITS


_DIGITS = re.compile(r"[0-9 \t\n+\-*/().^]*")
_WORDS = re.compile(r"[A-Za-z0-9 \t\n+\-*/().,^]*")
_SYMBOLS = re.compile(r"[A-Za-z][0-9]*|pi|[Cc]onst(ant)?")
_FUNCTIONS = re.compile("a?(sin|cos|tan|cot|sec|csc)h?|exp|log|ln|sqrt|cbrt|[Aa]bs|Rational")

_ARITHMETIC = _Rules(characters=_DIGITS)
_INTEGRATION = _Rules(characters=_WORDS, names=_SYMBOLS, functions=_FUNCTIONS)
_EXPRESSION_TASKS = {
    "countdown": _ARITHMETIC,
    "intermediate_integration": _INTEGRATION,
    # It compares and never multiplies out: a product may be as long as its text.
    "polynomial_multiplication": _Rules(
        characters=_WORDS, names=_SYMBOLS, max_nodes=_MAX_NODES, max_terms_bits=math.inf
    ),
    "puzzle24": _ARITHMETIC,
    "simple_integration": _INTEGRATION,
}
_WHOLE_NUMBER_TASKS = frozenset({"countdown", "puzzle24"})
"""Tasks of which nothing else goes through sympy, not even the problem itself."""

_WHOLE_NUMBERS = re.compile(r"(?:[0-9 \t\n()+-]|\*(?!\*)|/(?!/))*")
_LITERAL_TASKS = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})

_LITERAL_NODES = (
    ast.Expression,
    ast.List,
    ast.Tuple,
    ast.Constant,
    ast.UnaryOp,
    ast.USub,
    ast.UAdd,
    ast.Name,
    ast.Load,
)
_UNQUOTED = re.compile(r"[A-Z]+|_")
"""Letters and empty squares without quotes; no verifier has a variable of such a name."""

_LONG_EXPONENT = re.compile(r"[0-9.][eE][+-]?[0-9]{3}")
_LONG_FRACTION = re.compile(r"\.[0-9]{100}")
_SIGN_RUN = re.compile(r"(?:[-+~]\s*){50}")


def _parse(text: str, max_length: int) -> ast.Expression | None:
    """Parse the text; None where Python rejects it.

    Raises:
        _Refused: it is too large to look at.
    """
    if len(text) > max_length:
        raise _Refused(f"longer than {max_length} characters")
    if _SIGN_RUN.search(text):
        raise _Refused("a long run of signs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # Some verifiers strip the text and some don't: what `eval` accepts either way is
            # accepted here.
            return ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError):  # ValueError: null bytes, lone surrogates
            return None
        except (MemoryError, RecursionError):
            raise _Refused("nested too deep") from None


def _check_literal(text: str) -> None:
    """Refuse what `eval` would do more with than build numbers, strings, lists.

    Raises:
        _Refused, TooLarge: it would.
    """
    tree = _parse(text, _MAX_LITERAL_LENGTH)
    for node in ast.walk(tree) if tree else ():
        if not isinstance(node, _LITERAL_NODES):
            raise _Refused(f"{type(node).__name__} in a literal")
        if isinstance(node, ast.Name) and not _UNQUOTED.fullmatch(node.id):
            raise _Refused("a name in a literal")
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            sizes.of_number(Fraction(node.value))


def _constant(value: object) -> Size:
    """Measure a constant; raises _Refused for what is no number, TooLarge for a large one."""
    if isinstance(value, float) and value != math.inf:
        return sizes.of_float(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return sizes.of_number(Fraction(value))
    raise _Refused(f"{value!r:.20} in an expression")


def _call(node: ast.Call, arguments: list[Size], rules: _Rules) -> Size:
    """Measure a call; raises _Refused for a function that is not known, TooLarge."""
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    known = rules.functions and rules.functions.fullmatch(name)
    if not known or node.keywords or not 1 <= len(arguments) <= 2:
        raise _Refused("a call of something other than an elementary function")
    if name == "Rational":
        return sizes.of_operation(ast.Div(), *[*arguments, sizes.ONE][:2])
    if name == "exp":
        sizes.check_exponent(arguments[0])
    return sizes.of_call(arguments)


def _size(node: ast.expr, parts: Mapping[ast.AST, Size], rules: _Rules) -> Size:
    """Measure a node whose parts have been measured.

    Raises:
        _Refused: it is none of arithmetic.
        TooLarge: its result would be.
    """
    match node:
        case ast.Constant():
            return _constant(node.value)
        case ast.Name() if rules.names and rules.names.fullmatch(node.id):
            return sizes.NAME
        case ast.UnaryOp(op=ast.UAdd()):
            return parts[node.operand]
        case ast.UnaryOp(op=ast.USub()):
            return sizes.of_negative(parts[node.operand])
        case ast.BinOp():
            return sizes.of_operation(node.op, parts[node.left], parts[node.right])
        case ast.Call():
            return _call(node, [parts[argument] for argument in node.args], rules)
    raise _Refused(f"{type(node).__name__} in an expression")


def _size_of_all(nodes: list[ast.AST], rules: _Rules) -> Size:
    """Measure the expression of these nodes, parents before children."""
    called = {node.func for node in nodes if isinstance(node, ast.Call)}
    expressions = [n for n in nodes if isinstance(n, ast.expr) and n not in called]
    parts: dict[ast.AST, Size] = {}
    for node in reversed(expressions):
        parts[node] = _size(node, parts, rules)
    return parts[expressions[0]]


def _check_expression(text: str, rules: _Rules) -> None:
    """Refuse what sympy would do more with than arithmetic of bounded size.

    Raises:
        _Refused, TooLarge: it would.
    """
    tree = _parse(text, _MAX_EXPRESSION_LENGTH)
    if tree is None:
        raise _Refused(NOT_AN_EXPRESSION)
    if not rules.characters.fullmatch(text.strip()):
        raise _Refused("a character that the expressions of this task do without")
    if _LONG_EXPONENT.search(text) or _LONG_FRACTION.search(text):
        raise TooLarge("a number too long")
    nodes = list(ast.walk(tree))
    if len(nodes) > rules.max_nodes:
        raise TooLarge("too many parts")
    size = _size_of_all(nodes, rules)
    if size.functions > _MAX_FUNCTIONS or size.depth > _MAX_DEPTH:
        raise TooLarge("too many functions")
    if max(size.terms, size.under) > rules.max_terms_bits:
        raise TooLarge("too many terms once multiplied out")
    if any(isinstance(node, ast.BitXor) for node in nodes):
        raise _Refused(NOT_AN_EXPRESSION)


def leaves_nothing(task: str, answer: str) -> bool:
    """Say whether an executing task's verifier does no more than build what stands in the answer.

    So it is with literals, with numbers that are added, subtracted, multiplied and divided, which
    give fractions, and with all that the screen keeps from the verifier.
    """
    if task in _LITERAL_TASKS:
        return True
    if task in _WHOLE_NUMBER_TASKS and _WHOLE_NUMBERS.fullmatch(answer):
        return True
    return screen(task, answer) is not None


def screen(task: str, answer: str) -> str | None:
    """Say whether this task's verifier may evaluate the answer.

    Returns:
        None when it may, and for every task whose verifier evaluates nothing; else a short
        reason. The verifier then gets `UNREADABLE` in place of the answer.
    """
    try:
        if task in _LITERAL_TASKS:
            _check_literal(answer)
        elif rules := _EXPRESSION_TASKS.get(task):
            _check_expression(answer, rules)
    except (_Refused, TooLarge) as refused:
        return str(refused)
    return None
