"""Notes beside the dumps: the last one on a thing counts, and no name leads to another file."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reasoning_gym_environment.storage.dumps import holds_groups
from reasoning_gym_environment.storage.notes import (
    MOST_BYTES,
    notes_path,
    read_notes,
    write_note,
)

ROLLOUT = "0123456789.3"


def test_the_last_note_on_a_thing_counts_and_an_empty_one_removes_it(
    tmp_path: Path,
) -> None:
    assert read_notes(tmp_path, "r") == {}
    for about, text in (
        (ROLLOUT, "first"),
        ("step 12", "the disk was full\n\x1b[31m"),
        (ROLLOUT, "second \ud800"),
        ("step 3", "gone"),
        ("step 3", ""),
    ):
        write_note(tmp_path, "r", about, text)
    expected = {ROLLOUT: "second \ud800", "step 12": "the disk was full\n\x1b[31m"}
    assert read_notes(tmp_path, "r") == expected
    assert read_notes(tmp_path, "other") == {}
    [path] = tmp_path.iterdir()
    assert path.read_bytes().isascii()
    assert not holds_groups(path.name)
    with path.open("a") as file:
        file.write('{"torn\n[]\n{"time": "t", "about": "/etc", "text": "x"}\n')
    assert read_notes(tmp_path, "r") == expected


@pytest.mark.parametrize(
    ("run", "about", "text", "said"),
    [
        ("../r", ROLLOUT, "x", "no notes can be stored for a run of this name"),
        ("r", "../x", "x", "about must be a rollout or a step"),
        ("r", "step 1\n", "x", "about must be a rollout or a step"),
        ("r", ROLLOUT, "x" * 2001, "text must have at most 2000 characters"),
    ],
)
def test_other_names_things_and_texts_are_refused(
    run: str, about: str, text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=said):
        write_note(tmp_path, run, about, text)
    assert [*tmp_path.iterdir()] == []


def test_no_link_leads_out_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    secret = tmp_path / "secret"
    note = {"time": "t", "about": "step 1", "text": "secret"}
    secret.write_text(json.dumps(note) + "\n")
    path = notes_path(folder, "r")
    assert path is not None
    for target in (secret, tmp_path / "new"):
        path.symlink_to(target)
        assert read_notes(folder, "r") == {}
        with pytest.raises(ValueError, match="no notes can be stored"):
            write_note(folder, "r", "step 1", "x")
        path.unlink()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_link_to_a_dump_of_the_folder_takes_no_note(
    link: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    dump = tmp_path / "reasoning_gym_environment_rollouts_r_0000.jsonl"
    dump.write_text("a row\n")
    path = notes_path(tmp_path, "r")
    assert path is not None
    link(path, dump)
    with pytest.raises(ValueError, match=r"no notes can be stored|move it away"):
        write_note(tmp_path, "r", "step 1", "x")
    assert dump.read_text() == "a row\n"


def test_a_full_file_takes_no_note_and_keeps_its_own(tmp_path: Path) -> None:
    write_note(tmp_path, "r", "step 1", "kept")
    path = notes_path(tmp_path, "r")
    assert path is not None
    with path.open("ab") as file:
        file.write(b"x" * (MOST_BYTES - path.stat().st_size))
    with pytest.raises(ValueError, match="is full, with 4194304 bytes"):
        write_note(tmp_path, "r", "step 2", "x")
    assert read_notes(tmp_path, "r") == {"step 1": "kept"}
