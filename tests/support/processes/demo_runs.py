"""The demo command, run for as long as this machine needs."""

import shutil
import subprocess
import sys
from pathlib import Path


def run_demo(folder: Path, *options: str, groups: int = 1, seconds: int = 8) -> None:
    """Run it until it makes enough groups, and its trainer pulls some.

    The folder has its rollouts, and what it said in `demo.out`.
    """
    while True:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "reasoning_gym_environment", "demo"),
                *("--seconds", str(seconds), *options, "--data-dumps-dir", str(folder)),
            ],
            capture_output=True,
            text=True,
            timeout=900 + seconds,  # it ends by itself: for a demo that hangs
        )
        assert "PyTorch was not found" not in done.stderr, "it needs none"
        made = sum(
            dump.read_bytes().count(b"\n") for dump in folder.glob("*_rollouts_*.jsonl")
        )
        pulled_none = "error: the trainer received no group" in done.stderr
        assert done.returncode == 0 or pulled_none, done.stdout + done.stderr
        if made >= groups and not pulled_none:
            (folder / "demo.out").write_text(done.stdout)
            return
        shutil.rmtree(folder)
        seconds *= 2
