"""Answers to puzzles that say what was given, or everything at once.

The library is imported where it is needed: only worker processes do, and have it loaded.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..tolerance import relaxed
from .progress import progress

if TYPE_CHECKING:
    from reasoning_gym.logic.propositional_logic import Expression

_LONGEST_CONCLUSION = 1000
"""In characters: default conclusions have about 10."""

_ANY_STATEMENT = 0.05
"""What the verifier gives to a statement that doesn't follow."""


def conclusion(answer: str, entry: Mapping[str, Any]) -> float:
    """Refuse premises and tautologies: they follow from any premises.

    Order, brackets, doubled negation and repetition make no other statement. The entry's own
    example is right even where it is a premise.
    """
    from reasoning_gym.logic.propositional_logic import parse_expr

    metadata = entry["metadata"]
    if len(answer) > _LONGEST_CONCLUSION:
        return 0.0
    try:
        statement = parse_expr(relaxed(answer))
    except (ValueError, RecursionError):  # no statement, though a name between tags is one
        return 0.0
    if str(statement) == str(parse_expr(metadata["example_answer"])):
        return 1.0
    if not _names(statement) <= set(metadata["variables"]):
        return 0.0
    if _is_tautology(statement):
        return _ANY_STATEMENT
    premises = [_normal_form(parse_expr(premise)) for premise in metadata["premises"]]
    return 0.0 if _normal_form(statement) in premises else 1.0


def _names(statement: Expression) -> set[str]:
    if statement.operator is None:
        return {statement.left}
    parts = (statement.left, statement.right)
    return set().union(*(_names(part) for part in parts if part is not None))


def _is_tautology(statement: Expression) -> bool:
    names = sorted(_names(statement))
    rows = itertools.product((True, False), repeat=len(names))
    return all(statement.evaluate(dict(zip(names, row, strict=True))) for row in rows)


def _normal_form(statement: Expression) -> str:
    """Write a statement so that others that differ only in how they are written read the same."""
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
    """Pay for roles above chance: half are right by luck, and both of half the people always."""
    from reasoning_gym.logic.knights_knaves import KnightsKnavesDataset

    found = KnightsKnavesDataset._normalize_answer(answer)
    right = KnightsKnavesDataset._normalize_answer(entry["answer"])
    by_name = dict(found)
    if len(by_name) != len(found) or by_name.keys() != dict(right).keys():
        return 0.0
    names = sorted(by_name)
    expected = [dict(right)[name] for name in names]
    return progress([by_name[name] for name in names], [None] * len(names), expected, chance=0.5)


def possible_moves(answer: str, entry: Mapping[str, Any]) -> float:
    """Measure how many of the plan's moves can be made when their turn comes, in [0, 1].

    The verifier skips the others, but the question asks for an agent to be named only if it has
    something to do.
    """
    from reasoning_gym.games.boxnet import action_from_response

    state = entry["metadata"]["initial_state"]
    made = listed = 0
    try:
        for step in json.loads(answer):
            for agent, move in step.items():
                after = action_from_response(state, [{agent: move}])
                made += after != state
                listed += 1
                state = after
    except json.JSONDecodeError:  # the verifier can't read it either
        return 1.0
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
        return 0.0  # the verifier raises
    return made / listed if listed else 1.0
