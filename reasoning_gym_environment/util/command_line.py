"""Command lines and YAML files of settings, checked by pydantic models.

Every mistake is a ConfigurationError of one sentence.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo

from ..errors import ConfigurationError, Mistakes, did_you_mean
from .values import WITHHELD, shorten

logger = logging.getLogger(__name__)

ENV = "env"
SERVER = "openai"
"""The sections of the command line and the file."""

KEY_VARIABLE = "OPENAI_API_KEY"
"""Environment variable with the API key of a chat endpoint, unless another is named."""

_PLAIN_TYPES = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
}
_CONTAINERS: Mapping[Any, str] = {
    **dict.fromkeys((list, Iterable, Sequence), "a list"),
    **dict.fromkeys((dict, Mapping), "a mapping"),
}
_KIND_OF_ERROR = {
    "dict_type": "a mapping",
    "list_type": "a list",
    "model_type": "a mapping",
    "string_type": "text",
}
"""What a value inside another one must be, by pydantic's type of the error."""


@dataclass(frozen=True, slots=True)
class RetiredOption:
    """An option that existed, and that help and pages no longer show.

    Attributes:
        instead: what to do instead, as in "set system_prompt".
        ignored: whether a file or a command may still set it, to no effect.
    """

    instead: str
    ignored: bool = field(kw_only=True)


class Section(BaseModel):
    """Settings that belong together; a hint follows a name that none of them is close to."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)
    unknown_name_hint: ClassVar[str] = "see --help-all"
    retired_options: ClassVar[Mapping[str, RetiredOption]] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a setting; raise ConfigurationError if its name or its value is invalid."""
        if name not in type(self).model_fields and not name.startswith("_"):
            self.require_known([name])
        try:
            super().__setattr__(name, value)
        except ValidationError as error:
            message = describe_validation(error, type(self).model_fields)
            raise ConfigurationError(message) from None

    @model_validator(mode="before")
    @classmethod
    def _known_names(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        # Atropos's own class still has some of them.
        retired = cls.retired_options.keys() - cls.model_fields.keys()
        ignored = {n for n in retired & data.keys() if cls.retired_options[n].ignored}
        for name in sorted(ignored):
            instead = cls.retired_options[name].instead
            logger.warning("%s has no effect: %s", name, instead)
        if ignored:
            data = {name: value for name, value in data.items() if name not in ignored}
        cls.require_known(data)
        return data

    @classmethod
    def require_known(cls, names: Iterable[Any], *, prefix: str = "") -> None:
        """Raise ConfigurationError for names that are unknown or retired."""
        mistakes = Mistakes()
        for name in names:
            with mistakes.collected():
                cls._require_known(name, prefix)
        mistakes.require_none()

    @classmethod
    def _require_known(cls, name: Any, prefix: str) -> None:
        if name in cls.model_fields:
            return
        retired = cls.retired_options.get(name)
        if retired:
            raise ConfigurationError(
                f"{prefix}{name} is no longer a setting: {retired.instead}"
            )
        hint = did_you_mean(
            str(name), cls.model_fields, otherwise=cls.unknown_name_hint
        )
        raise ConfigurationError(f"{prefix}unknown setting {name!r}; {hint}")


Sections = Mapping[str, type[Section]]
"""Model by section; that of the options outside a section has the name ""."""

Model = TypeVar("Model", bound=BaseModel)


class Parser(argparse.ArgumentParser):
    """The parser of a command: a mistake is a ConfigurationError, names are not abbreviated."""

    def __init__(
        self, command: str = "", description: str = "", **settings: Any
    ) -> None:
        width = shutil.get_terminal_size((100, 24)).columns
        filled = "\n".join(
            textwrap.fill(line, width) for line in description.splitlines()
        )
        parser_settings = {
            "prog": f"reasoning-gym-environment {command}",
            "formatter_class": _Help,
            **settings,
        }
        super().__init__(
            description=filled,
            allow_abbrev=False,
            exit_on_error=False,
            **parser_settings,
        )

    def option(self, names: str, about: str, **settings: Any) -> None:
        """Add an argument, named as in `-o/--output`; the help shows its default."""
        default = settings.get("default")
        default_note = (
            "" if default in (None, "", [], argparse.SUPPRESS) else f" [{default}]"
        )
        self.add_argument(*names.split("/"), help=f"{about}{default_note}", **settings)

    def flag(self, name: str, about: str) -> None:
        """Add an option without a value."""
        self.add_argument(name, action="store_true", help=about)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Return the options; print the help and exit where `--help` is among them."""
        try:
            options, unparsed = self.parse_known_args(arguments)
        except argparse.ArgumentError as error:
            self.error(f"{error.argument_name or ''} {error.message}".lstrip())
        if unparsed and re.match("--?[A-Za-z_]", unparsed[0]):
            raise ConfigurationError(_unknown(unparsed[0], self._shown_options()))
        if unparsed:
            arguments_before = arguments[: arguments.index(unparsed[0])]
            previous_options = [
                option for option in arguments_before if option.startswith("--")
            ]
            previous = (
                previous_options[-1].partition("=")[0] if previous_options else ""
            )
            may_be_key = "api_key" in f"{previous[-7:]} {unparsed[0]}"
            argument = "argument" if may_be_key else repr(unparsed[0])
            where = f" after the value of {previous}" if previous else ""
            raise ConfigurationError(
                f"unexpected {argument}{where}; options start with --, see --help"
            )
        return options

    def _shown_options(self) -> list[str]:
        actions = self._option_string_actions
        return [name for name in actions if actions[name].help != argparse.SUPPRESS]

    def error(self, message: str) -> NoReturn:
        """Raise ConfigurationError; argparse's own messages become sentences."""
        for pattern, sentence in (
            (r"(\S+) expected (\d+) arguments", r"\1 needs \2 values"),
            (r"(\S+) expected .*", r"\1 needs a value"),
            (r"(\S+) ignored explicit .*", r"\1 takes no value"),
            (r"the following arguments are required: (.*)", r"missing \1; see --help"),
        ):
            message = re.sub(pattern, sentence, message)
        choice = re.fullmatch(
            r"(\S+) invalid choice: (.*) \(choose from (.*)\)", message
        )
        if choice:
            choices = choice[3].replace("'", "")
            message = f"{choice[1]} must be one of {choices}, got {choice[2]}"
        raise ConfigurationError(message)


class Each(argparse.Action):
    """Keeps an option's last value, and all of them for `each_value`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        each = [*each_value(namespace, self.dest), values]
        setattr(namespace, self.dest, values)
        setattr(namespace, f"each {self.dest}", each)


def each_value(options: argparse.Namespace, name: str) -> list[Any]:
    """Return the values of an option that may be repeated, in their order."""
    values: list[Any] = getattr(options, f"each {name}", [])
    return values


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help in at most 118 columns; its usage names what is needed, not each option."""

    def __init__(self, prog: str) -> None:
        columns = shutil.get_terminal_size((120, 24)).columns - 2
        super().__init__(
            prog, max_help_position=min(37, columns // 3), width=min(118, columns)
        )

    def add_usage(
        self,
        usage: Any,
        actions: Any,
        groups: Any,
        prefix: str | None = None,
    ) -> None:
        needed_actions = [
            action for action in actions if action.required or not action.option_strings
        ]
        all_options = argparse.Action(["options"], "options", nargs=0)
        super().add_usage(usage, [all_options, *needed_actions], (), prefix)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        names = ", ".join(action.option_strings)  # alone, where the metavar is empty
        return (
            names if action.metavar == "" else super()._format_action_invocation(action)
        )


def _unknown(argument: str, known_options: Iterable[str]) -> str:
    name = argument.partition("=")[0]
    section, _, last = name.lstrip("-").rpartition(".")
    full_names: dict[str, list[str]] = {}  # by name without the section
    for full in known_options:
        full_names.setdefault(full.lstrip("-").rpartition(".")[2], []).append(full)
    if last in full_names:
        close = [last]
    else:
        of_section = [
            short for short in full_names if f"--{section}.{short}" in full_names[short]
        ]
        close = get_close_matches(last, of_section or full_names)
    meant = ", ".join(full for short in close for full in full_names[short])
    if meant:
        return f"unknown option {name}; did you mean {meant}?"
    help_option = "--help-all" if "--help-all" in known_options else "--help"
    return f"unknown option {name}; see {help_option}"


def number(kind: type[int] | type[float], **bounds: float) -> Callable[[str], Any]:
    """Return the type of an option that is a number: `ge`, `gt`, `le` and `lt` bound it.

    Example:
        >>> number(int, ge=1)("0")
        Traceback (most recent call last):
        argparse.ArgumentTypeError: must be an integer ≥ 1, got '0'
    """
    model = create_model("Number", value=(kind, Field(**bounds)))  # type: ignore[call-overload]  # names vary

    def read(text: str) -> Any:
        try:
            return model(value=text).model_dump()["value"]
        except ValidationError as error:
            problem = describe_validation(error, model.model_fields)
            problem = problem.removeprefix("value ")
            raise argparse.ArgumentTypeError(problem) from None

    return read


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """What a user has set, not yet validated; at most one server where options name any.

    Attributes:
        env_options: the names in `env` that options set, and not a file.
    """

    env: Mapping[str, Any] = field(default_factory=dict)
    env_options: frozenset[str] = frozenset()
    servers: Sequence[Mapping[str, Any]] = ()
    flags: Mapping[str, Any] = field(default_factory=dict)

    @property
    def keys(self) -> list[Any]:
        """The API keys, which must not be printed: given or in environment variables."""
        servers = self.servers or [{}]
        variables = {
            str(server.get("api_key_var") or KEY_VARIABLE) for server in servers
        }
        keys = [
            *(server.get("api_key") for server in servers),
            *map(os.environ.get, variables),
        ]
        return [str(key).strip() for key in keys if key]


def build(
    model: type[Model], settings: Mapping[str, Any], *, prefix: str = ""
) -> Model:
    """Build a model; raise ConfigurationError with a sentence for each bad value."""
    try:
        return model(**settings)
    except ValidationError as error:
        raise ConfigurationError(
            describe_validation(error, model.model_fields, prefix=prefix)
        ) from None


def describe_validation(
    error: ValidationError, fields: Mapping[str, FieldInfo], *, prefix: str = ""
) -> str:
    """Say what each bad value must be, without API keys.

    Args:
        fields: of the model or the call, by name; a call's are in the order of its parameters.
        prefix: goes before the names.
    """
    sentences = []
    for problem in error.errors(include_url=False):
        name, *inside = problem["loc"] or ("",)
        if isinstance(name, int):  # the position of an argument
            name = list(fields)[name]
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "missing":
            message = "is missing"
        elif name and problem["type"] != "value_error":
            if problem["type"] == "is_instance_of":
                wanted = f"a {problem['ctx']['class']}"
            elif inside:
                expected = message.removeprefix("Input should be ")
                wanted = _KIND_OF_ERROR.get(problem["type"], expected)
            else:
                wanted = requirement(fields[name])
            value = WITHHELD if name == "api_key" else shorten(problem["input"])
            message = f"must be {wanted}, got {value}"
        path = ".".join(map(str, (name, *inside)))
        sentences.append(f"{prefix}{path} {message}" if path else message)
    return "; ".join(sentences)


def requirement(setting: FieldInfo) -> str:
    """Return what a setting's value must be, such as `an integer ≥ 1`."""
    choices = choices_of(setting)
    if choices:
        return f"one of {', '.join(choices)}"
    members = _union_members(setting.annotation)
    containers = [_CONTAINERS.get(get_origin(member)) for member in members]
    types = types_of(setting.annotation)
    plain = [noun for kind, noun in _PLAIN_TYPES.items() if kind in types]
    noun = next(filter(None, [*containers, *plain]), "of another form")
    bounds = limits(setting)
    return " ".join(filter(None, (noun, "from" if " to " in bounds else "", bounds)))


def _union_members(annotation: Any) -> list[Any]:
    """Return the types of a union, without their limits; a type that is none is the only one."""
    is_union = get_origin(annotation) in (Union, UnionType)
    members = get_args(annotation) if is_union else [annotation]
    return [
        get_args(member)[0] if get_origin(member) is Annotated else member
        for member in members
    ]


def limits(setting: FieldInfo) -> str:
    """Return a setting's choices or bounds for people; empty if it has none."""
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds: dict[str, Any] = {}
    for constraint in setting.metadata:
        for name in signs:
            if hasattr(constraint, name):
                bounds[name] = getattr(constraint, name)
    if bounds.keys() == {"ge", "le"}:
        return f"{bounds['ge']} to {bounds['le']}"
    choices = ", ".join(choices_of(setting))
    return choices or " and ".join(
        f"{signs[name]} {bound}" for name, bound in bounds.items()
    )


def choices_of(setting: FieldInfo) -> list[str]:
    """Return a setting's choices; empty if it takes other values."""
    kinds = types_of(setting.annotation)
    choices: list[str] = []
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, Enum):
            choices += [member.value for member in kind]
    return choices + [kind for kind in kinds if isinstance(kind, str)]


def types_of(annotation: Any) -> list[Any]:
    """Return the types in a union and the values of a Literal."""
    inner = [kind for member in get_args(annotation) for kind in types_of(member)]
    return [kind for kind in inner or [annotation] if kind is not NoneType]
