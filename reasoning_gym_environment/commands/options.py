"""The options of serve, process and evaluate, without the imports that they are made from.

`options.json` is written by `make docs` from the configuration's fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from ..util.command_line import ENV, SERVER, Given, Known
from ..util.logs import WITHHELD
from ..util.settings_text import PARSERS

TABLE = Path(__file__).with_name("options.json")

_TRUE = ("true", "1", "yes", "on", "t", "y")
_FALSE = ("false", "0", "no", "off", "f", "n")
"""As pydantic reads them."""

_HOLDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "ge": ("at least", lambda value, bound: value >= bound),
    "gt": ("above", lambda value, bound: value > bound),
    "le": ("at most", lambda value, bound: value <= bound),
    "lt": ("below", lambda value, bound: value < bound),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """A setting.

    Attributes:
        name: with its section, as `env.seed`.
        kind: "bool", "int", "float" or "text".
        group: the heading it stands under; `brief` options are in the short help.
        default: as text; `defaults` has those that differ, by command.
        choices: all values; empty where there are others.
        bounds: by "ge", "gt", "le" or "lt".
        about: what it does, in a sentence or more.
        atropos: whether the field is Atropos's own.
    """

    name: str
    kind: str
    group: str
    default: str
    about: str
    brief: bool = True
    atropos: bool = False
    nothing: bool = False
    defaults: Mapping[str, str] = field(default_factory=dict)
    choices: Sequence[str] = ()
    bounds: Mapping[str, float] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        """Whether it may stand without a value."""
        return self.kind == "bool"

    def limits(self) -> str:
        """Write its choices or bounds as people read them; empty where there are none."""
        if self.bounds.keys() == {"ge", "le"}:
            return f"{self.bounds['ge']:g} to {self.bounds['le']:g}"
        said = [f"{_HOLDS[name][0]} {bound:g}" for name, bound in self.bounds.items()]
        return ", ".join(self.choices) or " and ".join(said)


def read_options() -> list[Option]:
    """Read the options, in the order in which they are shown."""
    return [Option(**row) for row in json.loads(TABLE.read_text(encoding="utf-8"))]


def known_of(options: Sequence[Option]) -> Known:
    """List the settings for whoever reads a command line."""
    env, server = (
        {o.name.removeprefix(f"{section}."): o.alone for o in options if _within(o, section)}
        for section in (ENV, SERVER)
    )
    return Known(env=env, server=server)


def _within(option: Option, section: str) -> bool:
    return option.name.startswith(f"{section}.")


def require_values(given: Given, options: Sequence[Option]) -> None:
    """Refuse values of another kind, or out of bounds; the configuration checks the rest.

    Raises:
        ConfigurationError: names the setting, the value and what it may be.
    """
    known = {option.name: option for option in options}
    for section, settings in ((ENV, given.env), *((SERVER, one) for one in given.servers)):
        for name, value in settings.items():
            if said := refusal(known[f"{section}.{name}"], value):
                shown = WITHHELD if name == "api_key" else repr(value)
                of = f"{SERVER}." if section == SERVER else ""
                raise ConfigurationError(f"{of}{name} is {shown}: {said}")


def refusal(option: Option, value: Any) -> str:
    """Say what is wrong with a value; empty when nothing is that can be seen here."""
    if value is None:
        return "" if option.nothing else "it must be given"
    if option.choices:
        listed = "" if str(value) in option.choices else option.limits()
        return listed and f"it must be one of {listed}"
    if option.kind == "bool":
        return "" if str(value).lower() in _TRUE + _FALSE else "it must be true or false"
    if parse := PARSERS.get(option.name.rpartition(".")[2]):
        return _unread(parse, value)
    if option.kind not in ("int", "float"):
        return ""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return "it must be a number"
    if option.kind == "int" and not number.is_integer():
        return "it must be a whole number"
    broken = [n for n, bound in option.bounds.items() if not _HOLDS[n][1](number, bound)]
    return f"it must be {option.limits()}" if broken else ""


def _unread(parse: Callable[[Any], Any], value: Any) -> str:
    try:
        parse(value)
    except ValueError as error:
        return str(error)
    except (AttributeError, TypeError):
        return "it is of another form"
    return ""


def is_on(value: Any) -> bool:
    """Whether a checked value of a bool means yes."""
    return str(value).lower() in _TRUE
