"""Published answers become evaluations and standings; the leaderboard's page shows its files."""

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest
from page_blocks import ROOT
from suite_values import RECIPES, imported, lines, problems_of

from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.evaluation.store import read_results
from reasoning_gym_environment.problems.suites import load_suite
from reasoning_gym_environment.sandbox.pool import TaskPool
from research.leaderboard import recompute
from research.leaderboard.__main__ import main
from research.leaderboard.page import TABLES, fill, main_columns
from research.leaderboard.standings import published_table, read_standings

SESSION = pytest.mark.asyncio(loop_scope="session")
FILES = sorted((ROOT / "docs" / "leaderboard").glob("*/*.json"))
PAGE = ROOT / "docs" / "leaderboard.md"


def standings_file(folder: str, name: str, capsys: pytest.CaptureFixture[str]) -> Path:
    capsys.readouterr()
    assert main(["standing", folder, "--suite", name]) == 0
    path = Path(f"{folder}.json")
    path.write_text(capsys.readouterr().out)
    return path


@SESSION
async def test_published_answers_become_standings(
    pool: TaskPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, folders = await imported(pool, tmp_path)
    results = read_results(Path(folders[0]))
    assert len(results.samples) == len(RECIPES)
    assert [r.other["stored_score"] for r in results.samples[0].rollouts] == [1.0, 0.5]
    files = [standings_file(folder, name, capsys) for folder in folders]
    standings = [each for file in files for each in read_standings(file, load_suite(name))]
    head, _, first, second, *_ = published_table(standings, load_suite(name)).splitlines()
    assert head.startswith("| rank | model | solved (5) |")
    assert first.startswith("| 1 | good-model | 100.0% |")
    assert first.endswith("| 0.750 | 1.000 | 100.0% |")
    assert second.startswith("| 2 | bad-model | 0.0% |")
    assert "| 0.250 |" in second


@SESSION
async def test_a_file_of_standings_is_checked(
    pool: TaskPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, folders = await imported(pool, tmp_path)
    path = standings_file(folders[0], name, capsys)
    known = json.loads(path.read_text())
    for changed, said in (
        ({**known, "more": 1}, "more"),
        ({**known, "suite": {**known["suite"], "version": 2}}, "is of the suite"),
        ({**known, "models": [{**known["models"][0], "items": {"gcd": "1"}}]}, "items"),
        ({**known, "models": [{**known["models"][0], "items": {"gcd": "1/1"}}]}, "other items"),
    ):
        path.write_text(json.dumps(changed))
        with pytest.raises(FixableError, match=said):
            read_standings(path, load_suite(name))


@SESSION
async def test_items_that_are_made_differently_are_left_out_and_counted(
    pool: TaskPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = await problems_of(pool)
    path = tmp_path / "answers.jsonl"
    path.write_text(lines(problems[:1]) + lines(problems[1:], question_sha256_16="0" * 16))
    assert await asyncio.to_thread(main, ["import", str(path), "-o", str(tmp_path)]) == 0
    assert "Left out: 4 items that this version of the library makes differently" in (
        capsys.readouterr().out
    )


@SESSION
async def test_a_model_that_the_file_lacks_is_named(
    pool: TaskPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "answers.jsonl").write_text(lines(await problems_of(pool)))
    arguments = ["import", str(tmp_path / "answers.jsonl"), "-o", str(tmp_path), "--models", "x"]
    assert main(arguments) == 2
    assert "no answers of x; it has bad-model, good-model" in capsys.readouterr().err


@pytest.mark.parametrize("path", [pytest.param(p, id=f"{p.parent.name}-{p.stem}") for p in FILES])
def test_a_file_has_one_model_on_its_suite(path: Path) -> None:
    [standing] = read_standings(path, load_suite(path.parent.name))
    assert standing.model == path.stem


def test_the_pages_have_the_tables_of_the_files() -> None:
    for page, change in ((PAGE, main_columns), (TABLES, str)):
        text = page.read_text(encoding="utf-8")
        assert fill(text, ROOT / "docs" / "leaderboard", change) == text
        assert text.count("| openai_o3-mini |") == 2


def test_the_page_names_the_tasks_whose_labels_follow_a_convention() -> None:
    labels = (ROOT / "research" / "labels" / "labels.md").read_text(encoding="utf-8")
    conventions = labels.partition("## Conventions")[2].partition("\n## ")[0]
    named = PAGE.read_text(encoding="utf-8").partition("- **Labels.**")[2].partition("## ")[0]
    tasks = re.findall(r"^- (`\w+`):", conventions, re.MULTILINE)
    assert tasks
    assert set(tasks) <= set(re.findall(r"`\w+`", named))


def test_a_script_without_the_packages_estimators_has_the_figures_of_the_page(
    tmp_path: Path,
) -> None:
    """It tells a changed figure, too."""
    assert recompute.disagreements(ROOT / "docs") == []
    shutil.copytree(ROOT / "docs" / "leaderboard", tmp_path / "leaderboard")
    text = PAGE.read_text(encoding="utf-8").replace(
        "| 1 | openai_o3-mini |", "| 2 | openai_o3-mini |", 1
    )
    (tmp_path / "leaderboard.md").write_text(text, encoding="utf-8")
    assert recompute.disagreements(tmp_path) == [
        "paper-easy, openai_o3-mini, rank: 2.0, recomputed 1.000"
    ]
    source = Path(recompute.__file__).read_text(encoding="utf-8")
    assert re.findall(r"^(?:from|import) (\w+|\.)", source, re.MULTILINE) == [
        "__future__",
        "argparse",
        "json",
        "sys",
        "collections",
        "collections",
        "pathlib",
        "typing",
        "numpy",
        "numpy",
    ]
