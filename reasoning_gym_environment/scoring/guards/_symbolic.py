"""Guards of numbers, expressions, logic and plans.

They refuse what is not finite, uses other numbers than the given ones, leaves the work to the
verifier, or repeats the question. Functions that import the library run in worker processes, which
have it loaded.
"""

from __future__ import annotations

import ast
import json
import math
import operator
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from ..extraction import strip_formatting
from ._text import credit_above_chance

if TYPE_CHECKING:
    from reasoning_gym.logic.propositional_logic import Expression


def _closeness(actual: float, expected: float) -> float:
    """Return 1 if equal, falling linearly to 0 at a relative error of 2 %."""
    if actual == expected:
        return 1.0
    error = abs(actual - expected)
    limit = 0.02 * abs(expected)
    return 1 - error / limit if error < limit else 0.0


def complex_number(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse letters other than those of complex numbers: `nan` passes every comparison."""
    letters = {character for character in answer.lower() if character.isalpha()}
    return 1.0 if letters <= set("eij") else 0.0


def given_numbers(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse numbers that the question doesn't give: each may be off by 1, and NaN by anything."""
    try:
        found = sorted(float(number) for number in json.loads(answer.replace("'", '"')))
    except (ValueError, TypeError, RecursionError):  # the verifier can't read it either
        return 1.0
    return 1.0 if found == sorted(map(float, entry["metadata"]["sorted_numbers"])) else 0.0


def decimal_digits(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse wrong digits: the verifier allows an error of 0.001, however many digits are shown.

    An answer may be rounded to fewer digits. The last ones of a label that has as many digits as
    the question allows depend on how each step is rounded.
    """
    try:
        value, right = Decimal(answer), Decimal(entry["answer"])
        most = re.findall(r"maximum of (\d+) significant digits", entry["question"])[0]
        is_rounded = len(right.as_tuple().digits) >= int(most)
        allowed = max(_half_a_unit(value), 20 * _half_a_unit(right) if is_rounded else Decimal(0))
        return 1.0 if abs(value - right) <= allowed else 0.0
    except (ArithmeticError, ValueError):  # not a number, or not finite
        return 0.0


def _half_a_unit(number: Decimal) -> Decimal:
    """Return half of the place value of the last digit; raise ValueError if it is not finite."""
    return Decimal("0.5").scaleb(int(number.as_tuple().exponent))


def chosen_number(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse other candidates: the verifier allows an error of 0.01, and theirs are closer."""
    try:
        found, right = (float(text.replace(",", "")) for text in (answer, entry["answer"]))
    except ValueError:
        return 0.0
    return float(math.isclose(found, right, rel_tol=1e-14))  # as written with fifteen digits


def pooled_numbers(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse errors above 0.01: the question asks for two decimals, the verifier allows 1 %."""
    try:
        found, right = (
            [float(cell) for cell in text.split()] for text in (answer, entry["answer"])
        )
    except ValueError:
        return 0.0
    if len(found) != len(right):
        return 1.0
    errors = [abs(a - b) for a, b in zip(found, right, strict=True)]
    # One unit of the second decimal, as halves may be rounded up or down. The verifier pays 0.1 for
    # any matrix of the right shape.
    return 1.0 if max(errors, default=0.0) < 0.0101 else 0.1


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
    return _closeness(float(value), float(expected)) if value <= 1 else 0.0


def duration(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay by relative error: on the scale of the whole range any constant is near."""
    kind = entry["metadata"]["task_type"]
    try:
        actual = _seconds(answer, kind)
    except (ValueError, IndexError, OverflowError):  # no time: the verifier reads `12:00:00.-5`
        return 0.0
    return _closeness(actual, _seconds(entry["answer"], kind))


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
    if not entry["answer"] and re.search(r"\b(no|none)\b", answer, re.IGNORECASE):
        return 1.0
    parts = [part.strip() for part in answer.strip("[]()\"' ").split(",")]
    try:
        return 1.0 if all(math.isfinite(float(part)) for part in parts if part) else 0.0
    except ValueError:  # not a number
        return 0.0


def prime_factors(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse factors that aren't primes of the number: the number itself has the right product."""
    try:
        factors = {
            int(factor) for factor in answer.split("\N{MULTIPLICATION SIGN}") if factor.strip()
        }
    except ValueError:  # the verifier can't read it either
        return 1.0
    return 1.0 if factors <= set(entry["metadata"]["factors"]) else 0.0


_NAME = re.compile(r"(?<!\w)[^\W\d]\w*")
_UNREADABLE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, ArithmeticError)


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


def make_24(answer: str, entry: Mapping[str, Any]) -> float:
    """Require 24 from the given numbers: any four pass, and any value that rounds down to 24."""
    return _makes(24, answer, entry)


def make_target(answer: str, entry: Mapping[str, Any]) -> float:
    """Require the target from the given numbers: `0x…` isn't counted, and near is enough."""
    return _makes(entry["metadata"]["target"], answer, entry)


def _makes(target: int, answer: str, entry: Mapping[str, Any]) -> float:
    """Pay nothing unless exactly the given numbers are used, little unless they make the target."""
    numbers: list[int] = []
    try:
        value = _value(ast.parse(" ".join(answer.split()), mode="eval").body, numbers)
    except _UNREADABLE:
        return 0.0
    if sorted(numbers) != sorted(entry["metadata"]["numbers"]):
        return 0.0
    return 1.0 if value == target else 0.05


def _value(node: ast.AST, numbers: list[int]) -> Fraction:
    """Evaluate sums, differences, products and quotients of integers, and collect the integers.

    An integer may have a decimal point: a full stop after the expression gives it one.

    Raises:
        ValueError: it contains something else.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        value = Fraction(node.value)
        if value.denominator == 1:
            numbers.append(value.numerator)
            return value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        operand = _value(node.operand, numbers)
        return -operand if isinstance(node.op, ast.USub) else operand
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, numbers), _value(node.right, numbers)
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right
    raise ValueError(type(node).__name__)


def literal(answer: str, entry: Mapping[str, Any]) -> float:
    """Accept only literals: the answer is evaluated where the oracle is in reach."""
    if answer.strip() == entry["answer"].strip():
        return 1.0
    if answer in entry["metadata"].get("valid_answers", ()):
        return 1.0
    try:
        ast.literal_eval(answer.strip())
    except _UNREADABLE:
        return 0.0
    return 1.0


def conclusion(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse restated premises and tautologies: both follow without a step of reasoning.

    A statement restates premises if it has the truth table of one of them, or of some of them
    joined by "and", and isn't shorter: a shorter one is a simplification, which takes reasoning.
    Order, brackets, double negation and repetition make no difference. The entry's own example is
    right even if it is a premise.
    """
    from reasoning_gym.logic.propositional_logic import parse_expr

    metadata = entry["metadata"]
    if len(answer) > 1000:  # default conclusions have about 10 characters
        return 0.0
    names = metadata["variables"]
    always = (1 << (1 << len(names))) - 1  # the truth table of a tautology, as bits
    columns = {name: always // ((1 << (1 << i)) + 1) for i, name in enumerate(names)}
    try:
        statement = _meaning(parse_expr(strip_formatting(answer)), columns, always)
    except (ValueError, RecursionError, KeyError):  # no statement, or about something else
        return 0.0
    if statement.text == _normal_form(parse_expr(metadata["example_answer"])):
        return 1.0
    if statement.table == always:
        return 0.05  # as the verifier for a statement that does not follow
    premises = [_meaning(parse_expr(text), columns, always) for text in metadata["premises"]]
    return 0.0 if _restates(statement, premises) else 1.0


class _Statement(NamedTuple):
    """A statement in its normal form, and its truth table: one bit for each assignment."""

    text: str
    table: int

    @property
    def size(self) -> int:
        """The number of names and signs."""
        return len(self.text) - self.text.count("(") - self.text.count(")")


def _restates(statement: _Statement, premises: Sequence[_Statement]) -> bool:
    implied = [p for p in premises if not statement.table & ~p.table]
    if _all_of(implied) != statement.table:
        return False
    sizes = [p.size for p in implied if p.table == statement.table]
    for premise in sorted(implied, key=lambda p: p.size, reverse=True):
        others = [p for p in implied if p is not premise]
        if _all_of(others) == statement.table:
            implied = others
    sizes.append(sum(p.size for p in implied) + len(implied) - 1)
    return statement.size >= min(sizes)


def _all_of(statements: Sequence[_Statement]) -> int:
    return reduce(operator.and_, (one.table for one in statements), -1)


def _meaning(statement: Expression, columns: Mapping[str, int], always: int) -> _Statement:
    return _Statement(_normal_form(statement), _table(statement, columns, always))


def _table(statement: Expression, columns: Mapping[str, int], always: int) -> int:
    """Return a statement's truth table; raise KeyError for a name without a column."""
    sign = statement.operator  # an enumeration of texts
    if sign is None:
        return columns[statement.left]
    left = _table(statement.left, columns, always)
    if sign == "¬":
        return always ^ left
    right = _table(statement.right, columns, always)
    if sign == "∧":
        return left & right
    if sign == "→":
        return (always ^ left) | right
    return always ^ left ^ right if sign == "↔" else left | right


def _normal_form(statement: Expression) -> str:
    """Return one text for all statements that differ only in notation."""
    sign = statement.operator  # an enumeration of texts
    if sign is None:
        return str(statement.left)
    left = _normal_form(statement.left)
    if sign == "¬":
        return left[1:] if left.startswith("¬") else f"¬{left}"
    right = _normal_form(statement.right)
    if sign == "→":
        return f"({left}→{right})"
    if left == right and sign != "↔":
        return left
    return f"({min(left, right)}{sign.value}{max(left, right)})"


def roles(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for roles above chance: half are right by luck, both for half of the people always."""
    from reasoning_gym.logic.knights_knaves import KnightsKnavesDataset

    found = KnightsKnavesDataset._normalize_answer(answer)
    right = KnightsKnavesDataset._normalize_answer(entry["answer"])
    by_name = dict(found)
    if len(by_name) != len(found) or by_name.keys() != dict(right).keys():
        return 0.0
    names = sorted(by_name)
    expected = [dict(right)[name] for name in names]
    return credit_above_chance(
        [by_name[name] for name in names], [None] * len(names), expected, chance=0.5
    )


def possible_moves(answer: str, entry: Mapping[str, Any]) -> float:
    """Return the share of needed moves among needed and impossible ones.

    The verifier skips moves that can't be made, but the question asks to name an agent only if it
    has something to do. Needed moves are counted on the shortest paths: moving to and fro doesn't
    make up for impossible moves.
    """
    from reasoning_gym.games.boxnet import action_from_response

    start = state = entry["metadata"]["initial_state"]
    idle = 0
    try:
        for step in json.loads(answer):
            for agent, move in step.items():
                after = action_from_response(state, [{agent: move}])
                idle += after == state
                state = after
    except json.JSONDecodeError:  # the verifier can't read it either
        return 1.0
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
        return 0.0  # the verifier raises
    needed = _moves_needed(start)
    return needed / (needed + idle)


def _moves_needed(state: Mapping[str, Sequence[str]]) -> int:
    """Count the moves that take each box to the nearest free target of its color."""
    held = [(tuple(map(float, at.split("_"))), what) for at, all_ in state.items() for what in all_]
    targets = [(at, what) for at, what in held if what.startswith("target_")]
    moves = 0
    for (row, column), box in held:
        if not box.startswith("box_"):
            continue
        ways = {
            (at, what): abs(at[0] - row) + abs(at[1] - column)
            for at, what in targets
            if what.removeprefix("target_") == box.removeprefix("box_")
        }
        nearest = min(ways, key=ways.__getitem__)
        targets.remove(nearest)
        moves += int(ways[nearest]) + 1
    return moves
