"""Facts about single tasks of reasoning-gym 0.1.25.

`tests/tasks/test_facts.py` proves them against the installed version.
"""

from __future__ import annotations

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
