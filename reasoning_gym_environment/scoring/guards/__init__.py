"""Guards: the most that an answer may earn, checked before the library's verifier runs.

One module a category of tasks. A guard never takes anything from an answer that deserves full
credit. Many verifiers pay if the answer only contains the right one, even denied, for what the
question already shows, or for what a guess gets right by chance. The guards of numbers,
expressions, logic and plans refuse what is not finite, uses other numbers than the given ones,
leaves the work to the verifier, or repeats the question.

Functions that import the library run in worker processes, which have it loaded. `GUARDS` says which
task has which guard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..characters import plain_answer
from .algebra import antiderivative, complex_number, polynomial, real_solutions
from .algorithmic import (
    given_numbers,
    living_cells,
    pooled_numbers,
    reordered_words,
    reversed_word,
    sorted_words,
    unscrambled_words,
)
from .arithmetic import (
    chosen_number,
    decimal_digits,
    duration,
    plain_number,
    prime_factors,
)
from .cognition import read_letters
from .games import made_number, number_grid, possible_moves, same_characters
from .geometry import exact_angle
from .logic import conclusion, roles
from .oracle import (
    amount,
    is_denied,
    literal,
    longer_fraction,
    longer_matrix,
    longer_move,
    longer_number,
    longer_text,
    one_object,
    repeats_a_key,
)
from .probability import probability


def max_score(task: str, answer: str, entry: Mapping[str, Any]) -> float:
    """Return the most that an answer may earn, from 0.0 to 1.0.

    Runs in a verifier's child: well-formed but huge answers may take long. A denied answer earns
    nothing, except where words are the answer, which may be right as far as they go, or where the
    entry has none. JSON that repeats a key earns nothing for any task.

    Args:
        answer: the bare answer, without tags.
        entry: the library's entry, as generated.
    """
    oracle = entry["answer"]
    if answer == oracle:
        return 1.0
    answer = plain_answer(task, answer)
    words = (
        *("codeio", "emoji_mystery", "figlet_font", "game_of_life_halting"),
        *("letter_jumble", "spell_backward", "word_ladder"),
    )
    if oracle and task not in words and is_denied(answer, oracle):
        return 0.0
    if repeats_a_key(answer):
        return 0.0
    guard = GUARDS.get(task)
    return 1.0 if guard is None else guard(answer, entry)


Guard = Callable[[str, Mapping[str, Any]], float]
"""Returns the most that an answer to an entry may earn. Its docstring says why it is needed."""

_TASKS: Mapping[Guard, str] = {
    # Without a verifier of their own.
    longer_text: """
        acre aiw arc_1d base_conversion basic_arithmetic bf binary_alternation caesar_cipher
        count_bits count_primes course_schedule gcd isomorphic_strings largest_island lcm
        leg_counting letter_counting list_functions mahjong_puzzle maze modulo_grid
        number_filtering number_sequence ransom_note rotate_matrix rotten_oranges
        simple_equations simple_geometry string_manipulation string_splitting string_synthesis
        syllogism word_sequence_reversal
    """,
    longer_number: "chain_sum products",
    longer_matrix: "manipulate_matrix",
    longer_move: "tsumego",
    one_object: "codeio",
    longer_fraction: "fraction_simplification",
    amount: "gsm_symbolic",
    complex_number: "complex_arithmetic",
    given_numbers: "number_sorting",
    decimal_digits: "decimal_arithmetic",
    plain_number: "decimal_chain_sum power_function",
    exact_angle: "advanced_geometry",
    chosen_number: "number_format",
    pooled_numbers: "pool_matrix",
    probability: "coin_flip",
    duration: "time_intervals",
    real_solutions: "polynomial_equations",
    prime_factors: "prime_factorization",
    antiderivative: "simple_integration intermediate_integration",
    polynomial: "polynomial_multiplication",
    made_number: "countdown puzzle24",
    literal: "binary_matrix n_queens spiral_matrix string_insertion",
    number_grid: "mini_sudoku sudoku futoshiki",
    living_cells: "game_of_life",
    reversed_word: "spell_backward",
    read_letters: "figlet_font",
    same_characters: "emoji_mystery",
    unscrambled_words: "letter_jumble",
    reordered_words: "sentence_reordering",
    sorted_words: "word_sorting",
    conclusion: "propositional_logic",
    possible_moves: "boxnet",
    roles: "knights_knaves",
}

GUARDS: Mapping[str, Guard] = MappingProxyType(
    {task: guard for guard, tasks in _TASKS.items() for task in tasks.split()}
)
