"""Rows without duplicates, whole Unicode, and a split that parts no item."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .training_rows import Item

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Prepared(NamedTuple):
    """Rows by split, and what was left out or replaced on the way."""

    splits: dict[str, list[dict[str, Any]]]
    duplicates: int
    broken: int


def prepare(items: Sequence[Item], test_share: float) -> Prepared:
    """Rows ready to be written: of every identity the first, in "train" and, if asked, "test".

    Args:
        test_share: in [0, 1), of what was asked; 0 makes no test split.
    """
    splits: dict[str, list[dict[str, Any]]] = {"train": []}
    if test_share:
        splits["test"] = []
    first = unique(items)
    broken = 0
    for item in first:
        row, count = repaired(item.row)
        broken += count
        splits["test" if is_test(item.asked, test_share) else "train"].append(row)
    return Prepared(splits, len(items) - len(first), broken)


def unique(items: Iterable[Item]) -> list[Item]:
    """The first of every identity, in order."""
    kept: dict[str, Item] = {}
    for item in items:
        kept.setdefault(item.identity, item)
    return list(kept.values())


def is_test(asked: str, share: float) -> bool:
    """Whether an item belongs to the test split; says the same in every export.

    Args:
        asked: what the split must not part.
        share: in [0, 1], of the items.
    """
    digest = hashlib.sha256(asked.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def repaired(row: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The row with U+FFFD for halves of surrogate pairs, and how many there were.

    JSON can hold them; UTF-8, and so Parquet and Arrow, can't.
    """
    text, count = _LONE_SURROGATE.subn("\ufffd", json.dumps(row, ensure_ascii=False))
    repaired_row: dict[str, Any] = json.loads(text) if count else row
    return repaired_row, count
