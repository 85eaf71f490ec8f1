"""`prove` names the one level at which each task of one_level_tasks.py is faulty."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TASKS = Path(__file__).resolve().with_name("one_level_tasks.py")
COUNT = 40
TWO_LEVELS = """
from reasoning_gym_environment import task


def score(answer, data):
    return float(data[1] == 1 or answer == data[0])


@task(levels=2, verifier=score)
def not_payable__anything_1(random, level):
    number = random.randrange(10 ** (level + 4), 10 ** (level + 5))
    return f"Add one to {number}.", str(number + 1), [str(number + 1), level]
"""
"""As `not_payable__anything_1` of TASKS, with fewer levels to prove."""
ONE_OF_EACH_CHECK = (
    "levels__refused_3",
    "not_payable__anything_1",
    "reproducible__hash_seed_2",
    "solvable__solver_2",
    "not_payable__many_3",
    "contained__memory_1",
    "levels__repeated_2",
    "bounded__item_1",
)

pytestmark = pytest.mark.processes


def prove(
    folder: Path, *options: str, module: Path = TASKS
) -> dict[str, dict[str, Any]]:
    """The results of tasks, by name, from the command."""
    command = [
        *(sys.executable, "-m", "reasoning_gym_environment", "prove", *options),
        *("--task-modules", str(module), "-o", str(folder / "proof.json"), "--json"),
        *("--env.generation_timeout", "2"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    tasks: dict[str, dict[str, Any]] = json.loads(done.stdout)["tasks"]
    return tasks


def require_its_level(task: str, result: dict[str, Any]) -> None:
    check, _, rest = task.partition("__")
    level = int(rest[-1])
    # What is made at level 0 is what a task's default makes.
    places = {level} | ({None} if level == 0 else set())
    failed = [one for one in result["findings"] if one["verdict"] == "failed"]
    assert {one["level"] for one in failed} <= places, (task, failed)
    assert result["checks"][check]["verdict"] == "failed", (task, result["checks"])
    assert f"level {level}: " in result["checks"][check]["reason"]


def test_a_fault_of_one_level_is_named_with_its_level(tmp_path: Path) -> None:
    module = tmp_path / "two_levels.py"
    module.write_text(TWO_LEVELS)
    [(task, result)] = prove(tmp_path, "--all", "--items", "10", module=module).items()
    require_its_level(task, result)


@pytest.mark.nightly
def test_a_fault_of_each_check_is_named_with_its_level(tmp_path: Path) -> None:
    proved = prove(tmp_path, *ONE_OF_EACH_CHECK, "--items", "40")
    for task, result in proved.items():
        require_its_level(task, result)


@pytest.mark.slow
def test_the_level_of_each_of_forty_faults_is_named(tmp_path: Path) -> None:
    proved = prove(tmp_path, "--all", "--seconds", "900")
    assert len(proved) == COUNT
    for task, result in proved.items():
        require_its_level(task, result)
