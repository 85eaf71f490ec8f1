"""Checks of single items: labels that are false, and questions with no or several right answers.

One module a category of tasks. Each check takes well under a millisecond and runs beside the
generator. The solvers of `research/labels` prove that no faulty item passes; neither uses the
other's code.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...records import Fault
from . import (
    algebra,
    algorithmic,
    arc,
    arithmetic,
    code,
    cognition,
    games,
    geometry,
    graphs,
    induction,
    logic,
)
from .faults import Check, Entry

CHECKS: Mapping[str, Check] = {
    "ab": algorithmic.ab,
    "aiw": logic.aiw,
    "arc_1d": arc.arc,
    "arc_agi": arc.arc,
    "basic_arithmetic": arithmetic.basic_arithmetic,
    "caesar_cipher": algorithmic.caesar_cipher,
    "calendar_arithmetic": arithmetic.calendar_arithmetic,
    "circuit_logic": logic.circuit_logic,
    "codeio": code.codeio,
    "complex_arithmetic": algebra.complex_arithmetic,
    "decimal_arithmetic": arithmetic.decimal_arithmetic,
    "emoji_mystery": games.emoji_mystery,
    "family_relationships": graphs.family_relationships,
    "figlet_font": cognition.figlet_font,
    "gsm_symbolic": arithmetic.gsm_symbolic,
    "knight_swap": games.knight_swap,
    "letter_counting": algorithmic.letter_counting,
    "letter_jumble": algorithmic.letter_jumble,
    "list_functions": induction.list_functions,
    "mahjong_puzzle": games.mahjong_puzzle,
    "manipulate_matrix": algorithmic.manipulate_matrix,
    "modulo_grid": cognition.modulo_grid,
    "needle_haystack": cognition.needle_haystack,
    "number_filtering": algorithmic.number_filtering,
    "polynomial_equations": algebra.polynomial_equations,
    "pool_matrix": algorithmic.pool_matrix,
    "power_function": arithmetic.power_function,
    "propositional_logic": logic.propositional_logic,
    "quantum_lock": graphs.quantum_lock,
    "rearc": arc.arc,
    "rubiks_cube": games.rubiks_cube,
    "sentence_reordering": algorithmic.sentence_reordering,
    "simple_equations": algebra.simple_equations,
    "simple_geometry": geometry.simple_geometry,
    "sokoban": games.sokoban,
    "string_manipulation": algorithmic.string_manipulation,
    "string_splitting": algorithmic.string_splitting,
    "survo": games.survo,
    "syllogism": logic.syllogism,
    "time_intervals": arithmetic.time_intervals,
    "tsumego": games.tsumego,
}
"""The check of each task that is known to make faulty items."""


def item_fault(task: str, entry: Entry) -> Fault | None:
    """Return the fault of an item, or None if there is none."""
    check = CHECKS.get(task)
    return check(entry) if check else None
