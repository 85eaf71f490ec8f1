"""`prove` refuses each task of faulty_tasks.py for its fault, and passes the sound ones."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FAULTY = Path(__file__).resolve().with_name("faulty_tasks.py")
REASONS = {
    "reproducible__clock": "the question differs from one time to the next",
    "reproducible__hash_seed": "the question differs in a process with another hash seed",
    "solvable__label": "an item's own answer is wrong 0.0",
    "not_payable__empty": "'' solves 100%",
    "not_payable__hedges": "solves 100%",
    "not_payable__constant": "'0' solves 100%",
    "not_payable__question": "'question' solves 100%",
    "contained__file": "PermissionError",
    "contained__network": "PermissionError",
    "contained__memory": "a verdict depends on the answers before",
    "levels__effect": "nearly the questions of level 0",
    "levels__questions": "only 20 distinct questions of 200",
    "levels__answers": "'yes' answers 9",
    "bounded__item": "10 s",
    "bounded__verdict": "timeout",
    "bounded__memory": "out_of_memory",
    "disjoint__few": "fewer than 40 questions differ",
}
ALSO = {
    "contained__file": {"solvable"},  # its own answer earns nothing either
    "contained__network": {"solvable"},
    "disjoint__few": {"levels"},
    # So few questions are not split.
    "levels__questions": {"disjoint"},
}
SOUND = ("sound", "sound__caches", "sound__raises", "sound__tuple")
ONE_OF_FIVE_ROWS = (
    "reproducible__hash_seed",
    "solvable__label",
    "not_payable__hedges",
    "contained__memory",
    "bounded__memory",
)
OF_MANY_ITEMS = ("levels__effect", "disjoint__few")
"""Fewer than 40 show neither fault."""

pytestmark = pytest.mark.processes


def prove(folder: Path, *options: str) -> dict[str, dict[str, Any]]:
    """The checks of tasks, by name, from the command."""
    prove = [
        "prove",
        *options,
        "--task-modules",
        str(FAULTY),
        "-o",
        str(folder / "proof.json"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "reasoning_gym_environment", *prove, "--json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    return {
        name: task["checks"] for name, task in json.loads(done.stdout)["tasks"].items()
    }


def require_refused_for_its_fault(task: str, checks: dict[str, Any]) -> None:
    row = task.partition("__")[0]
    failed = {name for name, check in checks.items() if check["verdict"] == "failed"}
    assert failed - ALSO.get(task, set()) == {row} - {"sound"}, (task, checks)
    if task not in SOUND:
        assert REASONS[task] in checks[row]["reason"]
    elif task == "sound__tuple":
        assert "JSON would change an entry" in checks["solvable"]["reason"]


@pytest.mark.nightly
def test_a_fault_of_each_row_is_refused_for_what_it_is(tmp_path: Path) -> None:
    proved = prove(tmp_path, *ONE_OF_FIVE_ROWS, "--items", "14")
    proved |= prove(tmp_path, *OF_MANY_ITEMS, "--items", "40")
    assert proved.keys() == {*ONE_OF_FIVE_ROWS, *OF_MANY_ITEMS}
    for task, checks in proved.items():
        require_refused_for_its_fault(task, checks)


@pytest.mark.slow
def test_every_fault_is_refused_for_what_it_is(tmp_path: Path) -> None:
    proved = prove(tmp_path, "--all", "--seconds", "900")  # on a busy machine too
    assert proved.keys() == {*REASONS, *SOUND}
    for task, checks in proved.items():
        require_refused_for_its_fault(task, checks)
    assert {check["verdict"] for check in proved["sound"].values()} == {"passed"}
