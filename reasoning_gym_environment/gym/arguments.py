"""What callers pass to a gym: each argument is declared in a signature, and checked by it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BeforeValidator, ConfigDict, Field, SkipValidation, create_model

from ..errors import ConfigurationError
from ..problems.options import plain_dict, plain_integer, plain_list
from ..records import Problem, Recipe
from ..tasks.facts import LIBRARY
from ..tasks.recipes import (
    read_recipe,
    require_parameters_of_level,
    require_valid_recipe,
)
from ..util.command_line import Section, build
from ..util.values import shorten

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

Scorable = Problem | Recipe | Mapping[str, Any]
"""A problem, or its recipe, also as JSON. The problem of a recipe is generated again."""

AnyScorable = Annotated[Scorable, SkipValidation]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Processes = Annotated[int | None, Field(ge=1)]
Level = Annotated[int | None, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
Module = Annotated[str | Path, SkipValidation]


class Arguments(Section):
    """Arguments of a call; unknown names and wrong types are errors."""

    model_config = ConfigDict(strict=True)


def checked(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Check the arguments of each call by the function's annotations, whose limits are `Field`s.

    Iterables become lists, mappings dictionaries, and numpy's integers Python's. A call raises
    ConfigurationError with a sentence for each mistake.
    """
    parameters = inspect.signature(function).parameters
    required = {name for name, each in parameters.items() if each.default is each.empty}

    @cache
    def model() -> type[Arguments]:
        """Return the model of the arguments, made once all annotations can be read."""
        hints = get_type_hints(function, include_extras=True)
        fields: dict[str, Any] = {
            name: (
                _concrete(hints[name]),
                ... if name in required else parameter.default,
            )
            for name, parameter in parameters.items()
            if name in hints and SkipValidation not in get_args(hints[name])
        }
        made = create_model(function.__qualname__, __base__=Arguments, **fields)
        made.unknown_name_hint = f"see {function.__qualname__}"
        return made

    @functools.wraps(function)
    def call(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        first = dict(zip(parameters, arguments, strict=False))
        given: dict[str, Any] = {**first, **named}
        if (
            len(first) < len(arguments)
            or first.keys() & named
            or not given.keys() >= required
        ):
            return function(*arguments, **named)  # raises TypeError
        fields = model().model_fields
        to_check = {
            name: value
            for name, value in given.items()
            if name not in parameters
            or (name in fields and not (value is None and fields[name].default is None))
        }
        arguments_model = build(model(), to_check)
        whole: Callable[..., Result] = function
        return whole(
            **{**given, **{name: getattr(arguments_model, name) for name in fields}}
        )

    return call


def _concrete(hint: Any) -> Any:
    """Return what a strict model checks in place of an annotation; None is the caller's part."""
    hint = _without_none(hint)  # Python 3.10 adds it where the default is None
    limits = getattr(hint, "__metadata__", ())
    kind = _without_none(hint.__origin__) if limits else hint
    concrete = {Sequence: list, Iterable: list, Mapping: dict}.get(get_origin(kind))
    annotated: Any = Annotated
    checked_kind: Any = GenericAlias(concrete, get_args(kind)) if concrete else kind
    for limit in (
        *limits,
        BeforeValidator(lambda v: plain_integer(plain_list(plain_dict(v)))),
    ):
        checked_kind = annotated[checked_kind, limit]
    return checked_kind


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    kinds = [one for one in get_args(kind) if one is not NoneType]
    return kinds[0] if len(kinds) == 1 else kind


_installed_version = cache(functools.partial(version, LIBRARY))


def validated(recipe: Recipe | Mapping[str, Any]) -> Recipe:
    """Return the recipe of an argument; raise ConfigurationError if it is invalid."""
    try:
        if isinstance(recipe, Problem):
            raise ValueError(f"got {shorten(recipe)}: pass its attribute recipe")
        if isinstance(recipe, str) and recipe.isidentifier():
            raise ValueError(
                f"got {shorten(recipe)}: gym.problems makes problems of a task"
            )
        if isinstance(recipe, Recipe):
            require_valid_recipe(recipe)
        else:
            recipe = read_recipe(recipe)
        require_parameters_of_level(recipe)
    except ValueError as error:
        raise ConfigurationError(f"invalid recipe: {error}") from error
    return recipe


def require_scorable(value: Any) -> Problem | Recipe:
    """Return a problem of the installed library, or a recipe; ConfigurationError if neither."""
    if isinstance(value, Recipe | Mapping):
        return validated(value)
    problem = require_problem(value, "problem", "one Problem or its recipe")
    made = problem.recipe.library_version
    installed = _installed_version()
    if made not in (None, installed):
        raise ConfigurationError(
            f"problem was made with {LIBRARY} {made}, but {installed} is installed: pass "
            "problem.recipe to make it again, or install that version"
        )
    return problem


def require_problem(value: Any, name: str, wanted: str = "a Problem") -> Problem:
    """Return a problem; raise ConfigurationError if it is none."""
    if not isinstance(value, Problem):
        raise ConfigurationError(f"{name} must be {wanted}, got {shorten(value)}")
    return value


def require_problems(value: Any, name: str) -> list[Problem]:
    """Return a list of problems; raise ConfigurationError if it is something else."""
    problems = require_list(value, name)
    return [require_problem(each, f"{name}[{n}]") for n, each in enumerate(problems)]


def require_list(value: Any, name: str) -> list[Any]:
    """Return what an iterable yields; raise ConfigurationError for any other value, and texts."""
    found = plain_list(value)
    if not isinstance(found, list):
        raise ConfigurationError(f"{name} must be a list, got {shorten(value)}")
    return found


def require_pairs(value: Any, name: str, wanted: str) -> list[tuple[Any, Any]]:
    """Return a list of pairs; raise ConfigurationError if it is something else."""
    pairs = require_list(value, name)
    for index, pair in enumerate(pairs):
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ConfigurationError(
                f"{name}[{index}] must be {wanted}, got {shorten(pair)}"
            )
    return pairs


def require_text(value: Any) -> str:
    """Return a completion; raise ConfigurationError if it is not a text."""
    if not isinstance(value, str):
        hints: dict[type, str] = {
            dict: ": pass its content",
            list: ": pass the last message's content",
            bytes: ": decode it",
        }
        hint = hints.get(type(value), "")
        raise ConfigurationError(f"completion must be text, got {shorten(value)}{hint}")
    return value
