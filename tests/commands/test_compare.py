"""`compare` prints what is in the files, and nothing of it moves the cursor."""

import json
from pathlib import Path
from typing import Any

import pytest

from reasoning_gym_environment.commands import compare
from reasoning_gym_environment.errors import FixableError

EVIL = "gcd\x1b[2J"


def samples(folder: Path, **recipe: Any) -> str:
    """A folder with one sample, of settings that have a name of their own."""
    said = {"role": "user", "content": "2?"}
    rollout = {
        "conversation": [said],
        "score": 1.0,
        "answer": None,
        "status": "solved",
        "detail": "",
        "raw_score": 1.0,
        "raw_form_score": 1.0,
        "tagged_form_score": None,
        "length_factor": 1.0,
        "finish_reason": "stop",
        "tokens": 1,
        "completion_tokens": 1,
    }
    row = {
        "item_id": EVIL,
        "rollouts": [rollout],
        "schema_version": 1,
        "recipe": {"task": EVIL, "seed": 1, "level": None, "parameters": {}, **recipe},
        "oracle": None,
        "difficulty": None,
    }
    folder.mkdir()
    (folder / "samples.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "run.json").write_text(json.dumps({"settings": {EVIL: folder.name}}))
    return str(folder)


def test_names_from_files_are_shown_and_not_obeyed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main([samples(tmp_path / "a"), samples(tmp_path / "b")]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert 'gcd\\x1b[2J: "a" -> "b"' in shown
    assert shown.count("gcd\\x1b[2J") == 2


def test_evaluations_made_with_other_versions_of_the_library_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [
        samples(tmp_path / version, library_version=version) for version in ("0.1.24", "0.1.25")
    ]
    assert compare.main(folders) == 0
    sentence = "The items were made with reasoning-gym 0.1.24 before and 0.1.25 after: "
    assert capsys.readouterr().out.count(sentence) == 1
    assert compare.main([*folders, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)["made_with"]
    assert made == {"before": ["0.1.24"], "after": ["0.1.25"]}


def test_what_differs_is_named_where_nothing_is_in_common(tmp_path: Path) -> None:
    folders = [samples(tmp_path / "a", seed=1), samples(tmp_path / "b", seed=2)]
    with pytest.raises(FixableError, match=r"differ in gcd\\x1b\[2J \(\"a\", \"b\"\)"):
        compare.main(folders)
