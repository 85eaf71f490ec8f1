"""Grouping of items by a key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)


def group_by(key: Callable[[T], Key], items: Iterable[T]) -> dict[Key, list[T]]:
    """Group items by a key; keys and items keep their order of appearance.

    Example:
        >>> group_by(len, ["a", "bb", "c"])
        {1: ['a', 'c'], 2: ['bb']}
    """
    found: dict[Key, list[T]] = {}
    for thing in items:
        found.setdefault(key(thing), []).append(thing)
    return found
