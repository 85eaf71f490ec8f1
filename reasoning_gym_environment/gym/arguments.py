"""What callers pass to a gym: each argument is declared in a signature, and checked by it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Concatenate,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
)

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    PlainValidator,
    SkipValidation,
    ValidationError,
    validate_call,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

from ..errors import ConfigurationError, did_you_mean
from ..problems.options import (
    Integer,
    StreamKeywords,
    StreamOptions,
    plain_dict,
    plain_integer,
    plain_list,
)
from ..records import Problem, Recipe
from ..tasks.facts import LIBRARY
from ..tasks.recipes import (
    read_recipe,
    require_parameters_of_level,
    require_valid_recipe,
)
from ..util.command_line import describe_validation
from ..util.values import shorten

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Owner = TypeVar("Owner")
Method = TypeVar("Method", bound=Callable[..., Any])


# Classes that pydantic doesn't know are checked by isinstance.
_CONFIG = ConfigDict(strict=True, arbitrary_types_allowed=True)


def checked(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Check the arguments of each call by the function's annotations, as pydantic reads them.

    Types are strict: True is not an integer, and "3" no number. A coroutine's arguments are
    checked when it is called, not when it is awaited. A call raises ConfigurationError with a
    sentence for each bad value or for an unknown name, and TypeError where an argument is missing.
    """

    @functools.wraps(function)
    def bind(*arguments: Any, **named: Any) -> Callable[[], Result]:
        return functools.partial(function, *arguments, **named)

    bind.__annotations__ = dict(function.__annotations__)
    del bind.__annotations__["return"]  # its class may be defined further down
    bind_checked = validate_call(config=_CONFIG)(bind)

    @functools.wraps(function)
    def call(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        try:
            bound = bind_checked(*arguments, **named)
        except ValidationError as error:
            _require_known_names(function, named)
            # Raises TypeError if one is missing or given twice.
            inspect.signature(function).bind(*arguments, **named)
            message = describe_validation(error, _fields(function))
            raise ConfigurationError(message) from None
        return bound()

    return call


def _require_known_names(function: Callable[..., Any], names: Iterable[str]) -> None:
    parameters = inspect.signature(function).parameters
    for name in names:
        if name not in parameters:
            hint = did_you_mean(
                name, parameters, otherwise=f"see {function.__qualname__}"
            )
            raise ConfigurationError(f"unknown setting {name!r}; {hint}")


def _fields(function: Callable[..., Any]) -> dict[str, FieldInfo]:
    """Return what each parameter takes, in order."""
    hints = get_type_hints(function, include_extras=True)
    return {
        name: FieldInfo.from_annotation(hints.get(name, Any))
        for name in inspect.signature(function).parameters
    }


def takes_parameters_of(
    source: Callable[Concatenate[Any, Parameters], Any],
) -> Callable[
    [Callable[Concatenate[Owner, ...], Result]],
    Callable[Concatenate[Owner, Parameters], Result],
]:
    """Declare that a method passes all its arguments to another one, which declares them.

    Type checkers, editors and `help` see the other method's parameters.
    """

    def declare(
        method: Callable[Concatenate[Owner, ...], Result],
    ) -> Callable[Concatenate[Owner, Parameters], Result]:
        vars(method)["__signature__"] = inspect.signature(source)
        return cast(Callable[Concatenate[Owner, Parameters], Result], method)

    return declare


def shows_stream_options(method: Method) -> Method:
    """Let `help` and editors show each of the `StreamKeywords` of a method."""
    signature = inspect.signature(method)
    *others, _ = signature.parameters.values()
    fields = StreamOptions.model_fields
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=fields[name].get_default(call_default_factory=True),
            annotation=annotation,
        )
        for name, annotation in get_type_hints(StreamKeywords).items()
    ]
    parameters = [*others, *options]
    vars(method)["__signature__"] = signature.replace(parameters=parameters)
    return method


def _list_schema(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    items: Any = list[get_args(source)]  # type: ignore[misc]  # known at run time
    return handler(Annotated[items, BeforeValidator(plain_list)])


def _dict_schema(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    items: Any = dict[get_args(source)]  # type: ignore[misc]  # known at run time
    return handler(Annotated[items, BeforeValidator(plain_dict)])


AS_LIST = GetPydanticSchema(_list_schema)
"""Marks an iterable or a sequence: any iterable but a text or a mapping becomes a list."""

AS_DICT = GetPydanticSchema(_dict_schema)
"""Marks a mapping, of which any becomes a dictionary."""

Number = Annotated[float, BeforeValidator(plain_integer)]
Seconds = Annotated[Number, Field(gt=0, allow_inf_nan=False)]
Processes = Annotated[Integer | None, Field(ge=1)]
Level = Annotated[Integer | None, Field(ge=0)]
Count = Annotated[Integer, Field(ge=0)]
GroupSize = Annotated[Integer | None, Field(ge=1)]
Modules = Annotated[Iterable[Annotated[str | Path, SkipValidation]], AS_LIST]
"""Names and paths of modules, each of which is checked when it is looked for."""


def _require_text(value: Any) -> str:
    """Return a text; models write lone surrogates, at which pydantic's own check may fail."""
    if not isinstance(value, str):
        hints: dict[type, str] = {
            dict: ": pass its content",
            list: ": pass the last message's content",
            bytes: ": decode it",
        }
        hint = hints.get(type(value), "")
        raise ValueError(f"must be text, got {shorten(value)}{hint}")
    return value


def _require_scorable(value: Any) -> Any:
    if not isinstance(value, (Problem, Recipe, Mapping)):
        raise ValueError(f"must be one Problem or its recipe, got {shorten(value)}")
    return value


def _pair_of(content: str) -> BeforeValidator:
    """Require two values, in a tuple or list; `content` says which they are."""

    def require_pair(value: Any) -> tuple[Any, Any]:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise ValueError(f"must be {content}, got {shorten(value)}")
        return value[0], value[1]

    return BeforeValidator(require_pair)


Scorable = Problem | Recipe | Mapping[str, Any]
"""A problem, or its recipe, also as JSON. The problem of a recipe is generated again."""

AnyScorable = Annotated[Scorable, PlainValidator(_require_scorable)]
"""A scorable, which `to_scorable` reads: once, not for each of its completions."""

Text = Annotated[str, PlainValidator(_require_text)]
"""A text that a model wrote."""

ScoringPair = Annotated[
    tuple[AnyScorable, Text], _pair_of("a problem and its completion")
]
TextWithData = Annotated[tuple[Text, Any], _pair_of("a text and its data")]


_installed_version = cache(functools.partial(version, LIBRARY))


def to_recipe(recipe: Recipe | Mapping[str, Any]) -> Recipe:
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


def to_scorable(scorable: Scorable) -> Problem | Recipe:
    """Return a problem, or the recipe of one; raise ConfigurationError if it is invalid.

    The worker processes score no problem that another version of the library made.
    """
    if not isinstance(scorable, Problem):
        return to_recipe(scorable)
    made_with = scorable.recipe.library_version
    installed = _installed_version()
    if made_with not in (None, installed):
        raise ConfigurationError(
            f"problem was made with {LIBRARY} {made_with}, but {installed} is installed: pass "
            "problem.recipe to make it again, or install that version"
        )
    return scorable
