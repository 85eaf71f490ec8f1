"""Options of the form `--section.name value` on top of a YAML file, checked by pydantic models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from ..errors import ConfigurationError, did_you_mean
from .logs import WITHHELD
from .text import shorten

ENV, SERVER, FLAGS = "env", "openai", ""
"""The sections; flags are options without one."""

_FILE = "config"
_SECRET = "api_key"
KEY_VARIABLE = "OPENAI_API_KEY"
"""Environment variable with the API key of a chat endpoint, unless another is named."""
_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
_NOUNS = {bool: "true or false", int: "an integer", float: "a number", str: "text"} | {
    list: "a list",
    dict: "a mapping",
}


class Section(BaseModel):
    """Settings that belong together.

    Attributes:
        renamed: new by old name; both are accepted.
        otherwise: the hint for an unknown name if none is close.
    """

    model_config = ConfigDict(extra="forbid")
    renamed: ClassVar[Mapping[str, str]] = {}
    otherwise: ClassVar[str] = "see --help-all"

    @classmethod
    def has(cls, name: Any) -> bool:
        """Return whether there is a setting of that name, current or old."""
        return name in cls.model_fields or name in cls.renamed

    @model_validator(mode="before")
    @classmethod
    def _known_names(cls, data: Any) -> Any:
        return cls.with_new_names(data) if isinstance(data, dict) else data

    @classmethod
    def with_new_names(cls, data: Mapping[Any, Any], *, prefix: str = "") -> dict[str, Any]:
        """Replace old names; raise ConfigurationError for a name that is unknown or set twice."""
        found: dict[str, Any] = {}
        for name, value in data.items():
            new = cls.renamed.get(name, name)
            if new not in cls.model_fields:
                hint = did_you_mean(str(name), cls.model_fields, otherwise=cls.otherwise)
                raise ConfigurationError(f"{prefix}unknown setting {name!r}; {hint}")
            if new in found:
                raise ConfigurationError(f"{prefix}{new} is set twice, once by its old name")
            found[new] = value
        return found


def option(default: Any, about: str, **limits: Any) -> Any:
    """Declare an option."""
    return Field(default=default, description=about, **limits)


Sections = Mapping[str, type[Section]]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """What a user has set, not yet validated.

    Attributes:
        servers: the settings of each inference server; at most one where options name any.
    """

    env: Mapping[str, Any] = field(default_factory=dict)
    servers: Sequence[Mapping[str, Any]] = ()
    flags: Mapping[str, Any] = field(default_factory=dict)

    @property
    def keys(self) -> list[Any]:
        """The API keys, which must not be printed: given or in environment variables."""
        servers = self.servers or [{}]
        variables = {str(server.get(f"{_SECRET}_var") or KEY_VARIABLE) for server in servers}
        keys = [*(server.get(_SECRET) for server in servers), *map(os.environ.get, variables)]
        return [str(key).strip() for key in keys if key]


def read_given(arguments: Sequence[str], sections: Sections) -> Given:
    """Read the options and the file that they name; an option overrides the file.

    Raises:
        ConfigurationError: an option, a section or a setting is unknown, or has no value.
    """
    options = read_options(arguments, _may_stand_alone(sections))
    file = options.pop(_FILE, None)
    content = read_file(Path(str(file)), sections) if file else Given()
    env, server, flags = (
        model.with_new_names(_of_section(options, section)) for section, model in sections.items()
    )
    if server and len(content.servers) > 1:
        raise ConfigurationError(
            f"--{SERVER}.{next(iter(server))} sets one server, but {file} has "
            f"{len(content.servers)}: set it in the file"
        )
    below = content.servers[0] if content.servers else {}
    return Given(
        env={**content.env, **env},
        servers=[{**below, **server}] if server else content.servers,
        flags={**content.flags, **flags},
    )


def _may_stand_alone(sections: Sections) -> dict[str, bool]:
    """Return, for each option, whether it can stand without a value."""
    known = {_FILE: False}
    for section, model in sections.items():
        alone = {
            name: bool in _types(field.annotation) for name, field in model.model_fields.items()
        }
        alone |= {old: alone[new] for old, new in model.renamed.items()}
        known |= {f"{section}.{name}".lstrip("."): value for name, value in alone.items()}
    return known


def _of_section(options: Mapping[str, Any], section: str) -> dict[str, Any]:
    split = {name: name.rpartition(".") for name in options}
    return {last: options[name] for name, (first, _, last) in split.items() if first == section}


def read_options(arguments: Sequence[str], known: Mapping[str, bool]) -> dict[str, Any]:
    """Read `--name value`, `--name=value` and `--name`; the value `None` unsets an option.

    Args:
        known: whether the option can stand without a value, by name.

    Example:
        >>> read_options(["--seed", "-3", "--debug"], {"seed": False, "debug": True})
        {'seed': '-3', 'debug': True}
    """
    given: dict[str, Any] = {}
    open_name = ""
    for argument in arguments:
        name, equals, value = argument[2:].partition("=")
        if not argument.startswith("--"):
            if not open_name:
                raise ConfigurationError(_stray(argument, given))
            given[open_name] = None if argument == "None" else argument
            open_name = ""
            continue
        _require_value(open_name, known)
        if name not in known:
            raise ConfigurationError(_unknown(name, known))
        given[name] = (None if value == "None" else value) if equals else True
        open_name = "" if equals else name
    _require_value(open_name, known)
    if not given.get(_FILE, _FILE):
        raise ConfigurationError(f"--{_FILE} needs the name of a file")
    return given


def _stray(argument: str, given: Mapping[str, Any]) -> str:
    last = list(given)[-1] if given else ""
    secret = last.endswith(_SECRET) or _SECRET in argument
    shown = "argument" if secret else repr(argument)
    after = f" after the value of --{last}" if last else ""
    return f"unexpected {shown}{after}; options start with --, see --help"


def _require_value(name: str, known: Mapping[str, bool]) -> None:
    if name and not known[name]:
        raise ConfigurationError(f"--{name} needs a value")


def _unknown(name: str, known: Mapping[str, bool]) -> str:
    section, _, last = name.rpartition(".")
    options: dict[str, list[str]] = {}  # by name without the section
    for option in known:
        options.setdefault(option.rpartition(".")[2], []).append(f"--{option}")
    own = [other for other, full in options.items() if f"--{section}.{other}" in full]
    close = [last] if last in options else get_close_matches(last, own or options)
    full = [option for other in close for option in options[other]]
    hint = f"did you mean {', '.join(full)}?" if full else "see --help-all"
    return f"unknown option --{name}; {hint}"


def read_file(path: Path, sections: Sections) -> Given:
    """Read a YAML file of settings.

    Raises:
        ConfigurationError: it can't be read, or a section or a setting is unknown.
    """
    content = _mapping(_load(path), path, "the file")
    for name in content:
        _require_section(name, path, sections)
    env = _mapping(content.get(ENV) or {}, path, ENV)
    _require_own(env, ENV, path, sections)
    servers = content.get(SERVER) or []
    servers = [servers] if isinstance(servers, dict) else servers
    if not isinstance(servers, list):
        raise ConfigurationError(f"{path}: {SERVER} must be a server's settings or a list of them")
    checked = [_mapping(server, path, f"a server below {SERVER}") for server in servers]
    for server in checked:
        _require_own(server, SERVER, path, sections)
    return Given(
        env=sections[ENV].with_new_names(env, prefix=f"{path}: "),
        servers=[sections[SERVER].with_new_names(one, prefix=f"{path}: ") for one in checked],
        flags={name: content[name] for name in sections[FLAGS].model_fields if name in content},
    )


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses a key that is set twice; the last one would win silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise ConfigurationError(
                    f"{key.value} is set twice, the second time in line {key.start_mark.line + 1}"
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _load(path: Path) -> Any:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except ConfigurationError as error:
        raise ConfigurationError(f"--config {path}: {error}") from None
    except OSError as error:
        raise ConfigurationError(f"--config {path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--config {path} can't be read: it is not UTF-8") from error
    except yaml.YAMLError as error:  # its own words show the line, which may hold an API key
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        raise ConfigurationError(f"--config {path} is not valid YAML{line}") from None


def _mapping(content: Any, path: Path, what: str) -> dict[str, Any]:
    if isinstance(content, dict):
        return content
    found = "nothing" if content is None else type(content).__name__
    raise ConfigurationError(
        f"{path}: {what} must be settings as `name: value`, below `{ENV}:` or `{SERVER}:`, "
        f"got {found}"
    )


def _require_section(name: Any, path: Path, sections: Sections) -> None:
    known = (ENV, SERVER, *sections[FLAGS].model_fields)
    if name in known:
        return
    hint = did_you_mean(str(name), known, otherwise=f"the sections are {', '.join(known)}")
    if section := _section_of(name, sections):
        hint = f"it belongs below `{section}:`"
    raise ConfigurationError(f"{path}: unknown section {name!r}; {hint}")


def _require_own(settings: Mapping[str, Any], section: str, path: Path, sections: Sections) -> None:
    """Raise ConfigurationError for a setting that belongs to the other section."""
    for name in settings:
        if not sections[section].has(name) and (other := _section_of(name, sections)):
            raise ConfigurationError(
                f"{path}: unknown setting {name!r} below `{section}:`; it belongs below `{other}:`"
            )


def _section_of(name: Any, sections: Sections) -> str | None:
    return next((section for section in (ENV, SERVER) if sections[section].has(name)), None)


def build(model: type[Model], settings: Mapping[str, Any], *, prefix: str = "") -> Model:
    """Build a model; raise ConfigurationError with a sentence for each bad value."""
    try:
        return model(**settings)
    except ValidationError as error:
        raise ConfigurationError(describe_validation(error, model, prefix=prefix)) from None


def describe_validation(error: ValidationError, model: type[BaseModel], *, prefix: str = "") -> str:
    """Say what each bad value must be, without API keys.

    Args:
        prefix: goes before the settings' names.
    """
    sentences = []
    for problem in error.errors(include_url=False):
        name = str(next(iter(problem["loc"]), ""))
        message = problem["msg"].removeprefix("Value error, ")
        if name and problem["type"] != "value_error":
            inner = len(problem["loc"]) > 1
            wanted = message.removeprefix("Input should be ") if inner else ""
            value = WITHHELD if name == _SECRET else shorten(problem["input"])
            message = f"must be {wanted or requirement(model.model_fields[name])}, got {value}"
        path = ".".join(map(str, problem["loc"]))
        sentences.append(f"{prefix}{path} {message}" if path else message)
    return "; ".join(sentences)


def requirement(setting: FieldInfo) -> str:
    """Return what a setting's value must be, such as `an integer ≥ 1`."""
    types = _types(setting.annotation)
    if choices := choices_of(setting):
        return f"one of {', '.join(choices)}"
    container = get_origin(setting.annotation)
    kinds = [container] if container in _NOUNS else types
    noun = next((noun for kind, noun in _NOUNS.items() if kind in kinds), "of another form")
    bounds = limits(setting)
    return " ".join(filter(None, (noun, "from" if " to " in bounds else "", bounds)))


def limits(setting: FieldInfo) -> str:
    """Return a setting's choices or bounds for people; empty if it has none."""
    bounds = {
        name: getattr(one, name)
        for one in setting.metadata
        for name in _SIGNS
        if hasattr(one, name)
    }
    if bounds.keys() == {"ge", "le"}:
        return f"{bounds['ge']:g} to {bounds['le']:g}"
    choices = ", ".join(choices_of(setting))
    return choices or " and ".join(f"{_SIGNS[name]} {bound}" for name, bound in bounds.items())


def choices_of(setting: FieldInfo) -> list[str]:
    """Return a setting's choices; empty if it takes other values."""
    kinds = _types(setting.annotation)
    choices = [one.value for kind in kinds if _is_enum(kind) for one in kind]
    return choices + [kind for kind in kinds if isinstance(kind, str)]


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _types(annotation: Any) -> list[Any]:
    """Return the types in a union and the values of a Literal."""
    inner = [kind for one in get_args(annotation) for kind in _types(one)]
    return [kind for kind in inner or [annotation] if kind is not NoneType]
