"""Which task has which guard.

A guard is the most that an answer may earn, checked before the library's verifier runs. It never
takes anything from an answer that deserves full credit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from . import _symbolic as symbolic
from . import _text as text


def max_score(task: str, answer: str, entry: Mapping[str, Any]) -> float:
    """Return the most that an answer may earn, from 0.0 to 1.0.

    Runs in a verifier's child: well-formed but huge answers may take long.

    Args:
        answer: the bare answer, without tags.
        entry: the library's entry, as generated.
    """
    guard = GUARDS.get(task)
    return 1.0 if guard is None or answer == entry["answer"] else guard(answer, entry)


Guard = Callable[[str, Mapping[str, Any]], float]
"""Returns the most that an answer to an entry may earn. Its docstring says why it is needed."""

_TASKS: Mapping[Guard, str] = MappingProxyType(
    {
        # Without a verifier of their own.
        text.longer_text: """
            acre aiw arc_1d base_conversion basic_arithmetic bf binary_alternation caesar_cipher
            count_bits count_primes course_schedule gcd isomorphic_strings largest_island lcm
            leg_counting letter_counting list_functions mahjong_puzzle maze modulo_grid
            number_filtering number_sequence ransom_note rotate_matrix rotten_oranges
            simple_equations simple_geometry string_manipulation string_splitting string_synthesis
            syllogism word_sequence_reversal
        """,
        text.longer_number: "chain_sum products",
        text.longer_matrix: "manipulate_matrix",
        text.longer_move: "tsumego",
        text.one_object: "codeio",
        text.longer_fraction: "fraction_simplification",
        text.first_number: "gsm_symbolic",
        symbolic.complex_number: "complex_arithmetic",
        symbolic.given_numbers: "number_sorting",
        symbolic.decimal_digits: "decimal_arithmetic",
        symbolic.chosen_number: "number_format",
        symbolic.pooled_numbers: "pool_matrix",
        symbolic.probability: "coin_flip",
        symbolic.duration: "time_intervals",
        symbolic.real_solutions: "polynomial_equations",
        symbolic.prime_factors: "prime_factorization",
        symbolic.antiderivative: "simple_integration intermediate_integration",
        symbolic.polynomial: "polynomial_multiplication",
        symbolic.make_24: "puzzle24",
        symbolic.make_target: "countdown",
        symbolic.literal: "binary_matrix n_queens spiral_matrix string_insertion",
        text.number_grid: "mini_sudoku sudoku futoshiki",
        text.living_cells: "game_of_life",
        text.reversed_word: "spell_backward",
        text.read_letters: "figlet_font",
        text.same_characters: "emoji_mystery",
        text.unscrambled_words: "letter_jumble",
        text.reordered_words: "sentence_reordering",
        text.sorted_words: "word_sorting",
        symbolic.conclusion: "propositional_logic",
        symbolic.possible_moves: "boxnet",
        symbolic.roles: "knights_knaves",
    }
)

GUARDS: Mapping[str, Guard] = MappingProxyType(
    {task: guard for guard, tasks in _TASKS.items() for task in tasks.split()}
)
