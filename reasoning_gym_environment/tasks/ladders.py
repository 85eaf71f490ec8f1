"""Every task's ladder of difficulty: the library's curriculum, a repaired one, or our own.

Range attributes of a curriculum become a window near the level, from the value before it to its
own, so that a higher level has no easy items left.

`ladder_repairs.json` has the repaired ladders, each with its reason and its columns: under
"values" one value per level for each field; under "ranges" bounds, where `x` gives `min_x` and
`max_x` from each bound to the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ..records import Ladder
from ._extra_parameters import parameter_names

_REPAIRS_FILE = Path(__file__).with_name("ladder_repairs.json")


class Replacement(NamedTuple):
    """A ladder that replaces the library's, and the reason."""

    reason: str
    levels: tuple[Mapping[str, Any], ...]


def levels_from(columns: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Turn a table's columns into levels, one per row.

    Raises:
        ValueError: the columns differ in height.

    Example:
        >>> levels_from({"ranges": {"n": [2, 4, 8]}, "values": {"p": [0.5, 0.1]}})
        ({'p': 0.5, 'min_n': 2, 'max_n': 4}, {'p': 0.1, 'min_n': 4, 'max_n': 8})
    """
    by_field = dict(columns.get("values", {}))
    for name, bounds in columns.get("ranges", {}).items():
        by_field[f"min_{name}"], by_field[f"max_{name}"] = bounds[:-1], bounds[1:]
    rows = zip(*by_field.values(), strict=True)
    return tuple(dict(zip(by_field, row, strict=True)) for row in rows)


def _read_repairs() -> dict[str, Replacement]:
    table = json.loads(_REPAIRS_FILE.read_text(encoding="utf-8"))
    return {
        task: Replacement(reason=entry["reason"], levels=levels_from(entry))
        for task, entry in table.items()
    }


REPAIRS: Mapping[str, Replacement] = MappingProxyType(_read_repairs())
"""Repaired ladders, for curricula that are broken, slow, too long or start too hard."""


def _knights(nodes: tuple[int, int], pieces: int, steps: tuple[int, int]) -> dict[str, Any]:
    return {
        "min_nodes": nodes[0],
        "max_nodes": nodes[1],
        "min_pieces": pieces,
        "max_pieces": pieces,
        "min_steps": steps[0],
        "max_steps": steps[1],
        "impossible_ratio": 0.0,
    }


def _choices(name: str, *choices: list[int]) -> tuple[dict[str, Any], ...]:
    return tuple({name: numbers} for numbers in choices)


def _ranks(*ranks: float) -> tuple[dict[str, Any], ...]:
    return tuple({"rank": rank} for rank in ranks)


_RANKS = _ranks(0.1, 0.35, 0.65, 0.9)

OWN_LADDERS: Mapping[str, Replacement] = MappingProxyType(
    {
        "acre": Replacement(
            "no curriculum: the number of experiments that bear on the test case rises",
            _ranks(0.0, 0.25, 0.5, 0.75, 1.0),
        ),
        "arc_agi": Replacement(
            "the curriculum only turns and mirrors the boards: larger boards, and the harder"
            " evaluation riddles in place of the training riddles",
            (
                {"use_train": True, "use_eval": False, "rank": 0.1},
                {"use_train": True, "use_eval": False, "rank": 0.4},
                {"use_train": True, "use_eval": False, "rank": 0.7},
                {"use_train": False, "use_eval": True, "rank": 0.65},
                {"use_train": False, "use_eval": True, "rank": 0.9},
            ),
        ),
        "codeio": Replacement(
            "the curriculum's labels fall on 22, 393, 2025 and 54 programs, which get shorter:"
            " longer programs and inputs; only outputs are asked for, since an answer that gives"
            " an input is compared with the one drawn, though others give the same output",
            tuple({"input_prediction_probability": 1.0, **rank} for rank in _RANKS),
        ),
        "figlet_font": Replacement(
            "the curriculum's top levels draw the same words: longer words, at last unspaced",
            (
                {"min_word_len": 2, "max_word_len": 3},
                {"min_word_len": 4, "max_word_len": 5},
                {"min_word_len": 6, "max_word_len": 7},
                {"min_word_len": 8, "max_word_len": 10},
                {"min_word_len": 11, "max_word_len": 14, "space_letters": False},
            ),
        ),
        "game_of_life_halting": Replacement(
            "the curriculum's top boards are too large to be shown, and stand there as dots: more"
            " and harder patterns on boards of at most 31 by 31 cells",
            tuple(
                {
                    "grid_size_x": side,
                    "grid_size_y": side,
                    "difficulty": difficulty,
                    "num_oscillators": patterns,
                    "max_simulation_steps": steps,
                }
                for side, difficulty, patterns, steps in (
                    (8, 1, 1, 10),
                    (12, 1, 3, 20),
                    (18, 1, 6, 30),
                    (24, 2, 7, 50),
                    (31, 3, 9, 100),
                )
            ),
        ),
        "gsm_symbolic": Replacement(
            "no curriculum: templates by the arithmetic operations of their worked answers, from 2"
            " to 8 and more; template 24 asks for negative amounts, which its verifier can't read",
            _choices(
                "templates",
                [4, 6, 10, 14, 16, 20, 23, 26, 39, 43, 45, 54, 55, 56, 58, 59, 82, 99],
                [5, 12, 13, 18, 21, 25, 33, 34, 48, 50, 62, 67, 70, 72, 75, 78, 81, 88, 91, 93, 95],
                [0, 7, 8, 27, 30, 31, 41, 46, 47, 49, 52, 57, 64, 69],
                [1, 3, 9, 28, 38, 40, 44, 51, 53, 71, 83, 84, 85, 92, 96],
                [2, 11, 15, 17, 22, 29, 42, 60, 66, 68, 73, 94],
                [19, 36, 80, 89],
            ),
        ),
        "knight_swap": Replacement(
            "every level of the curriculum raises: pieces and moves of the shortest solution rise,"
            " on boards where one is found quickly; no impossible items, since the library makes"
            " them by forbidding a move that the board in the question allows",
            (
                _knights((11, 12), 1, (1, 8)),
                _knights((11, 12), 1, (10, 12)),
                _knights((11, 12), 2, (12, 14)),
                _knights((11, 12), 2, (16, 16)),
                _knights((10, 10), 2, (18, 22)),
                _knights((9, 9), 2, (22, 40)),
            ),
        ),
        "list_functions": Replacement(
            "no curriculum: rules by the size of their shortest description; 13 and 14 are left"
            " out, since all their items have the same answer",
            _choices("functions", [0, 1, 8, 10], [2, 4, 9], [7, 11, 15], [3, 6, 16], [5, 12]),
        ),
        "puzzle24": Replacement(
            "the curriculum's values make it no harder: fewer ways lead to 24",
            _ranks(0.0, 0.5, 1.0),
        ),
        "quantum_lock": Replacement(
            "the curriculum draws from all levels up to its own: longer shortest solutions",
            (
                {"difficulty": 2, "rank": 0.1},
                {"difficulty": 4, "rank": 0.5},
                {"difficulty": 8, "rank": 0.6},
                {"difficulty": 10, "rank": 0.8},
            ),
        ),
        "rectangle_count": Replacement(
            "the curriculum draws any number up to its own on 6,400 cells: more rectangles, on"
            " boards that grow with them",
            tuple(
                {"max_rectangles": number, "width": side, "height": side, "rank": 0.8}
                for number, side in ((2, 12), (4, 20), (7, 30), (11, 42), (16, 56), (24, 72))
            ),
        ),
        "rush_hour": Replacement(
            "nearly all boards need fewer than 46 moves: windows with 400 boards and more each",
            tuple(
                {"min_moves": least, "max_moves": most}
                for least, most in (
                    (1, 4),
                    (5, 7),
                    (8, 11),
                    (12, 16),
                    (17, 22),
                    (23, 29),
                    (30, 37),
                    (38, 60),
                )
            ),
        ),
        "self_reference": Replacement(
            "the library's difficulty changes nothing: single misjudged statements that make a"
            " wrong number of solutions become more, at the same right answers",
            _RANKS,
        ),
        "time_intervals": Replacement(
            "the curriculum mixes all kinds at all levels: first clock times, then dates, then"
            " both with time zones, and longer intervals",
            tuple(
                {
                    "task_types": [kind],
                    "max_time_difference_seconds": seconds,
                    "max_date_difference_days": days,
                }
                for kind, seconds, days in (
                    ("time", 3_600, 1),
                    ("time_seconds", 21_600, 1),
                    ("time_ms", 86_400, 1),
                    ("date", 86_400, 60),
                    ("date", 86_400, 700),
                    ("datetime_tz", 86_400, 3_650),
                )
            ),
        ),
        "word_ladder": Replacement(
            "the curriculum changes only the length of the words: longer ladders",
            tuple(
                {
                    "min_word_length": letters,
                    "max_word_length": letters,
                    "min_chain_length": least,
                    "max_chain_length": most,
                }
                for letters, least, most in (
                    (3, 3, 3),
                    (3, 4, 5),
                    (4, 6, 7),
                    (4, 8, 10),
                    (5, 11, 14),
                )
            ),
        ),
    }
)
"""Our own ladders, for curricula that are missing or useless."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskLadder:
    """The levels of one task.

    Attributes:
        levels: dataset parameters in plain JSON, easiest first; at least one.
        origin: "curriculum", "repaired", "own", or "none" for a single level.
        reason: why it differs from the library's curriculum; empty if it doesn't.
        parameters: names of all parameters that a user may set.
    """

    levels: Ladder
    origin: str
    reason: str = ""
    parameters: tuple[str, ...] = ()


def build_ladders(tasks: Iterable[str]) -> dict[str, TaskLadder]:
    """Build the ladders of registered tasks, ordered by name."""
    return {task: _build_named(task) for task in sorted(tasks)}


def _build_named(task: str) -> TaskLadder:
    """Build one ladder; raise a ValueError with the task's name if its curriculum can't be read."""
    try:
        return replace(_build(task), parameters=parameter_names(task))
    except Exception as error:
        raise ValueError(f"the levels of {task}: {type(error).__name__}: {error}") from error


def _build(task: str) -> TaskLadder:
    from reasoning_gym.factory import CURRICULA  # heavy: only workers come here

    if task in OWN_LADDERS:
        own = OWN_LADDERS[task]
        return TaskLadder(levels=own.levels, origin="own", reason=own.reason)
    if task in REPAIRS:
        return ladder_of(task, REPAIRS[task].levels, repaired=REPAIRS[task].reason)
    if task not in CURRICULA:
        return TaskLadder(levels=({},), origin="none", reason="the library has no curriculum")
    return ladder_of(task, curriculum_levels(task))


def curriculum_levels(task: str) -> list[dict[str, Any]]:
    """Return the parameters of every level of the task's curriculum."""
    from reasoning_gym.factory import create_curriculum

    attributes = list(create_curriculum(task).attributes.values())
    height = max((len(attribute.levels) for attribute in attributes), default=1)
    return [
        {name: value for at in attributes for name, value in _fields(at, level).items()}
        for level in range(height)
    ]


def _fields(attribute: Any, level: int) -> dict[str, Any]:
    """Return the parameters that an attribute sets; above its last value, it keeps that value."""
    values = attribute.levels
    if not hasattr(attribute, "lower_field_name"):
        return {attribute.field_name: values[min(level, len(values) - 1)]}
    first = 1 if attribute.ensure_interval else 0
    top = min(level + first, len(values) - 1)
    window = values[max(top - 1, 0)], values[top]
    return {attribute.lower_field_name: min(window), attribute.upper_field_name: max(window)}


def ladder_of(task: str, levels: Iterable[Mapping[str, Any]], *, repaired: str = "") -> TaskLadder:
    """Build a ladder of the levels that the task's configuration accepts, without repetitions.

    The ladder's reason lists the refused levels; another version of the library may refuse some.
    """
    reasons = [repaired] if repaired else []
    kept: list[Mapping[str, Any]] = []
    for number, parameters in enumerate(levels):
        if refusal := _refusal(task, parameters):
            reasons.append(f"level {number} is refused: {refusal}")
        elif not kept or parameters != kept[-1]:
            kept.append(parameters)
    origin = "none" if not kept else "repaired" if reasons else "curriculum"
    return TaskLadder(levels=tuple(kept) or ({},), origin=origin, reason="; ".join(reasons))


def _refusal(task: str, parameters: Mapping[str, Any]) -> str:
    """Return why the task's configuration refuses these parameters; empty if it accepts them."""
    from reasoning_gym.factory import DATASETS

    try:
        configuration = DATASETS[task][1](seed=0, size=1, **parameters)
        if hasattr(configuration, "validate"):
            configuration.validate()
    except Exception as error:  # noqa: BLE001 - a configuration may raise anything: it is reported
        return f"{type(error).__name__}: {error}"
    return ""
