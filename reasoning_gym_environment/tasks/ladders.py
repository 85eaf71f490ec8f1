"""Every task's ladder of difficulty: the library's curriculum, repaired, or our own.

The range attributes of a curriculum become a window near the level, from the value before it to
its own, so that a higher level has no easy items left over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..records import Ladder
from .ladder_tables import OWN_LADDERS, REPAIRS
from .own_parameters import parameter_names


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskLadder:
    """The levels of one task.

    Attributes:
        levels: dataset parameters in plain JSON, easiest first; at least one.
        origin: "curriculum", "repaired" or "own"; "none" where nothing moves.
        reason: why it is not the library's curriculum as it stands; empty when it is.
        parameters: names of all parameters that may be set.
    """

    levels: Ladder
    origin: str
    reason: str = ""
    parameters: tuple[str, ...] = ()


def build_ladders(tasks: Iterable[str]) -> dict[str, TaskLadder]:
    """Build the ladders of registered tasks, in the order of their names."""
    return {task: _named(task) for task in sorted(tasks)}


def _named(task: str) -> TaskLadder:
    """Build one ladder; the ValueError names the task whose curriculum can't be read."""
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
    """Read all attributes of the task's curriculum at level 0, at level 1, and so on."""
    from reasoning_gym.factory import create_curriculum

    attributes = list(create_curriculum(task).attributes.values())
    height = max((len(attribute.levels) for attribute in attributes), default=1)
    return [
        {name: value for at in attributes for name, value in _fields(at, level).items()}
        for level in range(height)
    ]


def _fields(attribute: Any, level: int) -> dict[str, Any]:
    """Say what an attribute sets at a level; its last value holds on where others go higher."""
    values = attribute.levels
    if not hasattr(attribute, "lower_field_name"):
        return {attribute.field_name: values[min(level, len(values) - 1)]}
    first = 1 if attribute.ensure_interval else 0
    top = min(level + first, len(values) - 1)
    window = values[max(top - 1, 0)], values[top]
    return {attribute.lower_field_name: min(window), attribute.upper_field_name: max(window)}


def ladder_of(task: str, levels: Iterable[Mapping[str, Any]], *, repaired: str = "") -> TaskLadder:
    """Keep the levels that the task's configuration accepts, and merge equal neighbours.

    What it refuses, as another version of the library may, is told in the ladder's reason.
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
    """Say why the task's configuration refuses these parameters; empty when it doesn't."""
    from reasoning_gym.factory import DATASETS

    try:
        configuration = DATASETS[task][1](seed=0, size=1, **parameters)
        if hasattr(configuration, "validate"):
            configuration.validate()
    except Exception as error:  # noqa: BLE001 - a configuration may raise anything: it is told
        return f"{type(error).__name__}: {error}"
    return ""
