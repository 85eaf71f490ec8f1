"""The library's difficulty levels as dataset parameters."""

from __future__ import annotations

import dataclasses
from typing import Any

Level = dict[str, Any] | str
"""What differs from the default configuration, or why the level can't be built."""

LevelTable = dict[str, list[Level]]
"""Every task with a curriculum, and what each of its levels is, from level 0."""


def parameters_at(task: str, level: int) -> dict[str, Any]:
    """The parameters of a task with every attribute of its curriculum at one level.

    Raises:
        ValueError: the task has no curriculum, or its configuration refuses the level.
    """
    from reasoning_gym.factory import create_curriculum  # heavy: only workers come here

    curriculum = create_curriculum(task)
    curriculum.set_global_level(level)
    configuration = curriculum.generate_configuration()
    default = type(configuration)()
    return {
        field.name: getattr(configuration, field.name)
        for field in dataclasses.fields(configuration)
        if field.init and getattr(configuration, field.name) != getattr(default, field.name)
    }


def level_table() -> LevelTable:
    """The levels of the installed library."""
    from reasoning_gym.factory import CURRICULA, create_curriculum

    table: LevelTable = {}
    for task in sorted(CURRICULA):
        attributes = create_curriculum(task).attributes.values()
        table[task] = [_level(task, level) for level in range(_height(attributes))]
    return table


def _height(attributes: Any) -> int:
    return max((len(attribute.levels) for attribute in attributes), default=0)


def _level(task: str, level: int) -> Level:
    try:
        return parameters_at(task, level)
    except Exception as error:  # noqa: BLE001 - a configuration may raise anything: it is reported
        return f"{type(error).__name__}: {error}"
