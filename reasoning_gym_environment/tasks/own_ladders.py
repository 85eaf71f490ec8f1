"""Ladders of our own, for tasks whose curriculum is missing or useless."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class OwnLadder(NamedTuple):
    """A ladder, and why the task has no use for the library's."""

    reason: str
    levels: tuple[Mapping[str, Any], ...]


def _knights(nodes: tuple[int, int], pieces: int, steps: tuple[int, int]) -> dict[str, Any]:
    return {
        "min_nodes": nodes[0],
        "max_nodes": nodes[1],
        "min_pieces": pieces,
        "max_pieces": pieces,
        "min_steps": steps[0],
        "max_steps": steps[1],
        "impossible_ratio": 0.0,
    }


def _choices(name: str, *choices: list[int]) -> tuple[dict[str, Any], ...]:
    return tuple({name: numbers} for numbers in choices)


def _ranks(*ranks: float) -> tuple[dict[str, Any], ...]:
    return tuple({"rank": rank} for rank in ranks)


OWN_LADDERS: Mapping[str, OwnLadder] = MappingProxyType(
    {
        "acre": OwnLadder(
            "no curriculum: the number of experiments that bear on the test case rises",
            _ranks(0.0, 0.25, 0.5, 0.75, 1.0),
        ),
        "gsm_symbolic": OwnLadder(
            "no curriculum: templates by the arithmetic operations of their worked answers, from 2"
            " to 8 and more; template 24 asks for negative amounts, which its verifier can't read",
            _choices(
                "templates",
                [4, 6, 10, 14, 16, 20, 23, 26, 39, 43, 45, 54, 55, 56, 58, 59, 82, 99],
                [5, 12, 13, 18, 21, 25, 33, 34, 48, 50, 62, 67, 70, 72, 75, 78, 81, 88, 91, 93, 95],
                [0, 7, 8, 27, 30, 31, 41, 46, 47, 49, 52, 57, 64, 69],
                [1, 3, 9, 28, 38, 40, 44, 51, 53, 71, 83, 84, 85, 92, 96],
                [2, 11, 15, 17, 22, 29, 42, 60, 66, 68, 73, 94],
                [19, 36, 80, 89],
            ),
        ),
        "knight_swap": OwnLadder(
            "every level of the curriculum raises: pieces and moves of the shortest solution rise,"
            " on boards where one is found quickly; no impossible items, since the library makes"
            " them by forbidding a move that the board in the question allows",
            (
                _knights((11, 12), 1, (1, 8)),
                _knights((11, 12), 1, (10, 14)),
                _knights((11, 12), 2, (12, 16)),
                _knights((10, 10), 2, (18, 22)),
                _knights((9, 9), 2, (22, 40)),
            ),
        ),
        "list_functions": OwnLadder(
            "no curriculum: rules by the size of their shortest description; 13 and 14 are left"
            " out, since all their items have the same answer",
            _choices("functions", [0, 1, 8, 10], [2, 4, 9], [7, 11, 15], [3, 6, 16], [5, 12]),
        ),
        "self_reference": OwnLadder(
            "the library's difficulty changes nothing: single misjudged statements that make a"
            " wrong number of solutions become more, at the same right answers",
            _ranks(0.1, 0.35, 0.65, 0.9),
        ),
    }
)
"""Task to its ladder."""
