"""What is read again must be ours, and of this version."""

from pathlib import Path
from typing import Any

import pytest
from stored_values import attempt, stored, write_dump

from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.storage.dumps import distinct_files, read_groups, rescored_path
from reasoning_gym_environment.util.files import replacing, require_free, require_writable


def test_groups_are_read_and_torn_lines_counted(tmp_path: Path) -> None:
    rows = [stored(attempt(1.0)), stored(attempt(0.0), seed=4)]
    groups, torn = read_groups(write_dump(tmp_path / "d.jsonl", rows, torn=True))
    assert ([group.to_json() for group in groups], torn) == (rows, 1)


@pytest.mark.parametrize(
    ("row", "found"),
    [({"schema_version": 2}, "schema version 2"), ({"scores": [1.0]}, "no schema version")],
)
def test_rows_of_another_schema_are_refused(
    tmp_path: Path, row: dict[str, object], found: str
) -> None:
    path = write_dump(tmp_path / "d.jsonl", [stored(attempt(1.0)), row])
    with pytest.raises(FixableError, match=rf"d\.jsonl: row 2 has {found}, this program reads 1"):
        read_groups(path)


@pytest.mark.parametrize("torn", [True, False])
def test_a_file_without_groups_is_named(tmp_path: Path, torn: bool) -> None:
    with pytest.raises(FixableError, match=r"d\.jsonl holds no groups"):
        read_groups(write_dump(tmp_path / "d.jsonl", [], torn=torn))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FixableError, match=r"none\.jsonl can't be read: No such file"):
        read_groups(tmp_path / "none.jsonl")


def test_a_file_and_its_rescored_form_are_not_read_together() -> None:
    dump = Path("dumps/a.jsonl")
    assert rescored_path(dump) == Path("dumps/a.rescored.jsonl")
    for path in (dump, dump.resolve()):
        with pytest.raises(FixableError, match="hold the same rollouts: give one of them"):
            distinct_files([rescored_path(dump), path])


def test_files_are_read_once_and_in_their_order() -> None:
    one, other = Path("dumps/a.jsonl"), Path("b.rescored.jsonl")
    assert distinct_files([one, other, Path("dumps/../dumps/a.jsonl")]) == [one, other]


def changed(place: str, value: object) -> dict[str, object]:
    """A row with another value at a place such as `rollouts.0.status`."""
    row = stored(attempt(1.0))
    *way, last = [int(step) if step.isdigit() else step for step in place.split(".")]
    record: Any = row
    for step in way:
        record = record[step]
    record[last] = value
    return row


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        ("rollouts", [], "it has no rollouts"),
        ("rollouts", ["a"], "'a' is no JSON object"),
        ("rollouts.0", {"conversation": []}, "it lacks score"),
        ("rollouts.0.conversation", [], "a conversation is empty"),
        ("rollouts.0.conversation.0.content", ["text"], r"content is \['text'\]"),
        ("rollouts.0.status", "splendid", "'splendid' is not a valid Status"),
        ("rollouts.0.score", float("nan"), "score is nan"),
        ("rollouts.0.length_factor", 10**400, "length_factor is 1000"),
        ("rollouts.0.raw_score", 2, "raw_score is 2, which is not in"),
        ("rollouts.0.raw_score", "1", "raw_score is '1'"),
        ("rollouts.0.tokens", 2.5, "tokens is 2.5"),
        ("rollouts.0.tokens", 10**300, "tokens is 1000"),
        ("rollouts.0.tokens", 2**63, "tokens is 9223372036854775808"),
        ("rollouts.0.tokens", True, "tokens is True"),
        ("rollouts.0.completion_tokens", -(2**64), "completion_tokens is -18446744073709551616"),
        ("rollouts.0.score", 2**60, "score is 1152921504606846976"),
        ("rollouts.0.verify_seconds", 10**30, "verify_seconds is 1000"),
        ("difficulty", 10**30, "difficulty is 1000"),
        ("recipe.seed", 10**300, "its seed is a number of 997 bits|seed is 1000"),
        ("recipe.parameters", {"n": 10**300}, "'n' has a number that is not finite or beyond"),
        ("recipe", {"task": "gcd"}, "it lacks seed"),
        ("recipe.hint", 1, "its recipe has an unknown hint"),
        ("time", 5, "time is 5"),
    ],
)
def test_a_row_that_makes_no_sense_is_named(
    tmp_path: Path, place: str, value: object, says: str
) -> None:
    path = write_dump(tmp_path / "d.jsonl", [stored(attempt(1.0)), changed(place, value)])
    with pytest.raises(FixableError, match=rf"d\.jsonl: row 2 is no group of rollouts: {says}"):
        read_groups(path)


def test_nothing_is_replaced_unless_forced(tmp_path: Path) -> None:
    path = write_dump(tmp_path / "d.jsonl", [])
    require_free(path, force=True)
    require_free(tmp_path / "other", force=False)
    with pytest.raises(FixableError, match=r"d\.jsonl exists; --force replaces it"):
        require_free(path, force=False)


def test_what_fails_halfway_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError), replacing(path) as partial:
        partial.write_text("half of it \ud800")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("file", "old")]


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for name in ("old", "new"):
        with replacing(path) as partial:
            partial.mkdir()
            (partial / name).touch()
    assert [file.relative_to(tmp_path) for file in tmp_path.rglob("*")] == [
        Path("folder"),
        Path("folder/new"),
    ]


def test_a_link_to_a_folder_is_replaced_and_not_what_it_leads_to(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    link = tmp_path / "link"
    link.symlink_to(kept)
    with replacing(link) as partial:
        partial.mkdir()
    assert not link.is_symlink()
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["file", "kept", "link"]


def test_a_file_replaces_no_folder_and_a_folder_no_file(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    file.touch()
    with pytest.raises(FixableError, match="folder can't be written: "), replacing(folder) as one:
        one.touch()
    with pytest.raises(FixableError, match="file can't be written: "), replacing(file) as two:
        two.mkdir()
    assert {path.name: path.is_dir() for path in tmp_path.iterdir()} == {
        "folder": True,
        "file": False,
    }


def test_a_place_that_cant_be_written_to_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(FixableError, match="file/a can't be written: "), replacing(file / "a"):
        pass
    require_writable(tmp_path)
    with pytest.raises(FixableError, match="none can't be written to: No such file"):
        require_writable(tmp_path / "none")
