"""Starts with a reasoning-gym whose tasks can't be listed: what loads is used."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from aiohttp import web
from scripted_server import serving

import reasoning_gym_environment

pytestmark = [pytest.mark.processes, pytest.mark.nightly]

PACKAGE = Path(reasoning_gym_environment.__file__).parent
MISSING = "import a_package_that_is_missing\n"

Breaks = Callable[[Path], None]
"""Breaks a copy of the library."""


def replaced(file: Path, *changes: tuple[str, str]) -> None:
    text = file.read_text()
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    file.write_text(text)


def with_rows_of_three(library: Path) -> None:
    """Another shape of the registry."""
    replaced(
        library / "factory.py",
        ("[name] = (dataset_cls, config_cls)", "[name] = (dataset_cls, config_cls, 0)"),
        ("config_cls = DATASETS[name]", "config_cls, _ = DATASETS[name]"),
    )


def without_a_module(library: Path) -> None:
    """One task needs a package that is missing, and the library's import fails."""
    replaced(library / "games" / "rush_hour.py", ("import ", f"{MISSING}import "))


def without_factory(library: Path) -> None:
    """Nothing can be imported."""
    replaced(library / "factory.py", ("from dataclasses", f"{MISSING}from dataclasses"))


def that_builds_nothing(library: Path) -> None:
    """The registry has another shape, and no task loads."""
    with_rows_of_three(library)
    replaced(
        library / "factory.py", ("config = config_cls(**kwargs)", "raise KeyError")
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with copies of this package and of the library, which hide the installed ones."""
    spec = find_spec("reasoning_gym")
    assert spec
    assert spec.origin
    for package in (PACKAGE, Path(spec.origin).parent):
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(package, tmp_path / package.name, ignore=without)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "reasoning_gym_environment", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("breaks", "reason", "used"),
    [
        (with_rows_of_three, "too many values to unpack", ["gcd", "rush_hour"]),
        (without_a_module, "'a_package_that_is_missing'", ["gcd"]),
    ],
)
def test_what_loads_is_used_with_one_warning_that_says_why(
    breaks: Breaks, reason: str, used: list[str], folder: Path
) -> None:
    breaks(folder / "reasoning_gym")
    problems = ("problems", "gcd", "rush_hour", "--levels", "0,1", "--count", "1")
    done = run(folder, *problems, "-o", "rows.jsonl")
    assert done.returncode == 0, done.stderr
    [warning] = [line for line in done.stderr.splitlines() if " WARNING " in line]
    assert reason in warning
    assert f"{103 + len(used)} that load are used" in warning
    rows = map(json.loads, (folder / "rows.jsonl").read_text().splitlines())
    asked = {json.loads(row["recipe"])["task"] for row in rows}
    assert sorted(asked) == used


async def replied(request: web.Request) -> web.Response:
    message = {"role": "assistant", "content": "4"}
    choice = {"message": message, "finish_reason": "stop"}
    return web.json_response({"choices": [choice]})


@pytest.mark.parametrize("breaks", [without_factory, that_builds_nothing])
async def test_a_start_with_no_task_that_loads_ends_with_2(
    breaks: Breaks, folder: Path
) -> None:
    breaks(folder / "reasoning_gym")
    async with serving([web.post("/v1/chat/completions", replied)]) as url:
        evaluate = ("evaluate", "--model", "m", "--url", f"{url}/v1")
        done = await asyncio.to_thread(run, folder, *evaluate)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert "no task of reasoning-gym loads" in last
    assert "pip install reasoning-gym==" in last
