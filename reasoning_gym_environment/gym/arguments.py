"""What callers pass to a gym: models of the arguments, and one sentence for each mistake."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Annotated, Any, ClassVar, Literal, TypedDict

from pydantic import (
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
)

from ..errors import ConfigurationError
from ..problems.options import Integer, Texts, plain_dict, plain_list
from ..records import Problem, Recipe
from ..tasks.recipes import LIBRARY, read_recipe, require_valid_recipe
from ..util.command_line import Section
from ..util.text import shorten

Scorable = Problem | Recipe | Mapping[str, Any]
"""A problem, or its recipe, also as JSON. The problem of a recipe is generated again."""


def _plain_size(value: Any) -> int:
    try:
        size = int(_SIZE.validate_python(value))
    except ValidationError:
        size = 0
    if not _MIN_MEMORY <= size <= _MAX_MEMORY:
        raise ValueError(
            f"must be a size from 16 MiB to 1 PiB, such as '512MB', got {shorten(value)}"
        )
    return size


_SIZE = TypeAdapter(ByteSize)
_MIN_MEMORY, _MAX_MEMORY = 16 * 2**20, 2**50

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Arguments(Section):
    """Arguments of a call; unknown names and wrong types are errors."""

    model_config = ConfigDict(strict=True)


class GymSettings(Arguments):
    """The options of `AsyncReasoningGym`, which documents them."""

    processes: Annotated[Integer | None, Field(ge=1)]
    answer_tolerance: bool
    solved_threshold: Annotated[float | None, Field(gt=0, le=1)]
    skip_faulty_items: bool
    generation_timeout: Seconds
    verify_timeout: Seconds
    verify_group_timeout: Seconds
    require_containment: bool


class ContainOptions(TypedDict, total=False):
    """The options of `contain`.

    Attributes:
        timeout: seconds of a call; then its process is killed. 5.
        memory: what a call may use beyond what the loaded function has; "512MB".
        processes: calls at once; half the cores.
        bounds: the lowest and the highest score; (0, 1). A call that fails earns the lowest.
        solved_threshold: score from which the status is solved; the highest.
        warm_up: texts and data of calls that run once, uncontained, before all others: what they
            import and cache is ready for the others.
        allow: "network", "processes" and "write", each of which loosens the containment.
        environment: names of environment variables that the function sees.
        require_containment: whether to refuse to start where the sandbox is incomplete.
    """

    timeout: float
    memory: int | str
    processes: int | None
    bounds: tuple[float, float]
    solved_threshold: float | None
    warm_up: Iterable[tuple[str, Any]]
    allow: Iterable[str]
    environment: Iterable[str]
    require_containment: bool


class ContainSettings(Arguments):
    """`ContainOptions`, validated."""

    otherwise: ClassVar[str] = "see ContainOptions"

    timeout: Annotated[float, Field(gt=0, le=86400)] = 5.0
    memory: Annotated[int, BeforeValidator(_plain_size)] = 512_000_000
    processes: Annotated[Integer | None, Field(ge=1)] = None
    bounds: Annotated[tuple[float, float], Field(strict=False)] = (0.0, 1.0)
    solved_threshold: Annotated[float | None, Field(allow_inf_nan=False)] = None
    warm_up: Annotated[list[Any], BeforeValidator(plain_list)] = Field([])
    allow: Annotated[
        list[Literal["network", "processes", "write"]], BeforeValidator(plain_list)
    ] = Field([])
    environment: Texts = Field([])
    require_containment: bool = False

    @field_validator("bounds")
    @classmethod
    def _range(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not -math.inf < value[0] < value[1] < math.inf:
            raise ValueError(
                f"must be two finite numbers, the lower one first, got {shorten(value)}"
            )
        return value


class ProblemsArguments(Arguments):
    """The arguments of `AsyncReasoningGym.problems`, which documents them."""

    task: str
    level: Annotated[Integer | None, Field(ge=0)]
    count: Annotated[Integer, Field(ge=0)]
    seed: Integer
    parameters: Annotated[dict[str, Any], BeforeValidator(plain_dict)]
    split: Literal["train", "eval"]

    @field_validator("task", mode="before")
    @classmethod
    def _one_task(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            raise ValueError(
                f"must be one task, got {shorten(value)}: call it for each, or start a stream"
            )
        return value


class ObservedCounts(Arguments):
    """How many of the attempts at a problem solved it."""

    solved: Annotated[Integer, Field(ge=0)]
    attempts: Annotated[Integer, Field(ge=0)]


@cache
def _installed_version() -> str:
    return version(LIBRARY)


def validated(recipe: Recipe | Mapping[str, Any]) -> Recipe:
    """Return the recipe of an argument; raise ConfigurationError if it is invalid."""
    try:
        if isinstance(recipe, Recipe):
            require_valid_recipe(recipe)
            return recipe
        if isinstance(recipe, Problem):
            raise ValueError(f"got {shorten(recipe)}: pass its attribute recipe")
        return read_recipe(recipe)
    except ValueError as error:
        raise ConfigurationError(f"invalid recipe: {error}") from error


def require_scorable(value: Any) -> Problem | Recipe:
    """Return a problem, or the recipe of one.

    Raises:
        ConfigurationError: it is neither, or a problem of another version of the library.
    """
    if isinstance(value, Recipe | Mapping):
        return validated(value)
    problem = require_problem(value, "problem", "one Problem or its recipe")
    made, installed = problem.recipe.library_version, _installed_version()
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


def require_pair(
    value: Any, name: str, wanted: str = "a problem and its completion"
) -> tuple[Any, Any]:
    """Return the parts of a pair; raise ConfigurationError if it is not one."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ConfigurationError(f"{name} must be {wanted}, got {shorten(value)}")
    first, second = value
    return first, second


_WAYS_TO_TEXT: Mapping[type, str] = {
    dict: ": pass its content",
    list: ": pass the last message's content",
    bytes: ": decode it",
}


def require_text(value: Any) -> str:
    """Return a completion; raise ConfigurationError if it is not a text."""
    if not isinstance(value, str):
        hint = _WAYS_TO_TEXT.get(type(value), "")
        raise ConfigurationError(f"completion must be text, got {shorten(value)}{hint}")
    return value
