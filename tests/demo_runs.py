"""The demo command, run to its end."""

import shutil
import subprocess
import sys
from pathlib import Path

ENOUGH_GROUPS = 60
"""For the commands of the pages: a test split of a tenth of the questions is never empty."""


def run_demo(folder: Path, *options: str, seconds: int = 8) -> None:
    """Run it for some seconds; the folder has its rollouts, and what it said in `demo.out`."""
    demo = [sys.executable, "-m", "reasoning_gym_environment", "demo", "--seconds", str(seconds)]
    done = subprocess.run(
        [*demo, *options, "--data-dumps-dir", str(folder)],
        capture_output=True,
        text=True,
        timeout=200 + seconds,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "demo.out").write_text(done.stdout)


def run_demo_for_groups(folder: Path) -> None:
    """Run it for as long as this machine needs for enough groups."""
    seconds = 16
    run_demo(folder, seconds=seconds)
    while _count_groups(folder) < ENOUGH_GROUPS:
        shutil.rmtree(folder)
        seconds *= 2
        run_demo(folder, seconds=seconds)


def _count_groups(folder: Path) -> int:
    return sum(dump.read_bytes().count(b"\n") for dump in folder.glob("*_rollouts_*.jsonl"))
