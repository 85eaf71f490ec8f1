"""`make learn`, small: every part is the real one, and they fit together."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from needs_torch import NEEDS_TORCH

from reasoning_gym_environment import compare, read_results
from reasoning_gym_environment.evaluation.comparison import comparison_table
from reasoning_gym_environment.evaluation.store import EvaluationResults

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"tasks": "aiw", "demonstrations": 300, "passes": 4, "steps": 45, "items": 60}
"""A minute: the demonstrations lead to a few right answers, and so to signal."""

pytestmark = NEEDS_TORCH


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run, with `said` for what it printed."""
    folder = tmp_path_factory.mktemp("learn") / "learned"
    options = [
        f"--{name}={value}" for name, value in {**SMALL, "folder": folder}.items()
    ]
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "learn" / "learn.py"), *options],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (folder / "said").write_text(done.stdout)
    return folder


def test_the_trainer_sees_the_probabilities_that_the_endpoint_sampled_with(
    folder: Path,
) -> None:
    """At the first step the weights are those that sampled, so every importance ratio is 1."""
    assert re.search(
        r"step +1 +importance ratio 1\.000 ", (folder / "said").read_text()
    )


def test_the_environment_sent_the_rows_of_every_step(folder: Path) -> None:
    log = (folder / "serve.log").read_text()
    [sent] = re.findall(r"collected = (\d+) sent", log)
    assert int(sent) >= SMALL["steps"] * 16
    assert "token ids through vLLM's /v1/completions" in log
    assert "of the sampled distribution" in log


def held_out(stage: Path) -> EvaluationResults:
    """The results of a stage at the trained level."""
    results = read_results(stage)
    at_level = tuple(sample for sample in results.samples if sample.difficulty == 0)
    return replace(results, samples=at_level)


def test_the_share_of_held_out_problems_rises_beyond_noise(folder: Path) -> None:
    before, after = (
        held_out(folder / "evaluations" / stage)
        for stage in ("cold-start", "reinforced")
    )
    [comparison] = compare(before, after)
    change = comparison.tasks["aiw"]
    assert change.beyond_noise, comparison_table(comparison)
    assert change.after > change.before


def test_it_ends_with_a_table_a_plot_and_a_page(folder: Path) -> None:
    said = (folder / "said").read_text()
    assert re.search(
        r"held-out items solved +untrained +cold start +reinforced\n", said
    )
    assert (
        len(re.findall(r"^aiw +(\d\.\d\d \(\d\.\d\d to \d\.\d\d\) *){3}$", said, re.M))
        == 1
    )
    assert "solved, mean over items" in said
    assert (folder / "learning.svg").stat().st_size > 1000
    assert "<html" in (folder / "report.html").read_text()
