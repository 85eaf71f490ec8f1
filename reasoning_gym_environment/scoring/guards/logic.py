"""Guards of tasks of the category logic."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from ..extraction import strip_formatting
from .oracle import credit_above_chance

if TYPE_CHECKING:
    from reasoning_gym.logic.propositional_logic import Expression


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
    except (ValueError, RecursionError, KeyError):
        return 0.0  # no statement, or about something else
    if statement.text == _normal_form(parse_expr(metadata["example_answer"])):
        return 1.0
    if statement.table == always:
        return 0.05  # as the verifier for a statement that does not follow
    premises = [
        _meaning(parse_expr(text), columns, always) for text in metadata["premises"]
    ]
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
        remaining = [p for p in implied if p is not premise]
        if _all_of(remaining) == statement.table:
            implied = remaining
    sizes.append(sum(p.size for p in implied) + len(implied) - 1)
    return statement.size >= min(sizes)


def _all_of(statements: Sequence[_Statement]) -> int:
    return reduce(operator.and_, (statement.table for statement in statements), -1)


def _meaning(
    statement: Expression, columns: Mapping[str, int], always: int
) -> _Statement:
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

    answered_roles = KnightsKnavesDataset._normalize_answer(answer)
    right = KnightsKnavesDataset._normalize_answer(entry["answer"])
    by_name = dict(answered_roles)
    if len(by_name) != len(answered_roles) or by_name.keys() != dict(right).keys():
        return 0.0
    names = sorted(by_name)
    expected = [dict(right)[name] for name in names]
    return credit_above_chance(
        [by_name[name] for name in names], [None] * len(names), expected, chance=0.5
    )
