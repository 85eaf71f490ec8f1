"""The options of a stream of problems, for the command line, Python and HTTP."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo
from typing_extensions import TypedDict

from ..util.command_line import Parser, Section
from ..util.values import shorten
from .levels import ComplexityMode
from .sampler import TaskSampling


def option(
    default: Any,
    about: str,
    *,
    heading: str = "",
    alias: str = "",
    paths: bool = False,
    **limits: Any,
) -> Any:
    """Declare an option.

    Args:
        heading: of this option and of those that follow.
        alias: another spelling on the command line.
        paths: whether its names may be paths of modules, in a file of settings relative to that.
    """
    extra: dict[str, Any] = {"heading": heading, "alias": alias, "paths": paths}
    extra = {name: value for name, value in extra.items() if value}
    return Field(
        default=default,
        description=about,
        json_schema_extra=extra or None,
        **limits,
    )


def plain_integer(value: Any) -> Any:
    """Convert numpy's integers."""
    is_integer = hasattr(type(value), "__index__") and not isinstance(value, bool)
    return operator.index(value) if is_integer else value


def plain_list(value: Any) -> Any:
    """Convert any iterable but a text or a mapping."""
    is_list = isinstance(value, Iterable) and not isinstance(
        value, str | bytes | Mapping
    )
    return list(value) if is_list else value


def plain_dict(value: Any) -> Any:
    """Convert any mapping."""
    return dict(value) if isinstance(value, Mapping) else value


def split_names(value: Any) -> list[str]:
    """Split names at commas and trim them; a list is only trimmed.

    Example:
        >>> split_names("gcd, games")
        ['gcd', 'games']
    """
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"must be names, as a list or separated by commas, got {value!r}"
        )
    return [name.strip() for name in names if name.strip()]


def add_task_modules(parser: Parser) -> None:
    """Let a command without `serve`'s settings take the modules with a user's own tasks."""
    for name in ("task-modules", "task-environment"):
        parser.option(
            f"--{name}",
            f"as env.{name.replace('-', '_')}",
            type=split_names,
            default=[],
        )


def parse_weights(value: Any) -> dict[str, float]:
    """Read weights by name from a mapping or from text.

    Example:
        >>> parse_weights("gcd=2, games=0.5")
        {'gcd': 2.0, 'games': 0.5}
    """
    try:
        is_mapping = isinstance(value, Mapping)
        pairs = (
            value.items()
            if is_mapping
            else (part.split("=") for part in split_names(value))
        )
        numbers = {str(name).strip(): float(weight) for name, weight in pairs}
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            f"must be weights such as gcd=2,games=0.5, got {value!r}"
        ) from None
    for name, weight in numbers.items():
        if not 0 <= weight < float("inf"):
            raise ValueError(f"must be finite weights ≥ 0, got {weight} for {name!r}")
    return numbers


def parse_parameters(value: Any) -> dict[str, dict[str, Any]]:
    """Read dataset parameters by task from a mapping or from JSON.

    Example:
        >>> parse_parameters('{"gcd": {"max_value": 9}}')
        {'gcd': {'max_value': 9}}
    """
    try:
        parsed = json.loads(value or "{}") if isinstance(value, str) else value
    except (RecursionError, ValueError) as error:
        raise ValueError(f"must be valid JSON, got {shorten(value)}: {error}") from None
    if not isinstance(parsed, dict) or not all(
        isinstance(p, dict) for p in parsed.values()
    ):
        raise ValueError(f"must map tasks to their parameters, got {value!r}")
    return parsed


def _is_strict(info: ValidationInfo) -> bool:
    return bool((info.config or {}).get("strict"))


Integer = Annotated[int, BeforeValidator(plain_integer)]
Texts = Annotated[list[str], BeforeValidator(plain_list)]
Names = Annotated[
    list[str],
    BeforeValidator(
        lambda v, info: plain_list(v) if _is_strict(info) else split_names(v)
    ),
]
Weights = Annotated[
    dict[str, Annotated[float, Field(ge=0, le=1e9)]],
    BeforeValidator(
        lambda v, info: plain_dict(v) if _is_strict(info) else parse_weights(v)
    ),
]
Parameters = Annotated[
    dict[str, Annotated[dict[str, Any], BeforeValidator(plain_dict)]],
    BeforeValidator(
        lambda v, info: plain_dict(v) if _is_strict(info) else parse_parameters(v)
    ),
]


class TaskOptions(Section):
    """Which problems training draws, and how hard they are.

    A strict model takes values alone, another one also their texts on a command line.
    """

    exclude_tasks: Names = option(
        [],
        "Tasks and categories to exclude, even if included.",
        heading="Tasks and difficulty",
    )
    task_weights: Weights = option(
        {},
        "Sampling weights of tasks or categories, such as gcd=2,games=0.5; others have 1.",
    )
    task_parameters: Parameters = option(
        {},
        'Dataset parameters by task in training, such as {"gcd":{"max_value":9}}; they override '
        "the level's.",
    )
    complexity_mode: ComplexityMode | None = option(
        None,
        "Difficulty of training problems: unset (the library's default), random (all levels "
        "equally), curriculum (each task at the target accuracy) or fixed (difficulty).",
    )
    difficulty: float | None = option(
        None,
        "Difficulty with complexity_mode fixed: 0 is every task's easiest level, 1 its hardest.",
        ge=0,
        le=1,
    )
    curriculum_target_accuracy: float = option(
        0.7,
        "Share of solved rollouts that the curriculum aims at.",
        gt=0,
        lt=1,
    )
    sampling: TaskSampling = option(
        "uniform",
        "How tasks are drawn: by weight (uniform), or also by the chance that a group has solved "
        "and unsolved rollouts; such problems are asked again (signal).",
    )

    def task_options(self) -> dict[str, Any]:
        """Return these options alone, as JSON."""
        return self.model_dump(mode="json", include=set(TaskOptions.model_fields))


class StreamOptions(TaskOptions):
    """The options of a stream, in Python and over HTTP."""

    model_config = ConfigDict(strict=True)
    unknown_name_hint: ClassVar[str] = "see StreamOptions"

    tasks: Texts = option([], "Tasks and categories to use; empty means all.")
    seed: Integer = option(0, "Seed of the stream.", ge=0, lt=2**53)
    replica: str = option(
        "",
        "Streams of one seed and different replicas have different problems.",
        max_length=100,
    )
    reserved: Texts = option(
        [], "Questions to leave out; answers, of tasks that disguise them."
    )
    group_size: Integer | None = option(
        None,
        "Scored completions of each problem; without it, single scores teach nothing.",
        ge=1,
    )

    @property
    def learns(self) -> bool:
        """Whether results change what is drawn."""
        return self.complexity_mode == "curriculum" or self.sampling == "signal"

    @property
    def note(self) -> str:
        """What whoever opens the stream should know; usually empty."""
        if not self.learns or self.group_size is not None:
            return ""
        return (
            "group_size is not set, so that scores teach this stream nothing: set it to the "
            "completions of each problem, or report whole groups with observe"
        )


class StreamKeywords(TypedDict, total=False):
    """The types of `StreamOptions` but for `tasks`, for editors and type checkers."""

    exclude_tasks: Iterable[str]
    task_weights: Mapping[str, float]
    task_parameters: Mapping[str, Mapping[str, Any]]
    complexity_mode: ComplexityMode | None
    difficulty: float | None
    curriculum_target_accuracy: float
    sampling: TaskSampling
    seed: int
    replica: str
    reserved: Iterable[str]
    group_size: int | None
