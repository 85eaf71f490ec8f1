"""Which task has which guard, and why; and what is known to be paid all the same."""

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

_BEST_CONSTANT = {
    "acre": "`off` solves 0.47",
    "aiw": "`3` solves 0.22",
    "binary_alternation": "`4` solves 0.27",
    "circuit_logic": "`0` solves 0.57",
    "course_schedule": "`False` solves 0.60",
    "family_relationships": "`father` solves 0.20",
    "gcd": "`2` solves 0.35",
    "isomorphic_strings": "`True` solves 0.60",
    "largest_island": "`0` solves 0.20",
    "letter_counting": "`1` solves 0.38",
    "mahjong_puzzle": "`Chi` solves 0.38",
    "maze": "`6` solves 0.30",
    "polynomial_equations": "nearness is paid: the constant `0.0` earns 0.45 and solves 0.37",
    "power_function": "`1.0` solves 0.13",
    "ransom_note": "`True` solves 0.50",
    "rotten_oranges": "`-1` solves 0.32",
    "self_reference": "`2` solves 0.48",
    "syllogism": "`Yes` solves 0.73",
    "zebra_puzzles": "`alice` solves 0.28",
}
"""Few answers are possible, or some are frequent: a matter of the items, not of the verifier."""

_PARTIAL = {
    "advanced_geometry": "any number earns 0.05, a radius in another form than the oracle's 0.5",
    "arc_agi": "any grid earns 0.05",
    "boxnet": "any list of moves that can be made, `[]` too, earns 0.05",
    "calendar_arithmetic": "nearness is paid: the constant `10` earns 0.08, any weekday 0.1",
    "codeio": "JSON that is similar to the right one is paid by edit distance: `{}` earns 0.03",
    "coin_flip": "an error below 0.0001 is none: the constant `0.0001` solves 0.03",
    "color_cube_rotation": "any text earns 0.01; the constant `indigo` solves 0.12",
    "countdown": "the numbers given, with a wrong result, earn 0.05",
    "cryptarithm": "any mapping earns 0.01",
    "figlet_font": "0.1 for each right letter: `ABABA` earns 0.02, a word without its end most",
    "fraction_simplification": "the fraction as given earns 0.1, any other 0.05",
    "futoshiki": "right cells above chance are paid: another item's grid earns 0.02 at most",
    "game_of_life": (
        "where nothing survives, a board without life is right: it solves 0.17;"
        " the board as given earns 0.12"
    ),
    "graph_color": "any JSON earns 0.01; the colours in turn solve 0.30",
    "group_anagrams": "any JSON list of lists earns 0.01",
    "jugs": "any legal list of moves earns 0.01",
    "knight_swap": "`No` solves 0.17, any legal moves earn 0.05",
    "knights_knaves": "the knight's role for everybody solves 0.23",
    "mini_sudoku": "right cells above chance are paid: rows filled up anyhow earn 0.22",
    "n_queens": "a right board as a list of lists earns 0.5, not 1.0",
    "palindrome_generation": "any palindrome earns 0.05, any other text 0.02",
    "pool_matrix": "any matrix of the right shape earns 0.1",
    "prime_factorization": "the number itself is right where it is prime: it solves 0.22",
    "propositional_logic": (
        "much follows: that one of the variables is true solves 0.92, one of P and Q 0.82, a"
        " premise weakened by an alternative 0.61, any statement earns 0.05; where the premises"
        " contradict each other, everything follows: on 0.24; a premise that is the item's own"
        " example of an answer is paid: 0.05"
    ),
    "puzzle24": "the sum of the numbers given is 24 on 0.27 of the items",
    "quantum_lock": "any longer way to the target earns 0.5; the constant `BBBB` earns 0.06",
    "rearc": "any grid earns 0.05",
    "rectangle_count": "nearness is paid: the constant `4` earns 0.40 and solves 0.13",
    "rubiks_cube": "any text earns 0.01",
    "rush_hour": "moves that aren't legal are ignored; 3000 random ones solve none of 20",
    "shortest_path": "`infeasible` solves 0.30, any longer path earns 0.5",
    "sokoban": "moves that aren't legal are ignored; 300 random ones solve 1 of 20",
    "string_insertion": "where nothing is to be inserted, the string as given is right: 0.95",
    "time_intervals": "errors below 2 % are paid: the constant `12:00` earns 0.004, 0.26 at most",
    "tower_of_hanoi": "any legal moves earn 0.05",
    "tsumego": "any point earns 0.05",
    "word_ladder": "an unknown word costs half: changing the letters in order earns 0.28",
    "word_sorting": "words that come to stand right are paid: the reversed list earns 0.15",
}
"""What wrong answers earn that no sound check from outside tells from an honest attempt."""

ACCEPTED: Mapping[str, str] = MappingProxyType(_BEST_CONSTANT | _PARTIAL)
"""Task to what is known to be wrong with its verifier and left as it is.

Figures are means over 60 default items (seeds 0 to 59) with the guards on.
"""
