"""Settings as given: by options, on top of a file of YAML. Their values are checked later.

Every mistake is a ConfigurationError of one sentence; those of a file are told at once.
"""

from __future__ import annotations

import argparse
import itertools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from ..errors import ConfigurationError, Mistakes, did_you_mean
from .command_line import (
    ENV,
    SERVER,
    Given,
    Section,
    Sections,
    describe_validation,
    each_value,
)
from .files import read_regular
from .modules import named_in_file

logger = logging.getLogger(__name__)


def read_given(options: argparse.Namespace, sections: Sections) -> Given:
    """Return what is set by options, named `section.name`, on top of the file in `config`."""
    values = vars(options)
    file = options.config
    content = read_file(file, sections) if file else Given()
    env, server, flags = (
        _options_of(section, model, values) for section, model in sections.items()
    )
    if len(content.servers) > 1:
        _require_one_model(options, content.servers, file)
        _check_options_of_all(server, content.servers, file)
    return Given(
        env={**content.env, **env},
        env_options=frozenset(env),
        servers=[{**below, **server} for below in content.servers or [{}]]
        if server
        else content.servers,
        flags={**content.flags, **flags},
    )


def _require_one_model(
    options: argparse.Namespace, servers: Sequence[Mapping[str, Any]], file: Path
) -> None:
    """Raise ConfigurationError for several models at servers that have a model each."""
    models = each_value(options, f"{SERVER}.model_name")
    of_servers = {str(server.get("model_name")) for server in servers}
    if len(models) > 1 and len(of_servers) > 1:
        raise ConfigurationError(
            f"--model is given {len(models)} times, which asks all servers for each model, but "
            f"those of {file} have models of their own ({', '.join(sorted(of_servers))}): give "
            "each model a file of its own, and evaluate them by two commands"
        )


def _check_options_of_all(
    options: Mapping[str, Any], servers: Sequence[Mapping[str, Any]], file: Path
) -> None:
    """Warn of options that replace different values of a file's servers.

    Raises ConfigurationError for an address, which can't be that of several servers.
    """
    if "base_url" in options:
        raise ConfigurationError(
            f"--{SERVER}.base_url sets one server, but {file} has {len(servers)}: set it in the "
            "file"
        )
    for name in options:
        if any(server.get(name) != servers[0].get(name) for server in servers):
            logger.warning(
                "--%s.%s applies to all %d servers of %s, which have different values: to set one "
                "server's own, write it in the file and leave out the option",
                SERVER,
                name,
                len(servers),
                file,
            )


def _options_of(
    section: str, model: type[Section], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the given options of a section, without those that are ignored."""
    prefix = f"{section}." if section else ""
    given = {
        name: values[f"{prefix}{name}"]
        for name in (*model.model_fields, *model.retired_options)
        if f"{prefix}{name}" in values
    }
    [given] = _without_ignored([given], model, prefix=f"--{prefix}")
    model.require_known(given, prefix=f"--{prefix}")
    return given


def _without_ignored(
    settings_list: Sequence[Mapping[str, Any]], model: type[Section], *, prefix: str
) -> list[dict[str, Any]]:
    """Return settings without the ignored options, and log each of those once."""
    ignored = {
        name: retired
        for name, retired in model.retired_options.items()
        if retired.ignored
    }
    for name, retired in ignored.items():
        if any(name in settings for settings in settings_list):
            logger.warning("%s%s has no effect: %s", prefix, name, retired.instead)
    return [
        {name: value for name, value in settings.items() if name not in ignored}
        for settings in settings_list
    ]


def read_file(path: Path, sections: Sections) -> Given:
    """Read a YAML file of settings; ConfigurationError for all its unknown sections and settings.

    Beside those it names the values that are invalid by themselves.
    """
    content = _mapping(_load(path), path, "the file")
    servers = content.get(SERVER, {})
    if servers == []:
        raise ConfigurationError(
            f"{path}: {SERVER} is empty: give the settings of a server, or leave it out"
        )
    servers = [servers] if isinstance(servers, dict) and servers else servers or []
    if not isinstance(servers, list):
        raise ConfigurationError(
            f"{path}: {SERVER} must be a server's settings or a list of them"
        )
    settings_by_section = {
        ENV: [_mapping(content.get(ENV) or {}, path, ENV)],
        SERVER: [
            _mapping(server, path, f"a server below {SERVER}") for server in servers
        ],
    }
    for section, settings_list in settings_by_section.items():
        settings_by_section[section] = _without_ignored(
            settings_list, sections[section], prefix=f"{path}: "
        )
    _require_known(content, settings_by_section, sections, path)
    [env] = settings_by_section[ENV]
    for name in env:
        extra: Any = sections[ENV].model_fields[name].json_schema_extra or {}
        if extra.get("paths") and isinstance(paths := env[name], str | list):
            entries = paths.split(",") if isinstance(paths, str) else paths
            env[name] = [named_in_file(path, entry) for entry in entries]
    return Given(
        env=env,
        servers=settings_by_section[SERVER],
        flags={
            name: content[name] for name in sections[""].model_fields if name in content
        },
    )


def _require_known(
    content: Mapping[str, Any],
    settings_by_section: Mapping[str, Sequence[Mapping[str, Any]]],
    sections: Sections,
    path: Path,
) -> None:
    """Raise ConfigurationError for all sections and settings of a file that are unknown."""
    mistakes = Mistakes()
    for name in content:
        with mistakes.collected():
            _require_section(name, sections, path)
    for section, settings_list in settings_by_section.items():
        for name in itertools.chain.from_iterable(settings_list):
            with mistakes.collected():
                _require_in_section(name, section, sections, path)
    if mistakes:
        for section, settings_list in settings_by_section.items():
            for settings in settings_list:
                with mistakes.collected():
                    _require_values(settings, section, sections[section], path)
    mistakes.require_none()


def _require_section(name: Any, sections: Sections, path: Path) -> None:
    section_names = (ENV, SERVER, *sections[""].model_fields)
    if name in section_names:
        return
    hint = did_you_mean(
        str(name),
        section_names,
        otherwise=f"the sections are {', '.join(section_names)}",
    )
    place = _section_of(name, sections)
    retired = sections[ENV].retired_options.get(name)
    if place:
        hint = f"it belongs below `{place}:`"
    elif retired:
        hint = f"it is no longer a setting: {retired.instead}"
    raise ConfigurationError(f"{path}: unknown section {name!r}; {hint}")


def _require_in_section(
    name: Any, section: str, sections: Sections, path: Path
) -> None:
    """Raise ConfigurationError for a setting that is unknown, or of another section."""
    place = _section_of(name, sections)
    if name not in sections[section].model_fields and place:
        raise ConfigurationError(
            f"{path}: unknown setting {name!r} below `{section}:`; it belongs below "
            f"`{place}:`"
        )
    sections[section].require_known([name], prefix=f"{path}: ")


def _require_values(
    settings: Mapping[str, Any], section: str, model: type[Section], path: Path
) -> None:
    """Raise ConfigurationError for known settings with values that no other could mend."""
    known = {name: settings[name] for name in settings if name in model.model_fields}
    try:
        model(**known)
    except ValidationError as error:
        if not all(problem["loc"] for problem in error.errors()):
            return
        place = "" if section == ENV else f"{section}."
        raise ConfigurationError(
            describe_validation(error, model.model_fields, prefix=f"{path}: {place}")
        ) from None


def _section_of(name: Any, sections: Sections) -> str | None:
    return next(
        (
            section
            for section in (ENV, SERVER)
            if name in sections[section].model_fields
        ),
        None,
    )


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses a key that is set twice; the last one would win silently."""

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise ConfigurationError(
                    f"{key.value} is set twice, the second time in line {key.start_mark.line + 1}"
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


MOST_BYTES = 2**20
"""Of a file of settings; nobody writes as many, and the parser takes a second for so many."""


def _load(path: Path) -> Any:
    try:
        text = read_regular(path, max_bytes=MOST_BYTES).decode("utf-8")
        return yaml.load(text, _Loader)
    except ConfigurationError as error:
        reason = f": {error}"
    except OSError as error:
        reason = f" can't be read: {error.strerror or error}"
    except RecursionError:
        reason = " is nested too deeply"
    except UnicodeDecodeError:
        reason = " can't be read: it is not UTF-8"
    except yaml.YAMLError as error:
        # Its own words show the line, which may hold an API key.
        mark = getattr(error, "problem_mark", None)
        reason = f" is not valid YAML{f' (line {mark.line + 1})' if mark else ''}"
        if mark and "\t" in mark.buffer.splitlines()[mark.line]:
            reason += ": this line has a tab; indent it with spaces"
    except ValueError as error:  # a number of more digits than Python reads
        reason = f" has a value that can't be read: {error}"
    raise ConfigurationError(f"--config {path}{reason}")


def _mapping(content: Any, path: Path, subject: str) -> dict[str, Any]:
    if isinstance(content, dict):
        return content
    type_name = "nothing" if content is None else type(content).__name__
    raise ConfigurationError(
        f"{path}: {subject} must be settings as `name: value`, below `{ENV}:` or `{SERVER}:`, "
        f"got {type_name}"
    )
