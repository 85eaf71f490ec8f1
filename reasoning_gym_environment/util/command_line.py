"""A command's settings: options, and a file below them. All mistakes in form are found here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError, did_you_mean

ENV, SERVER = "env", "openai"
FLAGS = ("slurm", "testing")
"""Settings that belong to no section; of the command line and of the file."""

_FILE = "config"


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """What a user has set.

    Attributes:
        env: the environment's settings.
        servers: those of each inference server; one at the most where options name any.
        flags: those without a section.
        file: where settings were read from.
    """

    env: Mapping[str, Any] = field(default_factory=dict)
    servers: Sequence[Mapping[str, Any]] = ()
    flags: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None

    @property
    def keys(self) -> list[Any]:
        """The API keys, which are nobody else's business."""
        return [server["api_key"] for server in self.servers if server.get("api_key")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """The settings that exist.

    Attributes:
        env, server: whether an option may stand without a value, by name.
    """

    env: Mapping[str, bool]
    server: Mapping[str, bool]

    def options(self) -> dict[str, bool]:
        """List every option by its name on the command line."""
        return {
            **{f"{ENV}.{name}": alone for name, alone in self.env.items()},
            **{f"{SERVER}.{name}": alone for name, alone in self.server.items()},
            **dict.fromkeys(FLAGS, True),
            _FILE: False,
        }


def read_given(arguments: Sequence[str], known: Known) -> Given:
    """Read the options and the file that they name; an option wins over the file.

    Raises:
        ConfigurationError: an option, a section or a setting doesn't exist, or has no value.
    """
    options = read_options(arguments, known.options())
    if _FILE in options and not options[_FILE]:
        raise ConfigurationError(f"--{_FILE} names no file")
    file = Path(str(options[_FILE])) if _FILE in options else None
    content = read_file(file, known) if file else Given()
    server = _section(options, SERVER)
    if server and len(content.servers) > 1:
        raise ConfigurationError(
            f"--{SERVER}.{next(iter(server))} is for one server and {file} has "
            f"{len(content.servers)}: set it in the file"
        )
    below = content.servers[0] if content.servers else {}
    return Given(
        env={**content.env, **_section(options, ENV)},
        servers=[{**below, **server}] if server else content.servers,
        flags={**content.flags, **{name: options[name] for name in FLAGS if name in options}},
        file=file,
    )


def read_options(arguments: Sequence[str], known: Mapping[str, bool]) -> dict[str, Any]:
    """Read `--name value`, `--name=value` and `--name`; `None` is nothing.

    Args:
        known: by name, whether the option may stand without a value.

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
            given[open_name] = _value(argument)
            open_name = ""
            continue
        _require_value(open_name, known)
        _require_known(name, known)
        given[name] = _value(value) if equals else True
        open_name = "" if equals else name
    _require_value(open_name, known)
    return given


def _value(text: str) -> str | None:
    return None if text == "None" else text


def _stray(argument: str, given: Mapping[str, Any]) -> str:
    last = list(given)[-1] if given else ""
    secret = last.endswith("api_key") or "api_key" in argument
    shown = "what stands" if secret and last else "an argument" if secret else repr(argument)
    after = f" after --{last} and its value" if last else ""
    return f"{shown}{after} is no option; options begin with --, see --help"


def _require_value(name: str, known: Mapping[str, bool]) -> None:
    if name and not known[name]:
        raise ConfigurationError(f"--{name} needs a value")


def _require_known(name: str, known: Collection[str]) -> None:
    if name in known:
        return
    section, dot, rest = name.rpartition(".")
    names = [other.rpartition(".")[2] for other in known if other.startswith(f"{section}{dot}")]
    hint = did_you_mean(rest, names, otherwise="see --help-all")
    raise ConfigurationError(f"there is no setting --{name}; {hint}")


def _section(options: Mapping[str, Any], section: str) -> dict[str, Any]:
    start = f"{section}."
    return {n.removeprefix(start): value for n, value in options.items() if n.startswith(start)}


def read_file(path: Path, known: Known) -> Given:
    """Read a YAML file of settings.

    Raises:
        ConfigurationError: it can't be read, or a section or a setting doesn't exist.
    """
    sections = _mapping(_load(path), path, "it")
    for name in sections:
        _require_section(name, path, known)
    env = _mapping(sections.get(ENV) or {}, path, ENV)
    servers = sections.get(SERVER) or []
    servers = [servers] if isinstance(servers, dict) else servers
    if not isinstance(servers, list):
        raise ConfigurationError(f"{path}: {SERVER} must be a server's settings or a list of them")
    checked = [_mapping(server, path, f"a server of {SERVER}") for server in servers]
    for part, names in ((env, known.env), *((server, known.server) for server in checked)):
        for name in part:
            if name not in names:
                hint = did_you_mean(str(name), names, otherwise="see --help-all")
                raise ConfigurationError(f"{path}: there is no setting {name!r}; {hint}")
    flags = {name: sections[name] for name in FLAGS if name in sections}
    return Given(env=env, servers=checked, flags=flags, file=path)


def _load(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"--config {path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"--config {path} can't be read: it is no UTF-8") from error
    except yaml.YAMLError as error:  # its own words show the line, which may hold an API key
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark else ""
        raise ConfigurationError(f"--config {path} is no YAML{line}; mend it") from None


def _mapping(content: Any, path: Path, what: str) -> dict[str, Any]:
    if isinstance(content, dict):
        return content
    found = "is empty" if content is None else f"is a {type(content).__name__}"
    raise ConfigurationError(
        f"{path}: {what} {found}; settings are written `name: value`, below `{ENV}:` or `{SERVER}:`"
    )


def _require_section(name: Any, path: Path, known: Known) -> None:
    sections = (ENV, SERVER, *FLAGS)
    if name in sections:
        return
    hint = did_you_mean(str(name), sections, otherwise=f"there are {', '.join(sections)}")
    for section, names in ((ENV, known.env), (SERVER, known.server)):
        if name in names:
            hint = f"it belongs below `{section}:`"
    raise ConfigurationError(f"{path}: there is no section {name!r}; {hint}")
