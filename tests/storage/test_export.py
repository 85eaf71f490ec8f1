"""Exports are read by the libraries that they are written for."""

import copy
from pathlib import Path
from typing import Any

import pytest
from datasets import DatasetDict, load_dataset, load_from_disk
from pyarrow import parquet
from stored_values import attempt, stored

from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.storage.export import (
    dpo_rows,
    prepare,
    record_rows,
    require_replaceable,
    sft_rows,
    write_splits,
)
from reasoning_gym_environment.storage.rows import StoredGroup

GROUPS = [
    stored(
        attempt(1.0, f"right {seed}"),
        attempt(0.0, "wrong\x00é😀"),
        attempt(None),
        seed=seed,
    )
    for seed in range(2, 42, 2)
]
FORMATS = {"sft": sft_rows, "dpo": dpo_rows, "records": record_rows}
every_format = pytest.mark.parametrize("layout", FORMATS)


def splits_of(layout: str, share: float = 0.0) -> dict[str, list[dict[str, Any]]]:
    groups = map(StoredGroup.from_json, GROUPS)
    return prepare(
        [item for group in groups for item in FORMATS[layout](group)], share
    )[0]


@every_format
def test_a_parquet_file_holds_the_rows(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    splits = splits_of(layout)
    write_splits(path, splits)
    assert parquet.read_table(path).to_pylist() == splits["train"]
    loaded = load_dataset(
        "parquet", data_files=str(path), cache_dir=str(tmp_path / "cache")
    )
    assert loaded["train"].to_list() == splits["train"]


@every_format
def test_a_folder_is_loaded_from_disk(layout: str, tmp_path: Path) -> None:
    splits = splits_of(layout)
    write_splits(tmp_path / "rows", splits)
    assert load_from_disk(str(tmp_path / "rows")).to_list() == splits["train"]


def test_a_column_has_one_type_in_all_splits_and_several_types_are_refused(
    tmp_path: Path,
) -> None:
    splits: dict[str, Any] = {
        "train": [{"a": None, "b": 1}],
        "test": [{"a": "x", "c": 0.5}],
    }
    write_splits(tmp_path / "rows.parquet", splits)
    train, test = (
        parquet.read_table(tmp_path / f"rows.{name}.parquet") for name in splits
    )
    assert train.schema == test.schema
    assert train.to_pylist() == [{"a": None, "b": 1, "c": None}]
    assert test.to_pylist() == [{"a": "x", "b": None, "c": 0.5}]
    with pytest.raises(
        FixableError, match=r"several types .*; give a name that ends in \.jsonl"
    ):
        write_splits(tmp_path / "rows.parquet", {"train": [{"a": 1}, {"a": "x"}]})


def test_splits_are_a_dataset_dict_or_two_files_and_share_no_item(
    tmp_path: Path,
) -> None:
    splits = splits_of("records", 0.3)
    write_splits(tmp_path / "folder", splits)
    write_splits(tmp_path / "files" / "rows.parquet", splits)
    folder = load_from_disk(str(tmp_path / "folder"))
    files = load_dataset(str(tmp_path / "files"), cache_dir=str(tmp_path / "cache"))
    for loaded in (folder, files):
        assert isinstance(loaded, DatasetDict)
        assert {name: split.to_list() for name, split in loaded.items()} == splits
    train, test = set(folder["train"]["recipe"]), set(folder["test"]["recipe"])
    assert train
    assert test
    assert not train & test


def test_broken_unicode_is_written_as_replacement_characters(tmp_path: Path) -> None:
    group = copy.deepcopy(GROUPS[0])
    group["rollouts"][0]["conversation"][-1]["content"] = "half \ud800"
    group["rollouts"][0]["answer"] = "\udfff"
    splits, _, broken = prepare(list(record_rows(StoredGroup.from_json(group))), 0.0)
    write_splits(tmp_path / "rows.parquet", splits)
    first = parquet.read_table(tmp_path / "rows.parquet").to_pylist()[0]
    assert (first["conversation"][-1]["content"], first["answer"]) == (
        "half \ufffd",
        "\ufffd",
    )
    assert broken == 2


def test_a_folder_without_a_dataset_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    with pytest.raises(FixableError, match="thesis is a folder without a dataset"):
        require_replaceable(tmp_path / "thesis", force=True)
    for share in (0.0, 0.3):
        write_splits(tmp_path / "rows", splits_of("sft", share))
        require_replaceable(tmp_path / "rows", force=True)
        with pytest.raises(FixableError, match="rows exists; --force replaces it"):
            require_replaceable(tmp_path / "rows", force=False)


@pytest.mark.parametrize("layout", ["sft", "dpo"])
def test_trl_takes_the_rows_as_conversational(
    layout: str, tmp_path: Path, tokenizer: Any
) -> None:
    trl = pytest.importorskip("trl.data_utils")
    write_splits(tmp_path / "rows", splits_of(layout))
    for example in load_from_disk(str(tmp_path / "rows")):
        assert trl.is_conversational(example)
        assert trl.maybe_extract_prompt(example) == example
        texts = trl.apply_chat_template(example, tokenizer)
        if layout == "sft":
            assert texts["text"].endswith(
                f"{example['messages'][-1]['content']}<|im_end|>\n"
            )
        else:
            assert texts["prompt"].endswith("?<|im_end|>\n<|im_start|>assistant\n")
            assert texts["chosen"] == f"{example['chosen'][0]['content']}<|im_end|>\n"
            assert (
                texts["rejected"] == f"{example['rejected'][0]['content']}<|im_end|>\n"
            )


def conversation(messages: list[dict[str, str]]) -> list[str]:
    """The roles of well-formed messages: nothing but a role and a text each."""
    assert all(message.keys() == {"role", "content"} for message in messages)
    assert all(
        isinstance(text, str) for message in messages for text in message.values()
    )
    return [message["role"] for message in messages]


def test_rows_are_as_trl_documents_them(tmp_path: Path) -> None:
    """https://huggingface.co/docs/trl/dataset_formats: language modeling and preference."""
    for layout in ("sft", "dpo"):
        write_splits(tmp_path / layout, splits_of(layout))
    for row in load_from_disk(str(tmp_path / "sft")):
        assert conversation(row["messages"]) == ["system", "user", "assistant"]
    for row in load_from_disk(str(tmp_path / "dpo")):
        assert conversation(row["prompt"]) == ["system", "user"]
        assert (
            conversation(row["chosen"])
            == conversation(row["rejected"])
            == ["assistant"]
        )


def test_the_largest_numbers_that_are_read_can_be_written(tmp_path: Path) -> None:
    row = copy.deepcopy(GROUPS[0])
    row["difficulty"] = -(2**53)
    rollout = row["rollouts"][0]
    rollout |= {"tokens": 2**53, "completion_tokens": -(2**53), "score": 2**53}
    items = list(record_rows(StoredGroup.from_json(row)))
    write_splits(tmp_path / "r.parquet", prepare(items, 0.0)[0])
    [first, *_] = parquet.read_table(tmp_path / "r.parquet").to_pylist()
    assert (first["tokens"], first["score"], first["difficulty"]) == (
        2**53,
        2.0**53,
        -(2.0**53),
    )
