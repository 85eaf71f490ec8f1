"""Rows for training, written as Parquet files or as a Hugging Face dataset on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import FixableError
from ..util.files import replacing, require_free

Rows = Sequence[dict[str, Any]]
_FEATURES = {"text": "string", "json": "string", "number": "float64", "integer": "int64"}
_MARKS = ("dataset_info.json", "dataset_dict.json")
"""One of these lies in every folder that `save_to_disk` made."""


def targets(out: Path, splits: Sequence[str]) -> dict[str, Path]:
    """Where each split goes: a Parquet file of its own, or the one folder of all.

    Example:
        >>> targets(Path("a.parquet"), ["train", "test"])["test"].name
        'a.test.parquet'
    """
    if out.suffix != ".parquet" or len(splits) == 1:
        return dict.fromkeys(splits, out)
    return {name: out.with_suffix(f".{name}.parquet") for name in splits}


def require_replaceable(path: Path, *, force: bool) -> None:
    """Raises FixableError where something lies that must not be replaced."""
    require_free(path, force=force)
    if path.is_file() and path.suffix != ".parquet":
        raise FixableError(f"{path} is a file and no Parquet; give another name")
    if path.is_dir() and not any((path / mark).exists() for mark in _MARKS):
        raise FixableError(f"{path} is a folder that holds no dataset; give another name")


def write_splits(out: Path, splits: Mapping[str, Rows], columns: Mapping[str, str]) -> None:
    """Write one split, or "train" and "test".

    Args:
        out: a name that ends in .parquet, or the folder of a dataset.
        columns: kind by column: messages, text, json, number or integer.
    """
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
