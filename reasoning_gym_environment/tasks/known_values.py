"""The values that the parameters of a task are known to take: what recipes are held against.

They are the defaults, what a parameter's type names, and the levels of the library's curricula
and of our ladders.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..records import Recipe
from .facts import NOT_A_TASK
from .ladder_tables import OWN_LADDERS, REPAIRS
from .ladders import curriculum_levels
from .own_parameters import parameter_names
from .recipes import Known, require_known, require_sound, shown


def require_allowed(recipe: Recipe) -> None:
    """Refuse a recipe that its task is not known to bear, before the library sees it.

    Raises:
        ValueError: there is no such task, or a value is refused; the message names it.
        TypeError: the task has no such parameter.
    """
    require_sound(recipe)
    require_known(recipe.parameters, known_parameters(recipe.task))


@cache
def known_parameters(task: str) -> Mapping[str, Known]:
    """Gather what is known of each parameter of a task; raises ValueError for none."""
    from reasoning_gym.factory import DATASETS  # heavy: only workers come here

    if task not in DATASETS or task in NOT_A_TASK:
        raise ValueError(f"{shown(task)} is not registered as a task")
    configuration = DATASETS[task][1]
    hints = get_type_hints(configuration)
    values: dict[str, list[Any]] = {name: [] for name in parameter_names(task)}
    for field in dataclasses.fields(configuration):
        if field.name in values:
            values[field.name] += [_default(field), *_of_type(hints[field.name])]
    for level in _levels(task):
        for name in values.keys() & level.keys():
            values[name].append(level[name])
    return {name: Known.of(found) for name, found in values.items()}


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _of_type(hint: Any) -> Iterator[Any]:
    """Give a value of each plain type that an annotation names, and each of a choice's."""
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    elif isinstance(hint, type) and issubclass(hint, Enum):
        yield from (str(member.value) for member in hint)
    else:
        for part in get_args(hint) if get_origin(hint) is Union else (hint,):
            kind = get_origin(part) or part
            if kind in (bool, int, float, str, list, tuple):
                yield kind()


def _levels(task: str) -> Iterator[Mapping[str, Any]]:
    from reasoning_gym.factory import CURRICULA

    if task in CURRICULA:
        yield from curriculum_levels(task)
    for table in (OWN_LADDERS, REPAIRS):
        if task in table:
            yield from table[task].levels
