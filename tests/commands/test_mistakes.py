"""What users get wrong and what they are told: the table in `mistakes.json`, from real runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TABLE = Path(__file__).with_name("mistakes.json")


@pytest.mark.lengthy
@pytest.mark.processes
def test_a_mistake_gets_one_sentence_with_the_way_out(tmp_path: Path) -> None:
    known = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    done = subprocess.run(
        [sys.executable, str(TESTS / "mistake_runs.py"), str(TABLE), str(tmp_path)],
        env={**known, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    expected = {name: case["said"] for name, case in json.loads(TABLE.read_text()).items()}
    assert json.loads(done.stdout) == expected
