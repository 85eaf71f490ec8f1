"""Guards of tasks of the category games."""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from .oracle import UNREADABLE, credit_above_chance


def number_grid(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for open cells only, above chance: the verifier pays for those that the puzzle gives.

    A row with a repeated number counts for nothing: filling cells at random makes such rows.
    """
    puzzle = entry["metadata"]["puzzle"]
    solution = entry["metadata"]["solution"]
    size = len(solution)
    rows = [[int(c) for c in line if c in "123456789"] for line in answer.split("\n")]
    rows = [row for row in rows if len(row) == size][:size]
    blank = [0] * size
    rows = [row if len(set(row)) == size else blank for row in rows]
    rows += [blank] * (size - len(rows))
    cells, puzzle_cells, solution_cells = (
        [*itertools.chain(*grid)] for grid in (rows, puzzle, solution)
    )
    return credit_above_chance(cells, puzzle_cells, solution_cells, chance=1 / size)


def same_characters(answer: str, entry: Mapping[str, Any]) -> float:
    """Pay for agreement above that of one repeated character: a sixth of text is blanks."""
    right: str = entry["answer"]
    return credit_above_chance(answer, [None] * len(right), right, chance=0.2)


def made_number(answer: str, entry: Mapping[str, Any]) -> float:
    """Require the given numbers, and pay little unless they make the target, or 24.

    The verifiers take other numbers, such as `0x…`, and what is near or rounds down to the target.
    """
    numbers: list[int] = []
    try:
        value = _value(ast.parse(" ".join(answer.split()), mode="eval").body, numbers)
    except UNREADABLE:
        return 0.0
    metadata = entry["metadata"]
    if sorted(numbers) != sorted(metadata["numbers"]):
        return 0.0
    return 1.0 if value == metadata.get("target", 24) else 0.05


def _value(node: ast.AST, numbers: list[int]) -> Fraction:
    """Evaluate sums, differences, products and quotients of integers, and collect the integers.

    An integer may have a decimal point: a full stop after the expression gives it one. Raises
    ValueError for something else.
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
        left = _value(node.left, numbers)
        right = _value(node.right, numbers)
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
    held = [
        (tuple(map(float, at.split("_"))), content)
        for at, contents in state.items()
        for content in contents
    ]
    targets = [(at, content) for at, content in held if content.startswith("target_")]
    moves = 0
    for (row, column), box in held:
        if not box.startswith("box_"):
            continue
        ways = {
            (at, content): abs(at[0] - row) + abs(at[1] - column)
            for at, content in targets
            if content.removeprefix("target_") == box.removeprefix("box_")
        }
        nearest = min(ways, key=ways.__getitem__)
        targets.remove(nearest)
        moves += int(ways[nearest]) + 1
    return moves
