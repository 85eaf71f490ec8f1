"""Ladders of our own, for tasks whose curriculum is missing or useless."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class OwnLadder(NamedTuple):
    """A ladder, and why the task has no use for the library's."""

    reason: str
    levels: tuple[Mapping[str, Any], ...]


OWN_LADDERS: Mapping[str, OwnLadder] = {}
