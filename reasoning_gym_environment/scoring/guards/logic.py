"""Guards of tasks of the category logic."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from ..extraction import strip_formatting
from .oracle import credit_above_chance

if TYPE_CHECKING:
    from reasoning_gym.logic.propositional_logic import Expression


LONGEST_CONCLUSION = 1000
"""Characters; the conjunction of all premises of the hardest level has up to 800."""


def conclusion(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse what follows without reasoning, however it is written.

    That is a tautology, what follows from one premise alone, and what follows if any variable of
    the premises is true: "P or Q or R" is a conclusion of most premises.
    """
    from reasoning_gym.logic.propositional_logic import parse_expr

    metadata = entry["metadata"]
    if len(answer) > LONGEST_CONCLUSION:
        return 0.0
    names = metadata["variables"]
    always = (1 << (1 << len(names))) - 1  # the truth table of a tautology, as bits
    columns = {name: always // ((1 << (1 << i)) + 1) for i, name in enumerate(names)}
    try:
        table = _table(parse_expr(strip_formatting(answer)), columns, always)
    except (ValueError, RecursionError, KeyError):
        return 0.0  # no statement, or about something else
    if table == always:
        return 0.05  # as the verifier for a statement that does not follow
    premises = metadata["premises"]
    any_variable = reduce(
        operator.or_, (columns[name] for name in names if name in "".join(premises))
    )
    premise_tables = [_table(parse_expr(text), columns, always) for text in premises]
    sources = [*premise_tables, any_variable]
    follows_at_once = any(not source & ~table for source in sources)
    return 0.0 if follows_at_once else 1.0


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
