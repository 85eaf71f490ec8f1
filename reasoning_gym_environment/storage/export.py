"""Export of stored rollouts to the formats that training libraries read.

Layouts are TRL's conversational language modeling and preference formats, which Axolotl's
`chat_template` strategies read too, one row a rollout with all stored keys, and the problems alone
as verl and SkyRL read them. Files are JSONL, Parquet or a Hugging Face dataset. Duplicates are
dropped and lone surrogates replaced, and all rows of a question are in the same split.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import FixableError
from ..records import Recipe, recipe_text
from ..util.files import replacing, require_free, write_whole
from ..util.values import replace_surrogates, shorten
from .dumps import read_rows
from .rows import StoredGroup, StoredRollout, stable_json

SKYRL_ENVIRONMENT = "reasoning_gym"
"""The name under which SkyRL-gym knows our environment."""

SUFFIXES = (".jsonl", ".parquet")
"""Suffixes of files; a name without a suffix is the folder of a dataset."""


class Item(NamedTuple):
    """A row for training.

    Attributes:
        question_key: task and question, by which rows are split: different recipes can ask the
            same.
        identity: recipe and text; rows with the same identity are duplicates.
    """

    question_key: str
    identity: str
    row: dict[str, Any]


def item(group: StoredGroup, row: dict[str, Any], *texts: str) -> Item:
    """Return a row with its question and its identity."""
    question_key = stable_json([group.task, group.question])
    identity = stable_json([group.recipe.identity(), *texts])
    return Item(question_key=question_key, identity=identity, row=row)


def sft_rows(group: StoredGroup, *, min_score: float | None = None) -> Iterator[Item]:
    """Yield a row for each completion with at least `min_score`, by default for the solved ones."""
    for rollout in _examples(group):
        if rollout.solved if min_score is None else rollout.score >= min_score:
            row = {
                "messages": rollout.conversation,
                **_origin(group),
                "score": rollout.score,
            }
            yield item(group, row, rollout.text)


def dpo_rows(group: StoredGroup) -> Iterator[Item]:
    """Yield the pair of the best solved and the worst unsolved completion; the first on ties."""
    right = [rollout for rollout in _examples(group) if rollout.solved]
    wrong = [rollout for rollout in _examples(group) if not rollout.solved]
    if not right or not wrong:
        return
    best = max(right, key=lambda rollout: rollout.score)
    worst = min(wrong, key=lambda rollout: rollout.score)
    row = {
        "prompt": best.prompt,
        "chosen": best.conversation[-1:],
        "rejected": worst.conversation[-1:],
        **_origin(group),
        "chosen_score": best.score,
        "rejected_score": worst.score,
    }
    yield item(group, row, best.text, worst.text)


def record_rows(
    group: StoredGroup, places: Sequence[int] | None = None
) -> Iterator[Item]:
    """Yield a row for each rollout, or for those at `places`: all its stored keys and its group's.

    Objects and lists but the conversation are JSON text, as their keys differ between tasks.
    """
    shared = group.to_json()
    rollouts = shared.pop("rollouts")
    if places is None:
        places = range(len(rollouts))
    for place in places:
        row = {**shared, "rollout": place, **rollouts[place]}
        for name in row.keys() - {"conversation"}:
            if isinstance(row[name], dict | list):
                row[name] = stable_json(row[name])
        yield item(group, row, group.rollouts[place].text)


def verl_row(recipe: Recipe, prompt: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a problem as verl's data sets read it."""
    return {
        "data_source": f"reasoning-gym/{recipe.task}",
        "prompt": [*prompt],
        "reward_model": {"style": "rule", "ground_truth": recipe_text(recipe)},
        "extra_info": {"task": recipe.task, "level": recipe.level},
    }


def skyrl_row(recipe: Recipe, prompt: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a problem as SkyRL's data sets read it."""
    return {
        "data_source": f"reasoning-gym/{recipe.task}",
        "prompt": [*prompt],
        "env_class": SKYRL_ENVIRONMENT,
        "reward_spec": {"method": "rule", "ground_truth": recipe_text(recipe)},
    }


def _examples(group: StoredGroup) -> Iterator[StoredRollout]:
    """Yield the rollouts that are neither unscored nor truncated."""
    return (rollout for rollout in group.scored if rollout.complete)


def _origin(group: StoredGroup) -> dict[str, str]:
    return {"task": group.task, "recipe": recipe_text(group.recipe)}


def prepare(
    items: Sequence[Item], test_share: float
) -> tuple[dict[str, list[dict[str, Any]]], int, int]:
    """Drop duplicates, replace lone surrogates, and split rows into "train" and, if any, "test".

    Returns:
        The splits, and the numbers of duplicates and of lone surrogates.
    """
    splits: dict[str, list[dict[str, Any]]] = {"train": []}
    if test_share:
        splits["test"] = []
    unique: dict[str, Item] = {}
    for item in items:
        unique.setdefault(item.identity, item)
    broken = 0
    for item in unique.values():
        row, count = repaired(item.row)
        broken += count
        splits["test" if is_test(item.question_key, test_share) else "train"].append(
            row
        )
    return splits, len(items) - len(unique), broken


def is_test(question_key: str, share: float) -> bool:
    """Return whether a question is in the test split, by its hash: the same in every export."""
    digest = hashlib.sha256(question_key.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def repaired(row: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Replace lone surrogates, which Parquet and Arrow can't store, with U+FFFD; count them."""
    text, count = replace_surrogates(json.dumps(row, ensure_ascii=False))
    return (json.loads(text) if count else row), count


def targets(out: Path, splits: Sequence[str]) -> dict[str, Path]:
    """Return the path of each split: a file of its own, or one folder for all.

    Example:
        >>> targets(Path("a.parquet"), ["train", "test"])["test"].name
        'a.test.parquet'
    """
    if out.suffix and out.suffix not in SUFFIXES:
        raise FixableError(
            f"{out} ends in {out.suffix}: give a name that ends in {' or '.join(SUFFIXES)}, or "
            "one without a suffix for the folder of a dataset"
        )
    if not out.suffix or len(splits) == 1:
        return dict.fromkeys(splits, out)
    return {name: out.with_suffix(f".{name}{out.suffix}") for name in splits}


def require_replaceable(path: Path, *, force: bool) -> None:
    """Raise FixableError where the path holds something that must not be replaced."""
    require_free(path, force=force)
    if path.is_file() and path.suffix not in SUFFIXES:
        raise FixableError(
            f"{path} is a file, not the folder of a dataset; give another name"
        )
    if path.is_dir() and path.suffix:
        raise FixableError(f"{path} is a folder; give another name")
    rows = read_rows(path).rows if path.is_file() and path.suffix == ".jsonl" else []
    if any("rollouts" in row for row in rows):
        raise FixableError(
            f"{path} holds stored groups, which are never replaced; rename it"
        )
    dataset_files = (path / name for name in ("dataset_info.json", "dataset_dict.json"))
    if path.is_dir() and not any(file.exists() for file in dataset_files):
        raise FixableError(f"{path} is a folder without a dataset; give another name")


def write_splits(out: Path, splits: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Write one split, or "train" and "test", whose columns have the same types."""
    paths = targets(out, list(splits))
    if out.suffix == ".jsonl":
        for name, path in paths.items():
            write_whole(path, "".join(json.dumps(row) + "\n" for row in splits[name]))
        return
    tables = _tables(out, splits)
    if out.suffix == ".parquet":
        from pyarrow import parquet

        for name, path in paths.items():
            with replacing(path) as partial:
                parquet.write_table(tables[name], partial)
        return
    from datasets import Dataset, DatasetDict

    split_datasets = {name: Dataset(table) for name, table in tables.items()}
    with replacing(out) as partial:
        (
            DatasetDict(split_datasets)
            if len(split_datasets) > 1
            else split_datasets["train"]
        ).save_to_disk(partial)


def _tables(
    out: Path, splits: Mapping[str, Sequence[dict[str, Any]]]
) -> dict[str, Any]:
    """Return each split as a table of pyarrow; types follow the rows of all splits."""
    import pyarrow

    rows = [row for rows_of_split in splits.values() for row in rows_of_split]
    names = dict.fromkeys(name for row in rows for name in row)
    try:
        table = pyarrow.table({name: [row.get(name) for row in rows] for name in names})
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise FixableError(
            f"{out}: a column has values of several types ({shorten(str(error))}); give a name "
            "that ends in .jsonl"
        ) from error
    ends = itertools.accumulate(len(rows_of_split) for rows_of_split in splits.values())
    return {
        name: table.slice(end - len(rows_of_split), len(rows_of_split))
        for (name, rows_of_split), end in zip(splits.items(), ends, strict=True)
    }
