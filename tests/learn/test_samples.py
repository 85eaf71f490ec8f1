"""What the training of a language model prints of two stages at its end."""

import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "tests" / "stored" / "evaluation" / "samples.jsonl"


def test_each_stage_answers_the_first_question_of_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(
        "matplotlib"
    )  # of the extra `learn`, with which results are drawn
    for folder in ("learn", "train_a_language_model"):
        monkeypatch.syspath_prepend(str(ROOT / "examples" / folder))
    rows = [json.loads(line) for line in STORED.read_text().splitlines()]
    stages = {name: tmp_path / name for name in ("cold start", "reinforced")}
    for stage in stages.values():
        stage.mkdir()
        with (stage / "samples.jsonl").open("w") as file:
            for row in rows:
                file.write(json.dumps({**row, "difficulty": 0.0}) + "\n")

    program = ROOT / "examples" / "train_a_language_model" / "samples.py"
    first, *_ = runpy.run_path(str(program))["samples"](stages).split("\n\n")

    heading, before, after = first.splitlines()
    first_row = min(rows, key=lambda row: row["item_id"])
    question = first_row["rollouts"][0]["conversation"][1]["content"]
    assert heading.startswith(f"{first_row['item_id']}: {question!r}")
    assert before.split()[:2] == ["cold", "start"]
    assert after.split()[0] == "reinforced"
