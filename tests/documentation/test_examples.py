"""The commands and programs of README and the pages run, on the rollouts of one demo."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import PAGES, ROOT, to_run

pytestmark = pytest.mark.processes

STORED_EVALUATION = ROOT / "tests" / "stored" / "evaluation"
EVALUATIONS = ("evals/base", "evals/tuned", "data_dumps/evaluation_1")
COMMAND = f"""#!/bin/sh
[ "$1" = demo ] && exit  # has run: these are its rollouts
exec {sys.executable} -m reasoning_gym_environment "$@"
"""


def of_pages_with(language: str) -> pytest.MarkDecorator:
    pages = [page for page in PAGES if to_run(page, language)]
    return pytest.mark.parametrize("page", pages, ids=lambda page: page.name)


@pytest.fixture
def folder(demo_run: Path, tmp_path: Path) -> Path:
    """Where somebody stands who has run the demo and two evaluations."""
    shutil.copytree(demo_run, tmp_path / "data_dumps")
    for evaluation in EVALUATIONS:
        shutil.copytree(STORED_EVALUATION, tmp_path / evaluation)
    return tmp_path


def run(arguments: list[str], folder: Path) -> None:
    """Run a program there; `reasoning-gym-environment` is this checkout's."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "reasoning-gym-environment").write_text(COMMAND)
    (programs / "reasoning-gym-environment").chmod(0o755)
    paths = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        arguments,
        cwd=folder,
        env={**os.environ, **paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.nightly
@of_pages_with("sh")
def test_the_commands_of_a_page_run_one_after_the_other(
    page: Path, folder: Path
) -> None:
    (folder / "my_tasks.py").write_text(
        "\n".join(to_run(page, "python")), encoding="utf-8"
    )
    run(["bash", "-euxc", "\n".join(to_run(page, "sh"))], folder)


@pytest.mark.nightly
@of_pages_with("python")
def test_the_programs_of_a_page_run_as_one(page: Path, folder: Path) -> None:
    program = folder / "program.py"
    program.write_text("\n".join(to_run(page, "python")), encoding="utf-8")
    run([sys.executable, "-W", "error", str(program)], folder)
