"""Ladders in place of curricula that are broken, slow, too long or too hard from the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple


class Repair(NamedTuple):
    """A ladder in place of the library's, and why."""

    reason: str
    levels: tuple[Mapping[str, Any], ...]


def _levels(
    ranges: Mapping[str, Sequence[float]] | None = None, **values: Sequence[Any]
) -> tuple[Mapping[str, Any], ...]:
    """Levels from columns of equal height.

    Args:
        ranges: bounds by name: those of `x` give `min_x` and `max_x`, from each bound to the next.
        values: field by name, one value a level.
    """
    columns = dict(values)
    for name, bounds in (ranges or {}).items():
        columns[f"min_{name}"], columns[f"max_{name}"] = bounds[:-1], bounds[1:]
    rows = zip(*columns.values(), strict=True)
    return tuple(dict(zip(columns, row, strict=True)) for row in rows)


REPAIRS: Mapping[str, Repair] = MappingProxyType({})
