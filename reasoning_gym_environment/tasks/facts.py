"""Facts about single tasks of reasoning-gym 0.1.25.

`tests/tasks/test_facts.py` proves them against the installed version.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NOT_A_TASK = MappingProxyType({"composite": "mixes other datasets and has no problems of its own"})
"""Registered names that are not tasks."""

PAYS_ANY_ANSWER = MappingProxyType(
    {"game_of_life_halting": "its verifier gives any non-empty answer full credit"}
)
"""Tasks that would reward noise: left out unless they are included by name."""

EXECUTES_ANSWERS = frozenset(
    {
        "binary_matrix",
        "countdown",
        "intermediate_integration",
        "n_queens",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
        "spiral_matrix",
        "string_insertion",
    }
)
"""Tasks whose verifier passes the answer to `eval`, directly or through sympy's parser."""

SLOW_ON_WRONG_ANSWERS = frozenset({"intermediate_integration"})
"""Tasks whose verifier exceeds the deadline on some wrong answers."""

SEEDED_AT_CONSTRUCTION = frozenset({"acre", "gsm_symbolic", "list_functions", "survo"})
"""Tasks that read their seed only at construction: each seed needs a new object."""

SHARES_DATA = frozenset({"codeio"})
"""Tasks whose constructor sets data that all their objects share: only the newest is cached."""

SEEDS_NUMPY = frozenset({"pool_matrix"})
"""Tasks that pass the seed to numpy, which takes 32 bits."""

UNUSABLE_ORACLES = MappingProxyType({"intermediate_integration": "Integral("})
"""Task to what its oracle contains if the library could not solve its own problem."""

MARKS_ARE_ANSWER = frozenset(
    {"emoji_mystery", "fraction_simplification", "knights_knaves", "sentence_reordering"}
)
"""Tasks whose right answers are sentences with a full stop, or stand between dollar signs."""

_LONGER_WAY = 0.06
"""Just above the 0.05 for legal moves that miss the goal; up to 16 times the shortest way."""

_OTHER_SPACING = 0.9
"""Every cell is right; with one wrong cell of 81, the verifier pays 0.89 at most."""

SOLVED_FROM: Mapping[str, float] = MappingProxyType(
    {
        # The right matrix as a Python list: the question asks for a matrix in no certain form.
        "binary_matrix": 0.1,
        "futoshiki": _OTHER_SPACING,
        # Neither question asks for the shortest way, but longer ones earn their share of it.
        "knight_swap": _LONGER_WAY,
        "tower_of_hanoi": _LONGER_WAY,
        "mini_sudoku": _OTHER_SPACING,
        # A variable that follows. The verifier takes it for trivial; tautologies earn less here.
        "propositional_logic": 0.25,
        "sudoku": _OTHER_SPACING,
    }
)
"""Task to the lowest score of a right answer where it is below 1; all answers from it are right."""


def solved_score(task: str) -> float:
    """Return the score from which an answer to a task is right."""
    return SOLVED_FROM.get(task, 1.0)


PLAIN_NUMBERS = frozenset(
    {
        "advanced_geometry",
        "aiw",
        "basic_arithmetic",
        "binary_alternation",
        "calendar_arithmetic",
        "chain_sum",
        "coin_flip",
        "count_bits",
        "count_primes",
        "decimal_arithmetic",
        "decimal_chain_sum",
        "gcd",
        "gsm_symbolic",
        "largest_island",
        "lcm",
        "leg_counting",
        "letter_counting",
        "maze",
        "number_format",
        "number_sequence",
        "products",
        "rectangle_count",
        "rotten_oranges",
        "self_reference",
        "simple_equations",
        "simple_geometry",
    }
)
"""Tasks that ask for a number without a form, on some items at least: equal numbers are right."""

_EVALUATED = "its verifier evaluates what the entry holds"
_UNCHECKED = "the entry has no answer of its own to check it against"

UNTRUSTED_ENTRIES = MappingProxyType(
    {
        "bitwise_arithmetic": _EVALUATED,
        "boxnet": _UNCHECKED,
        "graph_color": _UNCHECKED,
        "intermediate_integration": _EVALUATED,
        "number_sorting": _EVALUATED,
        "polynomial_multiplication": _EVALUATED,
        "propositional_logic": _UNCHECKED,
        "rubiks_cube": _UNCHECKED,
        "rush_hour": _UNCHECKED,
        "simple_integration": _EVALUATED,
    }
)
"""Tasks whose entries can't be trusted if they come from outside, and why; their recipes can."""
