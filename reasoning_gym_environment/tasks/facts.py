"""Facts about single tasks of reasoning-gym 0.1.25, and what they pay without any skill.

`tests/tasks/test_facts.py` proves the facts against the installed version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ..records import Recipe

LIBRARY = "reasoning-gym"

NOT_A_TASK = MappingProxyType(
    {"composite": "mixes other datasets and has no problems of its own"}
)
"""Registered names that are not tasks."""

PAYS_ANY_ANSWER = MappingProxyType(
    {"game_of_life_halting": "its verifier gives any non-empty answer full credit"}
)
"""Tasks that would reward noise."""

ONLY_IF_NAMED = MappingProxyType(
    {
        **PAYS_ANY_ANSWER,
        "propositional_logic": "`P ∧ Q` solves half of the items at level 0, and the premises "
        "joined by ∧ solve all",
    }
)
"""Tasks that pay without reasoning, and how: left out unless they are included by name."""

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

DISGUISES_ITS_ANSWER = frozenset(
    {"caesar_cipher", "emoji_mystery", "letter_jumble", "sentence_reordering"}
)
"""Tasks that encode or shuffle a piece of the library's text: two items with one answer are one."""


def solved_score(task: str) -> float:
    """Return the score from which an answer to a task is right; all answers from it are right."""
    longer_way = 0.06  # above the 0.05 for legal moves; up to 16 times the shortest way
    # Every cell is right; with a wrong cell of 81, at most 0.89 are paid.
    other_spacing = 0.9
    return {
        # The right matrix as a Python list: the question asks for a matrix in no certain form.
        "binary_matrix": 0.1,
        "futoshiki": other_spacing,
        # Neither question asks for the shortest way, but longer ones earn their share of it.
        "knight_swap": longer_way,
        "tower_of_hanoi": longer_way,
        "mini_sudoku": other_spacing,
        # 0.0001 off: the text rounds "down" from a 5 on.
        "polynomial_equations": 0.9989,
        # A variable that follows. The verifier takes it for trivial; tautologies earn less here.
        "propositional_logic": 0.25,
        "sudoku": other_spacing,
    }.get(task, 1.0)


PLAIN_NUMBERS = frozenset(
    {
        *("advanced_geometry", "aiw", "basic_arithmetic", "binary_alternation"),
        *(
            "calendar_arithmetic",
            "chain_sum",
            "coin_flip",
            "count_bits",
            "count_primes",
        ),
        *(
            "decimal_arithmetic",
            "decimal_chain_sum",
            "gcd",
            "gsm_symbolic",
            "largest_island",
        ),
        *(
            "lcm",
            "leg_counting",
            "letter_counting",
            "maze",
            "number_format",
            "number_sequence",
        ),
        *(
            "products",
            "rectangle_count",
            "rotten_oranges",
            "self_reference",
            "simple_equations",
        ),
        "simple_geometry",
    }
)
"""Tasks that ask for a number without a form, on some items at least: equal numbers are right."""

UNTRUSTED_ENTRIES: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        (
            *("bitwise_arithmetic", "intermediate_integration", "number_sorting"),
            *("polynomial_multiplication", "simple_integration"),
        ),
        "its verifier evaluates what the entry holds",
    )
    | dict.fromkeys(
        ("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"),
        "the entry has no answer of its own to check it against",
    )
)
"""Tasks whose entries can't be trusted if they come from outside, and why; their recipes can."""


@cache
def stored_snapshot() -> dict[str, Any]:
    """Return `library_snapshot.json`, which `make docs` writes."""
    text = Path(__file__).with_name("library_snapshot.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def known_categories() -> dict[str, str]:
    """Return the category of every task in the snapshot, by name."""
    categories = stored_snapshot()["categories"]
    return {
        name: category
        for name, category in categories.items()
        if name not in NOT_A_TASK
    }


@cache
def ladder_heights() -> Mapping[str, int]:
    """Return the number of levels of every task in the snapshot."""
    return {
        task: len(row["levels"]) for task, row in stored_snapshot()["ladders"].items()
    }


DRAWS_OF_A_LEVEL = 200
"""Items of each level that `level_questions` counts."""


def level_questions(task: str, level: int | None) -> int | None:
    """Return how many of DRAWS_OF_A_LEVEL items of a level have different questions, if known."""
    counts: list[int] = stored_snapshot()["questions"].get(task, [])
    return counts[level] if level is not None and level < len(counts) else None


class Floor(NamedTuple):
    """The share of a task's default items that one way of answering them all solves.

    Attributes:
        label: the constant answer, or the rule's name; chosen on other items than these,
            except the most frequent of a closed set of answers.
        solved: in [0, 1].
        low, high: the 95 % interval.
    """

    label: str
    items: int
    solved: float
    low: float
    high: float


class Floors(NamedTuple):
    """A task's two floors.

    Attributes:
        chance: of the best constant answer.
        no_reasoning: of the best rule that copies from the question or counts in it.
    """

    chance: Floor
    no_reasoning: Floor

    @property
    def high_floor(self) -> Floor | None:
        """The higher floor if it is at least half."""
        higher = max(self, key=attrgetter("solved"))
        return higher if higher.solved >= 0.5 else None


@cache
def floors(solved_threshold: float | None = None) -> Mapping[str, Floors]:
    """Return every task's floors, as `research/floors` measured them.

    They were measured at each task's own threshold: None. There are none for others.
    """
    if solved_threshold is not None:
        return {}
    text = Path(__file__).with_name("chance_floors.json").read_text(encoding="utf-8")
    return {
        task: _read_floors(measured)
        for task, measured in json.loads(text)["floors"].items()
    }


def _read_floors(measured: Mapping[str, Mapping[str, Any]]) -> Floors:
    return Floors(
        chance=Floor(**measured["chance"]),
        no_reasoning=Floor(**measured["no_reasoning"]),
    )


def level_floors(
    recipe: Recipe, solved_threshold: float | None = None
) -> Floors | None:
    """Return the floors of a recipe's level, as `research/floors` measured them.

    None without a level, with other parameters than its own, with a threshold, or of a task whose
    levels were not measured.
    """
    if solved_threshold is not None or recipe.level is None:
        return None
    measured = all_level_floors().get(recipe.task)
    if measured is None:
        return None
    levels = stored_snapshot()["ladders"][recipe.task]["levels"]
    for level, parameters in enumerate(levels):
        if (level, parameters) == (recipe.level, recipe.parameters):
            return measured[level]
    return None


@cache
def all_level_floors() -> Mapping[str, tuple[Floors, ...]]:
    """Return the floors of every measured level by task, the lowest level first."""
    text = Path(__file__).with_name("level_floors.json").read_text(encoding="utf-8")
    return {
        task: tuple(map(_read_floors, levels))
        for task, levels in json.loads(text)["floors"].items()
    }


FEW_QUESTIONS: Mapping[str, tuple[int | None, ...]] = MappingProxyType(
    {
        "syllogism": (0, 1),
        "tower_of_hanoi": (None, 0, 1, 2, 3, 4, 5, 6),
    }
)
"""Levels with fewer than 40 different questions, by task; None is the default configuration. From
research/distinct_items.csv, whose column `items` counts them."""

FEW_QUESTIONS_OF_PAPER: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "sentence_reordering": {
            "max_words_in_sentence": 50,
            "min_words_in_sentence": 20,
        },
        "syllogism": {
            "allow_all": True,
            "allow_no": True,
            "allow_some": False,
            "allow_some_not": False,
        },
        "tower_of_hanoi": {
            "max_disks": 10,
            "max_pegs": 4,
            "min_disks": 5,
            "min_pegs": 3,
        },
    }
)
"""The same of the parameters in the suite paper-hard: 10, 27 and 12 different questions."""


def has_few_questions(recipe: Recipe) -> bool | None:
    """Return whether a level has few questions, by its parameters; None if that isn't known."""
    ladder = stored_snapshot()["ladders"].get(recipe.task)
    if ladder is None:
        return None
    if recipe.parameters == FEW_QUESTIONS_OF_PAPER.get(recipe.task):
        return True
    small_levels = FEW_QUESTIONS.get(recipe.task, ())
    if not recipe.parameters:
        return None in small_levels
    for level, parameters in enumerate(ladder["levels"]):
        if parameters == recipe.parameters:
            return level in small_levels
    return None
