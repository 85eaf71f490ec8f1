"""Every task's ladder of difficulty: the library's curriculum, a repaired one, or our own.

Range attributes of a curriculum become a window near the level, from the value before it to its
own, so that a higher level has no easy items left.

`ladder_repairs.json` and `own_ladders.json` have the other ladders, each with its reason. Under
"values", each parameter has one value per level. Under "ranges", `x` has bounds, and each level's
`min_x` and `max_x` are two neighbors. "levels" lists levels that set different parameters.
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


def _read(file: str) -> Mapping[str, Replacement]:
    table = json.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))
    return MappingProxyType(
        {
            task: Replacement(entry["reason"], tuple(entry.get("levels") or levels_from(entry)))
            for task, entry in table.items()
        }
    )


REPAIRS = _read("ladder_repairs.json")
"""Repaired ladders, for curricula that are broken, slow, too long or start too hard."""

OWN_LADDERS = _read("own_ladders.json")
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
    """Build the ladders of registered tasks, ordered by name.

    Raises:
        ValueError: a curriculum can't be read; the message names its task.
    """
    ladders = {}
    for task in sorted(tasks):
        try:
            ladders[task] = replace(_build(task), parameters=parameter_names(task))
        except Exception as error:
            raise ValueError(f"the levels of {task}: {type(error).__name__}: {error}") from error
    return ladders


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
