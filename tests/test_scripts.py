"""Scripts beside the package: each can be loaded, and the quick ones do what they say."""

import importlib.util
import subprocess
import sys

import pytest
from page_blocks import ROOT

FOLDERS = ("benchmarks", "docs", "examples", "research")
NEEDS = {
    "research/labels": "z3",
    "research/ladder_shares.py": "torch",
    "research/learning.py": "torch",
    "research/upstream.py": "torch",
    "examples/learn": "torch",
    "examples/train_a_language_model": "torch",
    "examples/train_with_trl.py": "trl",
    "examples/train_with_openenv.py": "openenv",
    "examples/skyrl_stream.py": "skyrl_gym",
    "examples/reasoning_core_tasks.py": "reasoning_core",
    "examples/rlve_tasks.py": "Gym",
    "examples/internbootcamp_tasks.py": "internbootcamp",
    "docs/site_hooks.py": "mkdocs",
    "docs/reference_docstrings.py": "griffe",
}
"""What a script imports that is not installed for all tests, by the start of its path."""

SCRIPTS = sorted(
    str(path.relative_to(ROOT))
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    if ".venv" not in path.parts and path.name != "__main__.py"
)

LOAD = """
import importlib, importlib.util, sys, traceback
from pathlib import Path

failed = False
for script in sys.argv[1:]:
    path = Path(script)
    sys.path[:0] = [str(path.parent), str(Path.cwd())]
    try:
        if path.parts[0] == "research":
            importlib.import_module(".".join(path.with_suffix("").parts))
            continue
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    except BaseException:
        failed = True
        print(script, file=sys.stderr)
        traceback.print_exc()
sys.exit(failed)
"""


def is_installed(script: str) -> bool:
    """Return whether the packages that a script needs are there."""
    needed = [
        package for beginning, package in NEEDS.items() if script.startswith(beginning)
    ]
    return all(importlib.util.find_spec(package) is not None for package in needed)


def run(*command: str, seconds: float = 240.0) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_script_can_be_loaded(folder: str) -> None:
    """A script runs when it is started, not when it is imported."""
    scripts = [script for script in SCRIPTS if script.startswith(f"{folder}/")]
    run("-c", LOAD, *filter(is_installed, scripts))


@pytest.mark.nightly
@pytest.mark.processes
@pytest.mark.parametrize(
    "command",
    [
        "benchmarks/codebase.py",
        "benchmarks/throughput.py --groups 40",
        "benchmarks/mixed_servers.py --minutes 0.5",
        "-m research.make_suites --help",
        "-m research.teaching_levels --ladders 20",
        "-m research.reproducibility --help",
        "-m research.leaderboard --help",
        "-m research.field --help",
    ],
)
def test_a_quick_command_runs(command: str) -> None:
    assert run(*command.split())
