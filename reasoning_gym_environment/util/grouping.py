"""Groups things by a key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)


def group_by(key: Callable[[T], Key], things: Iterable[T]) -> dict[Key, list[T]]:
    """Group things by a key; keys in order of appearance, things in the order given.

    Example:
        >>> group_by(len, ["a", "bb", "c"])
        {1: ['a', 'c'], 2: ['bb']}
    """
    found: dict[Key, list[T]] = {}
    for thing in things:
        found.setdefault(key(thing), []).append(thing)
    return found
