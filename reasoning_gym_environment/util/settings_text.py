"""Settings that come as text on a command line, and as lists and mappings from a file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any


def split_names(value: str | list[str]) -> list[str]:
    """Split names at commas and trim them; a list is trimmed alone.

    Example:
        >>> split_names("gcd, games")
        ['gcd', 'games']
    """
    names = value.split(",") if isinstance(value, str) else value
    return [name.strip() for name in names if name.strip()]


def parse_weights(value: str | Mapping[str, float]) -> dict[str, float]:
    """Read weights by name; raises ValueError for text of another form and for a bad weight.

    Example:
        >>> parse_weights("gcd=2, games=0.5")
        {'gcd': 2.0, 'games': 0.5}
    """
    weights = _weights_from_text(value) if isinstance(value, str) else dict(value)
    for name, weight in weights.items():
        if not 0 <= weight < float("inf"):
            raise ValueError(f"the weight of {name!r} is {weight}; it must be 0 or more")
    return weights


def _weights_from_text(text: str) -> dict[str, float]:
    weights = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, weight = part.partition("=")
        try:
            weights[name.strip()] = float(weight)
        except ValueError:
            equals = ""
        if not equals:
            raise ValueError(f"{part!r} is not of the form name=weight")
    return weights


def parse_parameters(value: str | dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Read parameters by task; raises ValueError for text that is no JSON of that form.

    Example:
        >>> parse_parameters('{"gcd": {"max_value": 9}}')
        {'gcd': {'max_value': 9}}
    """
    if isinstance(value, dict):
        return value
    try:
        parsed = json.loads(value or "{}")
    except ValueError as error:
        raise ValueError(f"{value!r} is not JSON: {error}") from error
    if not isinstance(parsed, dict) or not all(isinstance(p, dict) for p in parsed.values()):
        raise ValueError(f"{value!r} does not map tasks to parameters")
    return parsed


def parse_difficulties(value: str | float | list[float]) -> list[float]:
    """Read difficulties and sort them; raises ValueError for one outside [0, 1].

    Example:
        >>> parse_difficulties("0.75, 0.25")
        [0.25, 0.75]
    """
    if isinstance(value, str):
        value = [float(part) for part in value.split(",") if part.strip()]
    difficulties = sorted({float(part) for part in (value if isinstance(value, list) else [value])})
    for difficulty in difficulties:
        if not 0 <= difficulty <= 1:
            raise ValueError(f"{difficulty} is no difficulty from 0 to 1")
    return difficulties


def parse_name(value: str | int) -> str:
    """Read a name that files may have as a part of theirs; raises ValueError for another.

    Example:
        >>> parse_name(3), parse_name("eu-1"), parse_name("")
        ('3', 'eu-1', '')
    """
    name = str(value)
    if not re.fullmatch(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,49})?", name):
        raise ValueError(
            f"{name!r:.60} is no name of at most 50 letters, digits and _.-, which begins with one"
        )
    return name


def shown(value: Any) -> str:
    """Write a setting as its user would.

    Example:
        >>> shown(None), shown(0.5)
        ('unset', '0.5')
    """
    return "unset" if value is None else str(getattr(value, "value", value))


PARSERS: dict[str, Callable[[Any], Any]] = {
    "include_tasks": split_names,
    "exclude_tasks": split_names,
    "eval_levels": parse_difficulties,
    "task_weights": parse_weights,
    "task_parameters": parse_parameters,
    "replica": parse_name,
}
"""What an option's text means; lists and mappings from a file pass through them as well."""
