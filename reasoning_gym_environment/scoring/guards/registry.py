"""Which task has which guard, and which weaknesses of verifiers no guard can close.

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


_DEFAULT_SCORING = """
    acre aiw arc_1d base_conversion basic_arithmetic bf binary_alternation caesar_cipher count_bits
    count_primes course_schedule gcd isomorphic_strings largest_island lcm leg_counting
    letter_counting list_functions mahjong_puzzle maze modulo_grid number_filtering number_sequence
    ransom_note rotate_matrix rotten_oranges simple_equations simple_geometry string_manipulation
    string_splitting string_synthesis syllogism word_sequence_reversal
"""
"""Tasks without a verifier of their own."""

Guard = Callable[[str, Mapping[str, Any]], float]
"""Returns the most that an answer to an entry may earn. Its docstring says why it is needed."""

_TASKS: Mapping[Guard, str] = MappingProxyType(
    {
        text.longer_text: _DEFAULT_SCORING,
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

_BEST_CONSTANT = {
    "acre": "`on` solves 0.37",
    "aiw": "`6` solves 0.15",
    "binary_alternation": "`5` solves 0.18",
    "circuit_logic": "`0` solves 0.58",
    "course_schedule": "`False` solves 0.46",
    "family_relationships": "`son` solves 0.13",
    "game_of_life": "the most frequent answer solves 0.13",
    "gcd": "`2` solves 0.36",
    "isomorphic_strings": "`False` solves 0.50",
    "knight_swap": "`no` solves 0.19",
    "largest_island": "`0` solves 0.17",
    "letter_counting": "`1` solves 0.42",
    "mahjong_puzzle": "`Peng` solves 0.32",
    "maze": "`5` solves 0.34",
    "number_sequence": "`0` solves 0.12",
    "polynomial_equations": "`0` solves 0.43",
    "power_function": "`1` solves 0.12",
    "propositional_logic": "`P \N{LOGICAL OR} Q` solves 0.81",
    "ransom_note": "`False` solves 0.51",
    "rectangle_count": "`2` solves 0.30",
    "rotten_oranges": "`-1` solves 0.37",
    "self_reference": "`3` solves 0.27",
    "shortest_path": "`infeasible` solves 0.39",
    "syllogism": "`Yes` solves 0.69",
    "zebra_puzzles": "`arnold` solves 0.25",
}
"""Few answers are possible, or some are frequent: a property of the items, not of the verifier."""

_COPIED = {
    "aiw": "the last number and one after the last colon solves 0.85",
    "calendar_arithmetic": "the last name solves 0.16",
    "color_cube_rotation": "word 6 after the last line that ends in a colon solves 0.22",
    "graph_color": "the last bracket mapped onto the first in turn solves 0.30",
    "knights_knaves": "the last quotation with the first choices solves 0.22",
    "largest_island": "how often 1 is in the last grid solves 0.46",
    "lcm": "the product of the first two numbers solves 0.22",
    "list_functions": "the shortest bracket solves 0.14",
    "mini_sudoku": "the last grid with its blanks filled solves 0.13",
    "number_format": "the smallest number solves 0.53",
    "number_sequence": "the last number and the step to it solves 0.39",
    "palindrome_generation": "the longest list joined by '' solves 0.12",
    "pool_matrix": "grid 1 solves 0.33",
    "prime_factorization": "number 1 solves 0.21",
    "propositional_logic": "the variables by or solves 0.85",
    "puzzle24": "the longest list joined by '+' solves 0.17",
    "rectangle_count": "the number of grids solves 0.53",
    "rotate_matrix": "the last grid turned right solves 0.28",
    "simple_equations": "the first number under its neighbour solves 0.11",
    "string_insertion": "the last word solves 0.93",
    "string_manipulation": "the last line solves 0.30",
    "word_ladder": "the first word changed into the second in order solves 0.22",
    "word_sorting": "the last list backwards, by commas solves 0.13",
}
"""A piece of the question is right on some items, as it is or after a simple rule: as above."""

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
        "where nothing survives, a board without life is right, the most frequent answer;"
        " the board as given earns 0.12"
    ),
    "graph_color": "any JSON earns 0.01",
    "group_anagrams": "any JSON list of lists earns 0.01",
    "jugs": "any legal list of moves earns 0.01",
    "knight_swap": "any legal moves earn 0.05",
    "mini_sudoku": "right cells above chance are paid: rows filled up anyhow earn 0.22",
    "n_queens": "a right board as a list of lists earns 0.5, not 1.0",
    "palindrome_generation": "any palindrome earns 0.05, any other text 0.02",
    "polynomial_equations": "nearness is paid: the constant `0.0` earns 0.45",
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
    "rush_hour": "moves that aren't legal are ignored: 3000 random ones solve 0.05",
    "shortest_path": "any longer path earns 0.5",
    "sokoban": "moves that aren't legal are ignored: 300 random ones solve 0.03",
    "string_insertion": "where nothing is to be inserted, the string as given is right",
    "time_intervals": "errors below 2 % are paid: the constant `12:00` earns 0.004, 0.26 at most",
    "tower_of_hanoi": "any legal moves earn 0.05",
    "tsumego": "any point earns 0.05",
    "word_ladder": "an unknown word costs half: changing the letters in order earns 0.5 or more",
    "word_sorting": "words that come to stand right are paid: the reversed list earns 0.15",
}
"""What wrong answers earn that no sound check tells from an honest attempt."""

KNOWN_WEAKNESSES: Mapping[str, str] = MappingProxyType(
    {
        task: "; ".join(
            known[task] for known in (_BEST_CONSTANT, _COPIED, _PARTIAL) if task in known
        )
        for task in sorted({*_BEST_CONSTANT, *_COPIED, *_PARTIAL})
    }
)
"""Task to what its verifier still pays for without reasoning.

What solves items is measured as in `tasks/chance_floors.json`; what earns some, as a mean over 60
default items (seeds 0 to 59) or more.
"""
