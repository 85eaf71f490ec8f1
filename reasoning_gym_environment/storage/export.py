"""Export of stored rollouts to the formats that training libraries read.

Layouts are TRL's conversational language modeling and preference formats, which Axolotl's
`chat_template` strategies read too, one row a rollout with all stored keys, and the problems alone
as verl and SkyRL read them. Files are JSONL, Parquet or a Hugging Face dataset. Duplicates are
dropped and lone surrogates replaced, and all rows of a question are in the same split.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ..errors import FixableError
from ..records import Recipe, recipe_text
from ..util.files import replacing, require_free, write_whole
from ..util.text import replace_surrogates, shorten
from .dumps import read_rows
from .rows import StoredGroup, StoredRollout, stable_json

ORIGIN = MappingProxyType({"task": "text", "recipe": "json"})
SFT_COLUMNS = MappingProxyType({"messages": "messages", **ORIGIN, "score": "number"})
DPO_COLUMNS = MappingProxyType(
    {
        "prompt": "messages",
        "chosen": "messages",
        "rejected": "messages",
        **ORIGIN,
        "chosen_score": "number",
        "rejected_score": "number",
    }
)
RECORD_COLUMNS = MappingProxyType(
    {
        "item_id": "text",
        "rollout": "integer",
        "conversation": "messages",
        "score": "number",
        "answer": "text",
        "oracle": "text",
        "status": "text",
        "detail": "text",
        "raw_score": "number",
        "raw_form_score": "number",
        "tagged_form_score": "number",
        "length_factor": "number",
        "finish_reason": "text",
        "tokens": "integer",
        "completion_tokens": "integer",
        "verify_seconds": "number",
        "recipe": "json",
        "difficulty": "number",
        "time": "text",
        "run": "text",
        "replica": "text",
        "schema_version": "integer",
        "library_versions": "json",
        "scoring": "json",
        "other": "json",
    }
)
"""Types by column. `json` is text, as its keys differ between tasks. `other` has unknown keys."""

VERL_COLUMNS = MappingProxyType(
    {
        "data_source": "text",
        "prompt": "messages",
        "reward_model": {"style": "text", "ground_truth": "json"},
        "extra_info": {"task": "text", "level": "integer"},
    }
)
SKYRL_COLUMNS = MappingProxyType(
    {
        "data_source": "text",
        "prompt": "messages",
        "env_class": "text",
        "reward_spec": {"method": "text", "ground_truth": "json"},
    }
)
"""The ground truth is the recipe, by which the completion is scored."""

SKYRL_ENVIRONMENT = "reasoning_gym"
"""The name under which SkyRL-gym knows our environment."""

Messages = Sequence[Mapping[str, str]]
"""A prompt, each message with its role and content."""

_FEATURES = {"text": "string", "json": "string", "number": "float64", "integer": "int64"}
_DATASET_FILES = ("dataset_info.json", "dataset_dict.json")
"""Every folder of `save_to_disk` has one of these."""

_SUFFIXES = (".jsonl", ".parquet")
"""Suffixes of files; a name without a suffix is the folder of a dataset."""


class Item(NamedTuple):
    """A row for training.

    Attributes:
        asked: task and question, by which rows are split: different recipes can ask the same.
        identity: recipe and text; rows with the same identity are duplicates.
    """

    asked: str
    identity: str
    row: dict[str, Any]


def item(group: StoredGroup, row: dict[str, Any], *texts: str) -> Item:
    """Return a row with its question and its identity."""
    asked = stable_json([group.task, group.question])
    identity = stable_json([group.recipe.identity(), *texts])
    return Item(asked=asked, identity=identity, row=row)


def sft_rows(group: StoredGroup, *, min_score: float | None = None) -> Iterator[Item]:
    """Yield one row for each good completion.

    Args:
        min_score: minimum reward of a good completion; None requires the status `solved`.
    """
    for rollout in _examples(group):
        if rollout.solved if min_score is None else rollout.score >= min_score:
            row = {"messages": rollout.conversation, **_origin(group), "score": rollout.score}
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


def record_rows(group: StoredGroup) -> Iterator[Item]:
    """Yield one row for each rollout with all stored keys of it and of its group."""
    shared = group.to_json()
    for number, (rollout, own) in enumerate(
        zip(group.rollouts, shared.pop("rollouts"), strict=True)
    ):
        everything = {**shared, "rollout": number, **own}
        other = {key: everything[key] for key in everything.keys() - RECORD_COLUMNS.keys()}
        values = {**everything, "other": other}
        row = {name: _cell(values.get(name), kind) for name, kind in RECORD_COLUMNS.items()}
        yield item(group, row, rollout.text)


def verl_row(recipe: Recipe, prompt: Messages) -> dict[str, Any]:
    """Return a problem as verl's data sets read it."""
    return {
        "data_source": f"reasoning-gym/{recipe.task}",
        "prompt": [*prompt],
        "reward_model": {"style": "rule", "ground_truth": recipe_text(recipe)},
        "extra_info": {"task": recipe.task, "level": recipe.level},
    }


def skyrl_row(recipe: Recipe, prompt: Messages) -> dict[str, Any]:
    """Return a problem as SkyRL's data sets read it."""
    return {
        "data_source": f"reasoning-gym/{recipe.task}",
        "prompt": [*prompt],
        "env_class": SKYRL_ENVIRONMENT,
        "reward_spec": {"method": "rule", "ground_truth": recipe_text(recipe)},
    }


def _examples(group: StoredGroup) -> Iterator[StoredRollout]:
    """Yield the rollouts that are neither unscored nor truncated."""
    return (rollout for rollout in group.scored if not rollout.truncated)


def _origin(group: StoredGroup) -> dict[str, str]:
    return {"task": group.task, "recipe": recipe_text(group.recipe)}


def _cell(value: Any, kind: str) -> Any:
    """Convert a value to its column's type; None stays None."""
    if value is None or kind not in ("json", "text"):
        return value
    return stable_json(value) if kind == "json" else str(value)


class Prepared(NamedTuple):
    """Rows by split, with the numbers of dropped duplicates and replaced lone surrogates."""

    splits: dict[str, list[dict[str, Any]]]
    duplicates: int
    broken: int


def prepare(items: Sequence[Item], test_share: float) -> Prepared:
    """Drop duplicates, replace lone surrogates, and split rows into "train" and "test".

    Args:
        test_share: in [0, 1), of the questions; 0 makes no test split.
    """
    splits: dict[str, list[dict[str, Any]]] = {"train": []}
    if test_share:
        splits["test"] = []
    unique: dict[str, Item] = {}
    for each in items:
        unique.setdefault(each.identity, each)
    broken = 0
    for each in unique.values():
        row, count = repaired(each.row)
        broken += count
        splits["test" if is_test(each.asked, test_share) else "train"].append(row)
    return Prepared(splits, len(items) - len(unique), broken)


def is_test(asked: str, share: float) -> bool:
    """Return whether a question is in the test split, by its hash: the same in every export.

    Args:
        share: of the questions, in [0, 1].
    """
    digest = hashlib.sha256(asked.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def repaired(row: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Replace lone surrogates, which Parquet and Arrow can't store, with U+FFFD; count them."""
    text, count = replace_surrogates(json.dumps(row, ensure_ascii=False))
    repaired_row: dict[str, Any] = json.loads(text) if count else row
    return repaired_row, count


def targets(out: Path, splits: Sequence[str]) -> dict[str, Path]:
    """Return the path of each split: a file of its own, or one folder for all.

    Raises:
        FixableError: the name has an unknown suffix.

    Example:
        >>> targets(Path("a.parquet"), ["train", "test"])["test"].name
        'a.test.parquet'
    """
    if out.suffix and out.suffix not in _SUFFIXES:
        raise FixableError(
            f"{out} ends in {out.suffix}: give a name that ends in {' or '.join(_SUFFIXES)}, or "
            "one without a suffix for the folder of a dataset"
        )
    if not out.suffix or len(splits) == 1:
        return dict.fromkeys(splits, out)
    return {name: out.with_suffix(f".{name}{out.suffix}") for name in splits}


def require_replaceable(path: Path, *, force: bool) -> None:
    """Raise FixableError where the path holds something that must not be replaced."""
    require_free(path, force=force)
    if path.is_file() and path.suffix not in _SUFFIXES:
        raise FixableError(f"{path} is a file, not the folder of a dataset; give another name")
    if path.is_dir() and path.suffix:
        raise FixableError(f"{path} is a folder; give another name")
    rows = read_rows(path).rows if path.is_file() and path.suffix == ".jsonl" else []
    if any("rollouts" in row for row in rows):
        raise FixableError(f"{path} holds stored groups, which are never replaced; rename it")
    if path.is_dir() and not any((path / name).exists() for name in _DATASET_FILES):
        raise FixableError(f"{path} is a folder without a dataset; give another name")


def write_splits(
    out: Path, splits: Mapping[str, Sequence[dict[str, Any]]], columns: Mapping[str, Any]
) -> None:
    """Write one split, or "train" and "test".

    Args:
        out: as of `targets`.
        columns: type by column: messages, text, json, number or integer; or a mapping of such,
            for a column whose values have keys.
    """
    if out.suffix == ".jsonl":
        for name, path in targets(out, list(splits)).items():
            lines = (json.dumps(row) + "\n" for row in splits[name])
            write_whole(path, "".join(lines))
        return
    from datasets import Dataset, DatasetDict, Features

    features = Features(_feature(columns))
    try:
        made = {
            name: Dataset.from_list(list(rows), features=features) for name, rows in splits.items()
        }
    except (TypeError, ValueError, OverflowError) as error:
        raise FixableError(
            f"{out}: a row does not fit the columns of this format, such as a message with other "
            f"keys than role and content ({shorten(str(error))}); give a name that ends in .jsonl"
        ) from error
    if out.suffix == ".parquet":
        for name, path in targets(out, list(splits)).items():
            with replacing(path) as partial:
                made[name].to_parquet(partial)
        return
    with replacing(out) as partial:
        (DatasetDict(made) if len(made) > 1 else made["train"]).save_to_disk(partial)


def _feature(kind: str | Mapping[str, Any]) -> Any:
    """Return the feature of a column's type."""
    from datasets import Value

    if not isinstance(kind, str):
        return {name: _feature(inner) for name, inner in kind.items()}
    if kind == "messages":
        return [{"role": Value("string"), "content": Value("string")}]
    return Value(_FEATURES[kind])
