"""What is known to be wrong with a verifier, and left as it is.

Figures are means over 60 default items (seeds 0 to 59) with the guards on.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
        "much follows: that one of the variables is true solves 0.87, one of P and Q 0.80;"
        " where the premises contradict each other, everything follows: on 0.22;"
        " a premise weakened by an alternative earns 0.94, any statement 0.05;"
        " a premise that is the item's own example of an answer is paid: 0.05"
    ),
    "puzzle24": "the sum of the numbers given is 24 on 0.27 of the items",
    "quantum_lock": "any longer way to the target earns 0.5; the constant `BBBB` earns 0.06",
    "rearc": "any grid earns 0.05",
    "rectangle_count": "nearness is paid: the constant `4` earns 0.40 and solves 0.13",
    "rubiks_cube": "any text earns 0.01",
    "rush_hour": "moves that aren't legal are ignored; 3000 random ones solve none of 20",
    "shortest_path": "`infeasible` solves 0.30, any longer path earns 0.5",
    "sokoban": "moves that aren't legal are ignored; 300 random ones solve 1 of 20",
    "time_intervals": "errors below 2 % are paid: the constant `12:00` earns 0.004, 0.26 at most",
    "tower_of_hanoi": "any legal moves earn 0.05",
    "tsumego": "any point earns 0.05",
    "word_ladder": "an unknown word costs half: changing the letters in order earns 0.28",
    "word_sorting": "words that come to stand right are paid: the reversed list earns 0.15",
}
"""What wrong answers earn that no sound check from outside tells from an honest attempt."""

ACCEPTED: Mapping[str, str] = MappingProxyType(_BEST_CONSTANT | _PARTIAL)
"""Task to what is wrong and accepted, with the figure."""
