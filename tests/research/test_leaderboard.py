"""Published answers become evaluations and standings; the leaderboard's page shows its files."""

import asyncio
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from page_blocks import ROOT
from suite_values import BAD, GOOD, RECIPES, lines, manifest, problems_of, write_suite

from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.evaluation.store import read_results
from reasoning_gym_environment.problems.suites import load_suite
from reasoning_gym_environment.sandbox.pool import TaskPool
from research.leaderboard import recompute
from research.leaderboard.__main__ import main
from research.leaderboard.page import (
    BEGIN,
    END,
    TABLES,
    boards,
    fill,
    main_columns,
    plot,
)
from research.leaderboard.standings import published_table, read_standings

SESSION = pytest.mark.asyncio(loop_scope="session")
FOLDER = ROOT / "docs" / "leaderboard"
FILES = sorted(FOLDER.glob("*/*.json"))
PAGE = ROOT / "docs" / "leaderboard.md"


@SESSION
async def test_published_answers_become_standings_whose_file_is_checked(
    pool: TaskPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = await problems_of(pool)
    name = write_suite(tmp_path / "tiny.json", manifest(problems))
    answers = tmp_path / "answers.jsonl"
    answers.write_text(
        lines(problems) + lines(problems[1:], question_sha256_16="0" * 16)
    )
    arguments = ["import", str(answers), "-o", str(tmp_path), "--suites", name]
    assert main([*arguments, "--models", "x"]) == 2
    assert "no answers of x; it has bad-model, good-model" in capsys.readouterr().err
    assert await asyncio.to_thread(main, arguments) == 0
    left_out = "Left out: 4 items that this version of the library makes differently"
    assert left_out in capsys.readouterr().out
    good = read_results(tmp_path / "tiny" / GOOD)
    assert len(good.samples) == len(RECIPES)
    assert [r.other["stored_score"] for r in good.samples[0].rollouts] == [1.0, 0.5]

    standings = []
    for model in (BAD, GOOD):
        assert main(["standing", str(tmp_path / "tiny" / model), "--suite", name]) == 0
        file = tmp_path / f"{model}.json"
        file.write_text(capsys.readouterr().out)
        standings += read_standings(file, load_suite(name))
    head, _, first, second, *_ = published_table(
        standings, load_suite(name)
    ).splitlines()
    assert head.startswith("| rank | model | solved (5) |")
    assert first.startswith("| 1 | good-model | 100.0% |")
    assert first.endswith("| 0.750 | 1.000 | 100.0% |")
    assert second.startswith("| 2 | bad-model | 0.0% |")
    assert "| 0.250 |" in second

    known = json.loads(file.read_text())
    for changed, said in (
        ({**known, "more": 1}, "more"),
        ({**known, "suite": {**known["suite"], "version": 2}}, "is of the suite"),
        ({**known, "models": [{**known["models"][0], "items": {"gcd": "1"}}]}, "items"),
        (
            {**known, "models": [{**known["models"][0], "items": {"gcd": "1/1"}}]},
            "other items",
        ),
    ):
        file.write_text(json.dumps(changed))
        with pytest.raises(FixableError, match=said):
            read_standings(file, load_suite(name))


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=f"{p.parent.name}-{p.stem}") for p in FILES]
)
def test_a_file_has_one_model_on_its_suite(path: Path) -> None:
    [standing] = read_standings(path, load_suite(path.parent.name))
    assert standing.model == path.stem


def test_the_pages_have_the_tables_of_the_files() -> None:
    made: list[str] = []

    def keep(table: str) -> str:
        made.append(table)
        return table

    short, whole = (page.read_text(encoding="utf-8") for page in (PAGE, TABLES))
    assert fill(whole, FOLDER, keep) == whole
    for (name, *_), table in zip(boards(FOLDER), made, strict=True):
        assert f"{BEGIN.format(name)}\n\n{main_columns(table)}\n\n{END}" in short
    assert [page.count("| openai_o3-mini |") for page in (short, whole)] == [2, 2]


def test_a_picture_without_matplotlib_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("research.pictures", "matplotlib.pyplot"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(FixableError, match="pip install matplotlib"):
        plot(tmp_path / "picture.svg", FOLDER)


def test_the_page_of_labels_names_the_tasks_that_follow_a_convention() -> None:
    """The page of the leaderboard links to its table."""
    labels = (ROOT / "research" / "labels" / "labels.md").read_text(encoding="utf-8")
    conventions = labels.partition("## Conventions")[2].partition("\n## ")[0]
    page = (ROOT / "docs" / "labels.md").read_text(encoding="utf-8")
    table = page.partition("### Conventions")[2].partition("\n#")[0]
    tasks = re.findall(r"^- (`\w+`):", conventions, re.MULTILINE)
    assert tasks
    assert tasks == re.findall(r"^\| (`\w+`)", table, re.MULTILINE)
    assert "(labels.md#conventions)" in PAGE.read_text(encoding="utf-8")


@pytest.mark.nightly
def test_a_script_without_the_packages_estimators_has_the_figures_of_the_page(
    tmp_path: Path,
) -> None:
    """It tells a changed figure, too."""
    assert recompute.disagreements(ROOT / "docs") == []
    shutil.copytree(FOLDER / "paper-easy", tmp_path / "leaderboard" / "paper-easy")
    text = PAGE.read_text(encoding="utf-8").replace(
        "| 1 | openai_o3-mini |", "| 2 | openai_o3-mini |", 1
    )
    (tmp_path / "leaderboard.md").write_text(text, encoding="utf-8")
    assert recompute.disagreements(tmp_path) == [
        "paper-easy, openai_o3-mini, rank: 2.0, recomputed 1.000"
    ]
    source = Path(recompute.__file__).read_text(encoding="utf-8")
    imported = re.findall(r"^(?:from|import) (\w+|\.)", source, re.MULTILINE)
    standard = {
        "__future__",
        "argparse",
        "json",
        "sys",
        "collections",
        "pathlib",
        "typing",
    }
    assert {*imported} == standard | {"numpy"}
