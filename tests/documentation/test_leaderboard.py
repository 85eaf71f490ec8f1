"""The leaderboard's files fit their schema, its page shows them, and its tables sort."""

import sys
from pathlib import Path

import pytest
from page_blocks import ROOT

from reasoning_gym_environment.evaluation.leaderboard import read_standings
from reasoning_gym_environment.problems.suites import load_suite

sys.path.insert(0, str(ROOT / "research"))
from leaderboard import fill

FILES = sorted((ROOT / "docs" / "leaderboard").glob("*/*.json"))
PAGE = ROOT / "docs" / "leaderboard.md"


@pytest.mark.parametrize("path", [pytest.param(p, id=f"{p.parent.name}-{p.stem}") for p in FILES])
def test_a_file_has_one_model_on_its_suite(path: Path) -> None:
    [standing] = read_standings(path, load_suite(path.parent.name))
    assert standing.model == path.stem
    assert 0 < standing.items <= len(load_suite(path.parent.name))


def test_the_page_has_the_tables_of_the_files() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert fill(text, ROOT / "docs" / "leaderboard") == text
    assert text.count("openai_o3-mini") == 2
