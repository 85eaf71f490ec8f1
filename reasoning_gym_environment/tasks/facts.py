"""What is known about single tasks of reasoning-gym 0.1.25, each with its reason.

`tests/tasks/test_facts.py` proves every entry against the installed version.
"""

from __future__ import annotations

from types import MappingProxyType

KNOWN_TASKS: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "algebra": (
            "complex_arithmetic",
            "intermediate_integration",
            "polynomial_equations",
            "polynomial_multiplication",
            "simple_equations",
            "simple_integration",
        ),
        "algorithmic": (
            "ab",
            "base_conversion",
            "binary_alternation",
            "binary_matrix",
            "caesar_cipher",
            "count_primes",
            "cryptarithm",
            "game_of_life",
            "game_of_life_halting",
            "graph_color",
            "group_anagrams",
            "isomorphic_strings",
            "jugs",
            "letter_counting",
            "letter_jumble",
            "manipulate_matrix",
            "number_filtering",
            "number_sorting",
            "palindrome_generation",
            "palindrome_partitioning",
            "pool_matrix",
            "ransom_note",
            "rotate_matrix",
            "rotten_oranges",
            "sentence_reordering",
            "spell_backward",
            "spiral_matrix",
            "string_insertion",
            "string_manipulation",
            "string_splitting",
            "string_synthesis",
            "word_ladder",
            "word_sequence_reversal",
            "word_sorting",
        ),
        "arc": (
            "arc_1d",
            "arc_agi",
            "rearc",
        ),
        "arithmetic": (
            "basic_arithmetic",
            "bitwise_arithmetic",
            "calendar_arithmetic",
            "chain_sum",
            "count_bits",
            "decimal_arithmetic",
            "decimal_chain_sum",
            "dice",
            "fraction_simplification",
            "gcd",
            "gsm_symbolic",
            "lcm",
            "leg_counting",
            "number_format",
            "power_function",
            "prime_factorization",
            "products",
            "time_intervals",
        ),
        "code": (
            "bf",
            "codeio",
        ),
        "cognition": (
            "color_cube_rotation",
            "figlet_font",
            "modulo_grid",
            "needle_haystack",
            "number_sequence",
            "rectangle_count",
            "rubiks_cube",
        ),
        "games": (
            "boxnet",
            "countdown",
            "emoji_mystery",
            "futoshiki",
            "kakurasu",
            "knight_swap",
            "mahjong_puzzle",
            "maze",
            "mini_sudoku",
            "n_queens",
            "puzzle24",
            "rush_hour",
            "sokoban",
            "sudoku",
            "survo",
            "tower_of_hanoi",
            "tsumego",
        ),
        "geometry": (
            "advanced_geometry",
            "simple_geometry",
        ),
        "graphs": (
            "course_schedule",
            "family_relationships",
            "largest_island",
            "path_star",
            "quantum_lock",
            "shortest_path",
        ),
        "induction": (
            "acre",
            "list_functions",
        ),
        "logic": (
            "aiw",
            "circuit_logic",
            "knights_knaves",
            "propositional_logic",
            "self_reference",
            "syllogism",
            "zebra_puzzles",
        ),
        "probability": ("coin_flip",),
    }
)
"""Category to task names: what is tried when the library's registry can't be read."""

NOT_A_TASK = MappingProxyType({"composite": "mixes other datasets and has no problems of its own"})
"""Registered names that are no task by themselves."""

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
"""Tasks whose verifier hands the answer to `eval`, directly or through sympy's parser."""

SLOW_ON_WRONG_ANSWERS = frozenset({"intermediate_integration"})
"""Tasks whose verifier takes more than the deadline to refuse a wrong answer to some items."""

SEEDED_AT_CONSTRUCTION = frozenset({"acre", "gsm_symbolic", "list_functions", "survo"})
"""Tasks that take their seed at construction alone: the object can't be kept across seeds."""

SHARES_DATA = frozenset({"codeio"})
"""Tasks whose constructor sets data that all their objects then use: only the newest is kept."""

SEEDS_NUMPY = frozenset({"pool_matrix"})
"""Tasks that hand the seed to numpy, which takes 32 bits."""

UNUSABLE_ORACLES = MappingProxyType({"intermediate_integration": "Integral("})
"""Task to what its oracle holds when the library could not solve its own problem."""

MARKS_ARE_ANSWER = frozenset(
    {"emoji_mystery", "fraction_simplification", "knights_knaves", "sentence_reordering"}
)
"""Tasks whose right answers are sentences with a full stop, or stand between dollar signs."""
