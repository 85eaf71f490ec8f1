"""Stored groups are validated when they are read."""

import re
from pathlib import Path
from typing import Any

import pytest
from stored_values import attempt, stored, write_dump

from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.evaluation.store import read_samples
from reasoning_gym_environment.storage.dumps import (
    distinct_files,
    read_groups,
    rescored_path,
)
from reasoning_gym_environment.util.files import replacing, require_free, require_place


def test_groups_are_read_and_torn_lines_counted(tmp_path: Path) -> None:
    rows = [stored(attempt(1.0)), stored(attempt(0.0), seed=4)]
    groups, torn = read_groups(write_dump(tmp_path / "d.jsonl", rows, torn=True))
    assert ([group.to_json() for group in groups], torn) == (rows, 1)


@pytest.mark.parametrize(
    ("row", "found"),
    [({"schema_version": 2}, "2"), ({"scores": [1.0]}, "None")],
)
def test_another_schema_is_refused(
    tmp_path: Path, row: dict[str, object], found: str
) -> None:
    path = write_dump(tmp_path / "d.jsonl", [stored(attempt(1.0)), row])
    with pytest.raises(
        FixableError, match=rf"d\.jsonl: row 2 is not .* must be 1, got {found}\b"
    ):
        read_groups(path)
    with pytest.raises(
        FixableError, match=rf"an evaluation sample \(.* must be 1, got {found}\)"
    ):
        read_samples(write_dump(tmp_path / "samples.jsonl", [row]))


def test_a_file_without_groups_and_a_missing_file_are_named(tmp_path: Path) -> None:
    for torn in (True, False):
        with pytest.raises(FixableError, match=r"d\.jsonl holds no groups"):
            read_groups(write_dump(tmp_path / "d.jsonl", [], torn=torn))
    with pytest.raises(FixableError, match=r"none\.jsonl can't be read: No such file"):
        read_groups(tmp_path / "none.jsonl")


def test_a_file_and_its_rescored_form_are_not_read_together() -> None:
    dump = Path("dumps/a.jsonl")
    assert rescored_path(dump) == Path("dumps/a.rescored.jsonl")
    for path in (dump, dump.resolve()):
        with pytest.raises(
            FixableError, match="hold the same rollouts: give one of them"
        ):
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


LARGE = "int <= 9007199254740992"
SMALL = "int >= -9007199254740992"
TALK = {"conversation": [{"role": "user", "content": "?"}]}


def require_refused(folder: Path, row: dict[str, object], says: str) -> None:
    path = write_dump(folder / "d.jsonl", [stored(attempt(1.0)), row])
    with pytest.raises(FixableError) as raised:
        read_groups(path)
    assert f"d.jsonl: row 2 is not a group of rollouts: {says}" in str(raised.value)


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        ("rollouts", [], "array of length >= 1"),
        ("rollouts", {}, "array"),
        ("rollouts.0", "a", "object"),
        ("rollouts.0.conversation", [], "array of length >= 1"),
        ("rollouts.0.conversation.0", "text", "object"),
        ("rollouts.0.conversation.0.content", ["text"], "str"),
        ("rollouts.0.score", float("nan"), "float >= -1.7976931348623157e+308"),
        ("rollouts.0.score", float("inf"), "float <= 1.7976931348623157e+308"),
        ("rollouts.0.score", 2**60, LARGE),
        ("rollouts.0.length_factor", 10**400, LARGE),
        ("rollouts.0.raw_score", 2, "int <= 1"),
        ("rollouts.0.raw_score", -0.5, "float >= 0.0"),
        ("rollouts.0.raw_score", "1", "int | float | null"),
        ("rollouts.0.tokens", 2.5, "int"),
        ("rollouts.0.tokens", 10**300, LARGE),
        ("rollouts.0.tokens", 2**63, LARGE),
        ("rollouts.0.tokens", True, "int"),
        ("rollouts.0.completion_tokens", -(2**64), SMALL),
        ("rollouts.0.verify_seconds", 10**30, LARGE),
        ("rollouts.0.verify_seconds", None, "int | float"),
        ("difficulty", 10**30, LARGE),
        ("time", 5, "str"),
    ],
)
def test_invalid_values_are_named(
    tmp_path: Path, place: str, value: object, expected: str
) -> None:
    key = re.sub(r"\.(\d+)", r"[\1]", place)
    require_refused(
        tmp_path, changed(place, value), f"{key} must be {expected}, got {value!r:.50}"
    )


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        ("rollouts.0", TALK, "rollouts[0]: object missing required field `score`"),
        (
            "rollouts.0.status",
            "splendid",
            "rollouts[0].status: invalid enum value 'splendid'",
        ),
        (
            "rollouts.0.status",
            "\ud800",
            "rollouts[0].status: invalid enum value '\ufffd'",
        ),
        (
            "recipe.parameters",
            {"n": 10**300},
            "'n' has a number that is not finite or beyond 2**53: a number of 997 bits",
        ),
        (
            "recipe.seed",
            10**300,
            "seed must be an integer in [0, 2**53), got a number of 997 bits",
        ),
        ("recipe", {"task": "gcd"}, "a recipe needs a seed, got {'task': 'gcd'}"),
        ("recipe.hint", 1, "a recipe has no field 'hint'; it has "),
    ],
)
def test_another_shape_is_named(
    tmp_path: Path, place: str, value: object, says: str
) -> None:
    require_refused(tmp_path, changed(place, value), says)


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
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [
        ("file", "old")
    ]


def test_nobody_can_predict_a_temporary_name(tmp_path: Path) -> None:
    names = set()
    for _ in range(2):
        with replacing(tmp_path / "file") as partial:
            partial.touch()
            names.add(partial.name)
    assert len(names) == 2


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for name in ("old", "new"):
        with replacing(path) as partial:
            partial.mkdir()
            (partial / name).touch()
    found = [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*")]
    assert found == ["folder", "folder/new"]


def test_a_link_to_a_folder_is_replaced_and_not_what_it_leads_to(
    tmp_path: Path,
) -> None:
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
    with (
        pytest.raises(FixableError, match="folder can't be written: "),
        replacing(folder) as one,
    ):
        one.touch()
    with (
        pytest.raises(FixableError, match="file can't be written: "),
        replacing(file) as two,
    ):
        two.mkdir()
    found = {path.name: path.is_dir() for path in tmp_path.iterdir()}
    assert found == {"folder": True, "file": False}


def test_a_place_that_cant_be_written_to_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with (
        pytest.raises(FixableError, match="file/a can't be written: "),
        replacing(file / "a"),
    ):
        pass
    require_place(tmp_path / "none", "-o")
    with pytest.raises(
        FixableError, match=r"-o: .*/file is not writable \(.*/file is a file\)"
    ):
        require_place(file, "-o")
