"""Ladders in place of curricula that are broken, slow, too long or too hard from the start.

`ladder_repairs.json` has, by task, the reason and the columns of its levels: under "values" one
value a level for each field; under "ranges" bounds, of which `x` gives `min_x` and `max_x` from
each bound to the next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple


class Repair(NamedTuple):
    """A ladder in place of the library's, and why."""

    reason: str
    levels: tuple[Mapping[str, Any], ...]


def levels_from(columns: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """One level a row.

    Raises:
        ValueError: the columns differ in height.

    Example:
        >>> levels_from({"ranges": {"n": [2, 4, 8]}, "values": {"p": [0.5, 0.1]}})
        ({'p': 0.5, 'min_n': 2, 'max_n': 4}, {'p': 0.1, 'min_n': 4, 'max_n': 8})
    """
    by_field = dict(columns.get("values", {}))
    for name, bounds in columns.get("ranges", {}).items():
        by_field[f"min_{name}"], by_field[f"max_{name}"] = bounds[:-1], bounds[1:]
    rows = zip(*by_field.values(), strict=True)
    return tuple(dict(zip(by_field, row, strict=True)) for row in rows)


def _read() -> dict[str, Repair]:
    table = json.loads(Path(__file__).with_suffix(".json").read_text())
    return {
        task: Repair(reason=entry["reason"], levels=levels_from(entry))
        for task, entry in table.items()
    }


REPAIRS: Mapping[str, Repair] = MappingProxyType(_read())
"""By task. Curricula that are not here are taken as they are."""
