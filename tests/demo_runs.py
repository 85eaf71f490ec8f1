"""The demo command, run to its end."""

import subprocess
import sys
from pathlib import Path


def run_demo(folder: Path, *options: str) -> None:
    """Run it for some seconds; the folder has its rollouts, and what it said in `demo.out`."""
    demo = [sys.executable, "-m", "reasoning_gym_environment", "demo", "--seconds", "8", *options]
    done = subprocess.run(
        [*demo, "--data-dumps-dir", str(folder)], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "demo.out").write_text(done.stdout)
