"""Prepares rows for training and writes them as JSONL, Parquet or a Hugging Face dataset.

Of duplicates the first is kept, Unicode is made whole, and a split parts no item.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import FixableError
from ..util.files import replacing, require_free, write_whole
from ..util.text import replace_surrogates
from .dumps import read_rows
from .training_rows import Item

Rows = Sequence[dict[str, Any]]
_FEATURES = {"text": "string", "json": "string", "number": "float64", "integer": "int64"}
_MARKS = ("dataset_info.json", "dataset_dict.json")
"""One of these lies in every folder that `save_to_disk` made."""

_FILES = (".jsonl", ".parquet")
"""What names of files end in; a name without a suffix is the folder of a dataset."""


class Prepared(NamedTuple):
    """Rows by split, with counts of what was left out or replaced on the way."""

    splits: dict[str, list[dict[str, Any]]]
    duplicates: int
    broken: int


def prepare(items: Sequence[Item], test_share: float) -> Prepared:
    """Make rows ready to be written: of every identity the first, in "train" and, if asked, "test".

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
    """Keep the first item of every identity, in order."""
    kept: dict[str, Item] = {}
    for item in items:
        kept.setdefault(item.identity, item)
    return list(kept.values())


def is_test(asked: str, share: float) -> bool:
    """Say whether an item belongs to the test split: the same in every export.

    Args:
        asked: what the split must not part.
        share: in [0, 1], of the items.
    """
    digest = hashlib.sha256(asked.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def repaired(row: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Put U+FFFD in the place of halves of surrogate pairs, and count them.

    JSON can hold them; UTF-8, and so Parquet and Arrow, can't.
    """
    text, count = replace_surrogates(json.dumps(row, ensure_ascii=False))
    repaired_row: dict[str, Any] = json.loads(text) if count else row
    return repaired_row, count


def targets(out: Path, splits: Sequence[str]) -> dict[str, Path]:
    """Name where each split goes: a file of its own, or the one folder of all.

    Raises:
        FixableError: the name ends in another suffix than those of files.

    Example:
        >>> targets(Path("a.parquet"), ["train", "test"])["test"].name
        'a.test.parquet'
    """
    if out.suffix and out.suffix not in _FILES:
        raise FixableError(
            f"{out} ends in {out.suffix}: give a name that ends in {' or '.join(_FILES)}, or one "
            "without a suffix for the folder of a dataset"
        )
    if not out.suffix or len(splits) == 1:
        return dict.fromkeys(splits, out)
    return {name: out.with_suffix(f".{name}{out.suffix}") for name in splits}


def require_replaceable(path: Path, *, force: bool) -> None:
    """Raises FixableError where something lies that must not be replaced."""
    require_free(path, force=force)
    if path.is_file() and path.suffix not in _FILES:
        raise FixableError(f"{path} is a file, not the folder of a dataset; give another name")
    if path.is_dir() and path.suffix:
        raise FixableError(f"{path} is a folder; give another name")
    if path.is_file() and path.suffix == ".jsonl" and _holds_groups(path):
        raise FixableError(f"{path} holds stored groups, which are never replaced; rename it")
    if path.is_dir() and not any((path / mark).exists() for mark in _MARKS):
        raise FixableError(f"{path} is a folder that holds no dataset; give another name")


def _holds_groups(path: Path) -> bool:
    return any("rollouts" in row for row in read_rows(path).rows)


def write_splits(out: Path, splits: Mapping[str, Rows], columns: Mapping[str, str]) -> None:
    """Write one split, or "train" and "test".

    Args:
        out: as `targets` takes it.
        columns: kind by column: messages, text, json, number or integer.
    """
    if out.suffix == ".jsonl":
        for name, path in targets(out, list(splits)).items():
            lines = (json.dumps(row) + "\n" for row in splits[name])
            write_whole(path, "".join(lines))
        return
    from datasets import Dataset, DatasetDict, Features, Value

    message = {"role": Value("string"), "content": Value("string")}
    features = Features(
        {
            name: [message] if kind == "messages" else Value(_FEATURES[kind])
            for name, kind in columns.items()
        }
    )
    made = {name: Dataset.from_list(list(rows), features=features) for name, rows in splits.items()}
    if out.suffix == ".parquet":
        for name, path in targets(out, list(splits)).items():
            with replacing(path) as partial:
                made[name].to_parquet(partial)
        return
    with replacing(out) as partial:
        (DatasetDict(made) if len(made) > 1 else made["train"]).save_to_disk(partial)
