"""Validation of recipes, which come from outside: from rows, checkpoints and settings.

The library trusts its parameters, and some tasks evaluate theirs. The checks here need no library:
the shape of every recipe, and parameters against known values. `datasets.require_allowed` gathers
the values that a task is known to take.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..errors import did_you_mean
from ..records import Recipe
from ..util.values import shorten
from .catalogue import proven_tasks
from .facts import LIBRARY, ladder_heights

VERSION = re.compile(r"^[0-9][0-9A-Za-z.+!_-]{0,39}$")
"""The version of a package; the pattern is also one of JSON Schema."""

_MAX_VALUES = 1000
_MAX_LENGTH = 100


def leaves(value: Any) -> Iterator[tuple[int, Any]]:
    """Yield every value that is not a list, with its depth in nested lists, in order.

    Raises ValueError beyond a number of values or levels: a list may contain itself.
    """
    ahead = [(0, value)]
    seen = 0
    while ahead:
        depth, value = ahead.pop()
        seen += 1
        if seen + len(ahead) > _MAX_VALUES:
            raise ValueError(f"has more than {_MAX_VALUES} values")
        if not isinstance(value, list | tuple):
            yield depth, value
            continue
        if depth == 4 or len(value) > _MAX_VALUES:
            raise ValueError("is nested too deeply or too long")
        ahead += [(depth + 1, inner) for inner in reversed(value)]


def _is_number(value: Any, *kinds: type, below: int) -> bool:
    """Return whether a value in [0, below) has one of these types; a boolean has none of them."""
    return type(value) in kinds and 0 <= value < below


def require_valid_recipe(recipe: Recipe) -> None:
    """Check that a recipe is small, shallow, plain JSON; raise ValueError with field and value."""
    task = recipe.task
    seed = recipe.seed
    level = recipe.level
    parameters = recipe.parameters
    if not isinstance(task, str) or len(task) > _MAX_LENGTH:
        raise ValueError(f"task must be a short text, got {shorten(task)}")
    if not _is_number(seed, int, below=2**53):
        raise ValueError(f"seed must be an integer in [0, 2**53), got {shorten(seed)}")
    # Stored levels may have a decimal point.
    if level is not None and not _is_number(level, int, float, below=1000):
        raise ValueError(f"level must be a number in [0, 1000), got {shorten(level)}")
    if not isinstance(parameters, Mapping) or len(parameters) > _MAX_LENGTH:
        raise ValueError(
            f"parameters must be a small object, got {shorten(parameters)}"
        )
    version = recipe.library_version
    if version is not None and not (
        isinstance(version, str) and VERSION.fullmatch(version)
    ):
        raise ValueError(
            f"library_version must be a version of {LIBRARY}, got {shorten(version)}"
        )
    for name, value in parameters.items():
        if not isinstance(name, str) or len(name) > _MAX_LENGTH:
            raise ValueError(
                f"a parameter's name must be a short text, got {shorten(name)}"
            )
        _require_plain(name, value)


def require_parameters_of_level(recipe: Recipe, *, has_levels: bool = False) -> None:
    """Raise ValueError if a recipe names a level, but lacks the parameters that make it.

    Of the library's tasks the snapshot tells which have levels, of others `has_levels`.
    """
    task = recipe.task
    level = recipe.level
    # In another version of the library, a task's only level may have no parameters.
    bare = level is not None and not recipe.parameters
    if bare and (has_levels or task in (ladder_heights() if level else proven_tasks())):
        raise ValueError(
            f"level {level} of {task} lacks its parameters: take the recipe of a problem made at "
            "that level, or leave level out for the task's default"
        )


def _require_plain(name: str, value: Any) -> None:
    """Check that a parameter's value is small JSON; raise ValueError otherwise."""
    try:
        for _, leaf in leaves(value):
            match leaf:
                case bool() | None:
                    pass
                case int() | float():
                    if not abs(leaf) <= 2**53:  # also refuses NaN
                        raise ValueError(
                            "has a number that is not finite or beyond 2**53"
                        )
                case str():
                    if len(leaf) > _MAX_LENGTH:
                        raise ValueError(
                            f"has a text of more than {_MAX_LENGTH} characters"
                        )
                case _:
                    raise ValueError("must be a number, text, boolean or list of them")
    except ValueError as error:
        raise ValueError(f"{shorten(name)} {error}: {shorten(value)}") from None


def read_recipe(data: Any) -> Recipe:
    """Read a stored recipe; raise ValueError if it is invalid."""
    if not isinstance(data, Mapping):
        hint = ": parse its JSON text first" if isinstance(data, str) else ""
        raise ValueError(f"a recipe must be an object, got {shorten(data)}{hint}")
    field_names = [field.name for field in fields(Recipe)]
    for name in data:
        if name not in field_names:
            hint = did_you_mean(
                str(name)[:_MAX_LENGTH], field_names, otherwise=f"it has {field_names}"
            )
            raise ValueError(f"a recipe has no field {shorten(name)}; {hint}")
    for name in ("task", "seed"):
        if name not in data:
            raise ValueError(f"a recipe needs a {name}, got {shorten(data)}")
    recipe = Recipe.from_json(data)
    require_valid_recipe(recipe)
    return recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownParameter:
    """What is known of a parameter, from values it is known to take.

    Attributes:
        kinds: types of its values, within lists too; integers are allowed for floats.
        depths: how deep in lists they lie.
        texts: its texts.
        largest: the largest absolute value, at least 1.
    """

    kinds: frozenset[type]
    depths: frozenset[int]
    texts: frozenset[str]
    largest: float

    @classmethod
    def of(cls, values: Sequence[Any]) -> KnownParameter:
        """Summarize known values."""
        values_of_leaves = [leaf for value in values for leaf in leaves(value)]
        numbers = [
            abs(leaf) for _, leaf in values_of_leaves if isinstance(leaf, int | float)
        ]
        empty = [1 for value in values if isinstance(value, list | tuple) and not value]
        return cls(
            kinds=frozenset(_kind(leaf) for _, leaf in values_of_leaves),
            depths=frozenset([*(depth for depth, _ in values_of_leaves), *empty]),
            texts=frozenset(
                str.__str__(leaf)
                for _, leaf in values_of_leaves
                if isinstance(leaf, str)
            ),
            largest=max([1, *numbers]),
        )


def require_known_values(
    parameters: Mapping[str, Any], known_parameters: Mapping[str, KnownParameter]
) -> None:
    """Check parameters against the values that a task is known to take.

    Raises TypeError for an unknown name, and ValueError for a value of another type, one that is
    too large, or an unknown text.
    """
    for name, value in parameters.items():
        if name not in known_parameters:
            raise TypeError(
                f"unknown parameter {shorten(name)}; the task has {', '.join(known_parameters)}"
            )
        _require_plain(name, value)
        for depth, leaf in leaves(value):
            refusal = _refusal(name, depth, leaf, known_parameters[name])
            if refusal:
                raise ValueError(f"{name} can't be {shorten(value)}: {refusal}")


def _kind(leaf: Any) -> type:
    """Return a value's type; `str` for a member of an enumeration of texts."""
    return str if isinstance(leaf, str) else type(leaf)


def _refusal(name: str, depth: int, leaf: Any, parameter: KnownParameter) -> str:
    """Return why a value at a depth is not allowed; empty if it is."""
    kind = _kind(leaf)
    if depth not in parameter.depths or (leaf is None and depth):
        return "a list is missing, misplaced or too deep"
    if kind not in parameter.kinds and not (kind is int and float in parameter.kinds):
        kinds = ", ".join(
            sorted(k.__name__ for k in parameter.kinds & {bool, int, float, str})
        )
        return f"its type is {kinds}" if kinds else "a recipe can't hold its type"
    if isinstance(leaf, str):
        if name in ("symbols", "variables"):  # of expressions that sympy evaluates
            ok = re.fullmatch("[A-Za-z][0-9]{0,3}", leaf)
            return "" if ok else "a symbol is a letter followed by digits"
        if name in (
            "colour_list",
            "female_names",
            "male_names",
            "static_font",
            "static_word",
        ):
            # Words that go into a question, or name a font. All other texts must be known values.
            ok = re.fullmatch("[A-Za-z][A-Za-z0-9_]{0,39}", leaf)
            return "" if ok else "a word is a letter followed by letters, digits or _"
        return (
            ""
            if leaf in parameter.texts
            else f"its texts are {shorten(sorted(parameter.texts))}"
        )
    largest = 100 * parameter.largest
    if leaf is not None and abs(leaf) > largest:
        return f"the limit is {largest:g}"
    return ""
