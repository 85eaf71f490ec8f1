"""All ways to start reach the same class, and the cheap ones stay cheap."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import reasoning_gym_environment
from reasoning_gym_environment.cli import main
from reasoning_gym_environment.tasks.facts import all_level_floors, known_categories

pytestmark = pytest.mark.processes

FOLDER = Path(reasoning_gym_environment.__file__).parent
SCRIPT = FOLDER / "reasoning_gym_environment.py"
CONSOLE = Path(sys.executable).with_name("reasoning-gym-environment")
HEAVY = (
    "transformers",
    "atroposlib",
    "pydantic",
    "reasoning_gym",
    "wandb",
    "openai",
    "numpy",
)

WAYS = {
    "script, from inside the package": ([sys.executable, SCRIPT.name], FOLDER),
    "script, by path from elsewhere": ([sys.executable, str(SCRIPT)], Path("/")),
    "module": ([sys.executable, "-m", "reasoning_gym_environment"], Path("/")),
    "console script": ([str(CONSOLE)], Path("/")),
}


def run(
    program: list[str], folder: Path, *arguments: str, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program; the module search path begins with `path`."""
    environment = {**os.environ, "PYTHONPATH": str(path)} if path else None
    command = [*program, *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def python(code: str, folder: Path, path: Path | None = None) -> str:
    """What a fresh interpreter prints."""
    done = run([sys.executable, "-c", code], folder, path=path)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(("program", "folder"), WAYS.values(), ids=WAYS)
def test_every_way_to_start_shows_the_same_help_and_reaches_the_environments_settings(
    program: list[str], folder: Path
) -> None:
    done = run(program, folder, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout == run(*WAYS["module"], "--help").stdout
    for command in ("serve", "process", "evaluate", "demo", "tasks"):
        assert f"  {command} " in done.stdout
    done = run(program, folder, "serve", "--help")
    assert done.returncode == 0, done.stderr
    for option in ("--env.include_tasks", "--openai.base_url", "--watch", "--config"):
        assert option in done.stdout


SAME_CLASS = """
import reasoning_gym_environment
from reasoning_gym_environment import ReasoningGymEnv, ReasoningGymEnvConfig
from reasoning_gym_environment.reasoning_gym_environment import ReasoningGymEnv as Same
assert ReasoningGymEnv is Same is reasoning_gym_environment.ReasoningGymEnv
assert ReasoningGymEnv.env_config_cls is ReasoningGymEnvConfig
print(ReasoningGymEnv.__module__, ReasoningGymEnv.__qualname__)
"""


def test_every_import_gives_the_same_class(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the package's own folder is first on the module search path, and second."""
    exec(SAME_CLASS, {})
    expected = "reasoning_gym_environment.reasoning_gym_environment ReasoningGymEnv"
    assert capsys.readouterr().out.strip() == expected
    assert python(SAME_CLASS, FOLDER, FOLDER) == expected


def test_the_help_and_the_import_of_the_package_import_nothing_heavy() -> None:
    heavy = f"print([name for name in {HEAVY!r} if name in sys.modules])"
    help_ = (
        "from reasoning_gym_environment.cli import main; assert not main(['--help'])"
    )
    code = f"import sys, reasoning_gym_environment; {heavy}; {help_}; {heavy}"
    first, *_, last = python(code, Path("/")).splitlines()
    assert (first, last) == ("[]", "[]")


def test_the_tasks_are_listed_as_json_with_reasons() -> None:
    done = run(*WAYS["module"], "tasks", "--json", "--exclude-tasks", "bf, games")
    assert done.returncode == 0, done.stderr
    tasks = {task["name"]: task for task in json.loads(done.stdout)}
    assert len(tasks) == 106
    assert {
        name: tasks[name]["category"] for name in known_categories()
    } == known_categories()
    for task in tasks.values():
        assert task["used"] == (task["reason"] == "")
        levels = len(task.get("levels", ()))
        assert levels >= 3 or task["name"] in ("aiw", "bf", "composite")
    sums = tasks["chain_sum"]
    assert (
        sums.items()
        >= {"category": "arithmetic", "used": True, "origin": "curriculum"}.items()
    )
    assert all(level.keys() <= set(sums["parameters"]) for level in sums["levels"])
    assert not tasks["composite"]["used"]
    assert "full credit" in tasks["game_of_life_halting"]["reason"]
    assert "level 0" in tasks["propositional_logic"]["reason"]
    assert tasks["sudoku"]["reason"] == "excluded by exclude_tasks"


def test_the_tasks_are_listed_for_people() -> None:
    done = run(*WAYS["script, from inside the package"], "tasks")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(lines) == 108  # a line heads the columns
    assert ["chain_sum", "arithmetic", "11", "used"] in [line.split() for line in lines]
    assert lines[-1] == "103 of 105 tasks are used"


def test_a_ladder_is_shown_with_a_question_of_each_level() -> None:
    done = run(*WAYS["module"], "tasks", "count_bits")
    assert done.returncode == 0, done.stderr
    levels = done.stdout.split("\n\nlevel ")
    assert levels[0].startswith(
        "count_bits: 4 levels (repaired) half of all bits are 1 too often"
    )
    assert [level.split()[:3] for level in levels[1:]] == [
        ["0", "difficulty", "0.00"],
        ["1", "difficulty", "0.33"],
        ["2", "difficulty", "0.67"],
        ["3", "difficulty", "1.00"],
    ]
    assert all("binary representation" in level for level in levels[1:])
    assert "no reasoning: " not in done.stdout


def test_a_ladder_shows_the_floors_of_half_or_more() -> None:
    done = run(*WAYS["module"], "tasks", "--levels", "mini_sudoku")
    [lines] = [level.splitlines() for level in done.stdout.split("\n\n")[1:2]]
    measured = all_level_floors()["mini_sudoku"][0].no_reasoning
    assert lines[0].startswith("level 0  difficulty 0.00")
    assert (
        lines[1].split()
        == (
            f"no reasoning: the rule '{measured.label}' solves {measured.solved:.0%} "
            f"({measured.low:.0%} to {measured.high:.0%})"
        ).split()
    )
    assert done.stdout.count("no reasoning: ") == 1


def test_the_version_is_the_installed_packages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--version"]) == 0
    installed = version("reasoning-gym-environment")
    assert capsys.readouterr().out == f"reasoning-gym-environment {installed}\n"
    assert reasoning_gym_environment.__version__ == installed


@pytest.mark.parametrize(("program", "folder"), WAYS.values(), ids=WAYS)
def test_no_command_says_what_to_type_above_the_help_and_fails(
    program: list[str], folder: Path
) -> None:
    done = run(program, folder)
    assert done.returncode == 2
    first, empty, usage, *_ = done.stdout.splitlines()
    assert "`serve` to feed a trainer" in first
    assert empty == ""
    assert usage.startswith("usage: ")


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_a_closed_pipe_ends_the_help_quietly(option: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        done = subprocess.run(
            [sys.executable, "-m", "reasoning_gym_environment", option],
            stdout=output,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
