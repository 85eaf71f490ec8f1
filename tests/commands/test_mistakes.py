"""What users get wrong and what they are told: the table in `mistakes.json`, from real runs."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TABLE = Path(__file__).with_name("mistakes.json")
MISTAKES = json.loads(TABLE.read_text())


@pytest.fixture(scope="session")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each mistake is told, from one process that all workers share."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, result = root / "mistakes", root / "mistakes.out"
    with (root / "mistakes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            folder.mkdir()
            _run_all(folder, result)
    found: dict[str, str] = json.loads(result.read_text())
    return found


def _run_all(folder: Path, result: Path) -> None:
    known = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    done = subprocess.run(
        [sys.executable, str(TESTS / "mistake_runs.py"), str(TABLE), str(folder)],
        env={**known, "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    result.write_text(done.stdout)


@pytest.mark.processes
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_sentence_with_the_way_out(mistake: str, said: dict[str, str]) -> None:
    assert said[mistake] == MISTAKES[mistake]["said"]
