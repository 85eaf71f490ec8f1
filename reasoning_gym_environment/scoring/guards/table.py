"""Which task has which guard, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from . import expressions, logic, numbers, progress, surroundings


@dataclass(frozen=True, kw_only=True)
class Guard:
    """What an answer to one task may earn at most.

    Attributes:
        ceiling: of the answer and the library's entry; 1.0 means no objection.
        reason: what the verifier pays for without it, in one sentence.
    """

    ceiling: Callable[[str, Mapping[str, Any]], float]
    reason: str


_DEFAULT_SCORING = (
    "acre",
    "aiw",
    "arc_1d",
    "base_conversion",
    "basic_arithmetic",
    "bf",
    "binary_alternation",
    "caesar_cipher",
    "count_bits",
    "count_primes",
    "course_schedule",
    "gcd",
    "isomorphic_strings",
    "largest_island",
    "lcm",
    "leg_counting",
    "letter_counting",
    "list_functions",
    "mahjong_puzzle",
    "maze",
    "modulo_grid",
    "number_filtering",
    "number_sequence",
    "ransom_note",
    "rotate_matrix",
    "rotten_oranges",
    "simple_equations",
    "simple_geometry",
    "string_manipulation",
    "string_splitting",
    "string_synthesis",
    "syllogism",
    "word_sequence_reversal",
)
"""Tasks without a verifier of their own."""

_CONTAINED = "A text that contains the right answer beside others, or beside anything, is paid."
_SHOWN_CELLS = "The cells that the puzzle gives are paid for."
_ANTIDERIVATIVE = "An unevaluated or delegated integral of the question has the right derivative."
_LITERAL = "The answer is evaluated where the right answer is in reach by name."

GUARDS: Mapping[str, Guard] = MappingProxyType(
    {task: Guard(ceiling=surroundings.longer_text, reason=_CONTAINED) for task in _DEFAULT_SCORING}
    | {
        "chain_sum": Guard(ceiling=surroundings.longer_number, reason=_CONTAINED),
        "products": Guard(ceiling=surroundings.longer_number, reason=_CONTAINED),
        "manipulate_matrix": Guard(ceiling=surroundings.longer_matrix, reason=_CONTAINED),
        "tsumego": Guard(ceiling=surroundings.longer_move, reason=_CONTAINED),
        "codeio": Guard(
            ceiling=surroundings.one_object,
            reason=(
                "Text around the right JSON object costs half of its share of the length, other"
                " objects beside it their share, and a long one is similar to any other."
            ),
        ),
        "fraction_simplification": Guard(
            ceiling=surroundings.longer_fraction,
            reason=r"What follows a `\frac{…}{…}` is ignored.",
        ),
        "gsm_symbolic": Guard(
            ceiling=surroundings.first_number, reason="The sign of the number is ignored."
        ),
        "complex_arithmetic": Guard(
            ceiling=numbers.complex_number,
            reason="The distance to `nan` is no number, and capped to full credit.",
        ),
        "number_sorting": Guard(
            ceiling=numbers.numbers_given,
            reason="NaN passes for every number, and so does everything nearer than 1.",
        ),
        "coin_flip": Guard(
            ceiling=numbers.probability,
            reason="A text that begins as the right number does has full credit if it is short.",
        ),
        "time_intervals": Guard(
            ceiling=numbers.duration,
            reason="Nearness counts on the scale of the whole range, so a constant earns much.",
        ),
        "polynomial_equations": Guard(
            ceiling=numbers.real_solutions,
            reason="What isn't a number is ignored, and alone it means that there is no solution.",
        ),
        "prime_factorization": Guard(
            ceiling=numbers.prime_factors,
            reason="The number itself has the right product, which earns half.",
        ),
        "simple_integration": Guard(ceiling=expressions.antiderivative, reason=_ANTIDERIVATIVE),
        "intermediate_integration": Guard(
            ceiling=expressions.antiderivative, reason=_ANTIDERIVATIVE
        ),
        "polynomial_multiplication": Guard(
            ceiling=expressions.polynomial,
            reason="`expand(…)` of the question is worked out by the verifier's parser.",
        ),
        "puzzle24": Guard(
            ceiling=expressions.make_24,
            reason="Any four numbers are taken, and any value that rounds down to 24.",
        ),
        "countdown": Guard(
            ceiling=expressions.make_target,
            reason="Numbers in hexadecimal or exponent form aren't counted as used.",
        ),
        "binary_matrix": Guard(ceiling=expressions.literal, reason=_LITERAL),
        "n_queens": Guard(ceiling=expressions.literal, reason=_LITERAL),
        "spiral_matrix": Guard(ceiling=expressions.literal, reason=_LITERAL),
        "string_insertion": Guard(ceiling=expressions.literal, reason=_LITERAL),
        "mini_sudoku": Guard(ceiling=progress.number_grid, reason=_SHOWN_CELLS),
        "sudoku": Guard(ceiling=progress.number_grid, reason=_SHOWN_CELLS),
        "futoshiki": Guard(ceiling=progress.number_grid, reason=_SHOWN_CELLS),
        "game_of_life": Guard(
            ceiling=progress.living_cells,
            reason="Dead cells are paid for: a board without life earns 0.93.",
        ),
        "spell_backward": Guard(
            ceiling=progress.reversed_word,
            reason="What follows the word is ignored: with garbage appended it earns 0.94.",
        ),
        "figlet_font": Guard(
            ceiling=progress.read_letters, reason="What follows the word is ignored."
        ),
        "emoji_mystery": Guard(
            ceiling=progress.same_characters,
            reason="Blanks and `e` over and over agree with some of the characters.",
        ),
        "letter_jumble": Guard(
            ceiling=progress.unscrambled_words,
            reason="Words that weren't scrambled are paid for, and words that follow are ignored.",
        ),
        "sentence_reordering": Guard(
            ceiling=progress.reordered_words,
            reason="Words that stand where the question has them are paid for.",
        ),
        "word_sorting": Guard(
            ceiling=progress.sorted_words,
            reason="The words as given earn 0.2, and words that follow the right ones are ignored.",
        ),
        "propositional_logic": Guard(
            ceiling=logic.conclusion,
            reason=(
                "Premises repeated are paid, in other words or joined, since they follow;"
                " so is a tautology."
            ),
        ),
        "boxnet": Guard(
            ceiling=logic.possible_moves,
            reason="Moves that can't be made are skipped: a sweep of all moves solves every item.",
        ),
        "knights_knaves": Guard(
            ceiling=logic.roles, reason="Both roles for half of the people earn 0.65."
        ),
    }
)
"""Every guarded task."""
