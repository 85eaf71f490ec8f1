"""`make train-language-model`, small: it is ended, and goes on by the same command."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "torch", reason="PyTorch is not installed; `pip install '.[learn]'` brings it"
)

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "train_a_language_model" / "train.py"
PYTHON = os.environ.get("REAL_PYTHON", "python")
MODEL = os.environ.get("REAL_MODEL", "model")
SMALL = {"tasks": "aiw,letter_counting", "demonstrations": 150, "steps": 11, "items": 2}
"""After fewer demonstrations it writes no answer tags, no group has signal, and no step is made."""
SECONDS = 1200

pytestmark = [pytest.mark.real, pytest.mark.processes]


def start(folder: Path) -> subprocess.Popen[str]:
    choices = {**SMALL, "folder": folder, "model": MODEL, "vllm": PYTHON}
    return subprocess.Popen(
        [
            sys.executable,
            str(PROGRAM),
            *(f"--{name}={value}" for name, value in choices.items()),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def steps_of(folder: Path) -> list[dict[str, Any]]:
    path = folder / "steps.jsonl"
    return (
        [json.loads(line) for line in path.read_text().splitlines()]
        if path.exists()
        else []
    )


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a run that was ended once, and what it said after that."""
    folder = tmp_path_factory.mktemp("real") / "trained"
    first, give_up = start(folder), time.monotonic() + SECONDS
    try:
        while not (folder / "trainer.pt").exists():
            assert first.poll() is None
            assert time.monotonic() < give_up, "no ten steps were made"
            time.sleep(0.5)
    finally:
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=120)
    second = start(folder)
    said, _ = second.communicate(timeout=SECONDS)
    assert second.returncode == 0
    return folder, said


def test_it_goes_on_where_it_was_ended(ended: tuple[Path, str]) -> None:
    folder, said = ended
    assert "going on after 10 steps" in said
    assert [step["step"] for step in steps_of(folder)] == list(range(1, 12))
    log = (folder / "serve.log").read_text()
    assert "step-10.json at the trainer's step 10" in log


def test_the_trainer_sees_the_probabilities_that_vllm_sampled_with(
    ended: tuple[Path, str],
) -> None:
    assert steps_of(ended[0])[0]["mean_ratio"] == pytest.approx(1, abs=0.01)
    assert all(0.8 < step["mean_ratio"] < 1.25 for step in steps_of(ended[0]))


def test_it_ends_with_a_table_rollouts_a_plot_and_a_page(
    ended: tuple[Path, str],
) -> None:
    folder, said = ended
    assert "solved, mean over items" in said
    assert "right is" in said
    assert (folder / "learning.svg").stat().st_size > 1000
    assert "<html" in (folder / "report.html").read_text()
