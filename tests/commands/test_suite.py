"""`suite`: suites are listed and verified, and evaluations on them become a leaderboard."""

import asyncio
import json
from pathlib import Path

import pytest
from page_blocks import ROOT
from suite_values import (
    BAD,
    GOOD,
    imported,
    lines,
    manifest,
    problems_of,
    write_suite,
)

from reasoning_gym_environment import cli
from reasoning_gym_environment.commands import compare, suite
from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.problems.suites import EARLIER, load_suite
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import TaskPool
from research.leaderboard.__main__ import main as leaderboard

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_evaluations_on_one_suite_become_a_leaderboard(
    pool: TaskPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, folders = await imported(pool, tmp_path)
    capsys.readouterr()
    assert suite.main(["table", *reversed(folders), "--suite", name]) == 0
    head, _, first, second, *_ = capsys.readouterr().out.strip().splitlines()
    assert head == "| rank | model | solved (5) | 95 % | above chance | tokens |"
    assert first.startswith("| 1 | good-model | 100.0% |")
    assert second.startswith("| 2 | bad-model | 0.0% |")
    path = tmp_path / "one.json"
    assert (
        suite.main(["table", folders[0], "--suite", name, "--json", "-o", str(path)])
        == 0
    )
    written = json.loads(path.read_text())
    assert written["suite"] == load_suite(name).identity
    [model] = written["models"]
    assert model["model"] == "good-model"
    assert model["items"] == {"chain_sum": "2/2 2/2", "gcd": "2/2 2/2 2/2"}

    # Results on another suite are neither ranked nor compared.
    other = write_suite(
        tmp_path / "other.json", manifest(await problems_of(pool), version=2)
    )
    with pytest.raises(FixableError, match="run `evaluate --suite tiny`"):
        suite.main(["table", *folders, "--suite", other])
    run = Path(folders[1]) / "run.json"
    settings = json.loads(run.read_text())
    settings["settings"]["suite"] = load_suite(other).identity
    run.write_text(json.dumps(settings))
    with pytest.raises(FixableError, match="evaluate both on one suite"):
        compare.main(folders)


async def test_answers_in_boxes_are_not_ranked(pool: TaskPool, tmp_path: Path) -> None:
    name, folders = await imported(pool, tmp_path)
    samples = Path(folders[0]) / "samples.jsonl"
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    for row in rows:
        row["scoring"] |= {"answer_format": "boxed"}
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(FixableError, match=r"must be tags .* 'boxed'.* `rescore`"):
        suite.main(["table", *folders, "--suite", name])


async def test_results_on_an_earlier_version_are_ranked_by_its_file(
    pool: TaskPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(ROOT / EARLIER / "small@1.json")
    recipes = [recipe for recipe, _ in load_suite(file).recipes()]
    problems = [await pool.generate(each) for each in recipes if each.task == "gcd"]
    answers = tmp_path / "answers.jsonl"
    answers.write_text(lines(problems, set="small"))
    arguments = ["import", str(answers), "-o", str(tmp_path), "--suites", file]
    assert await asyncio.to_thread(leaderboard, arguments) == 0
    folders = [str(tmp_path / "small" / model) for model in (GOOD, BAD)]
    capsys.readouterr()

    assert cli.main(["suite", "table", *folders, "--suite", file]) == 0
    table = capsys.readouterr().out
    assert "| 1 | good-model | 100.0% |" in table
    assert "small@1: training may have asked any of its questions." in table
    assert cli.main(["compare", *folders]) == 0
    assert "gcd" in capsys.readouterr().out
    for name in ("small@1", "small"):
        assert cli.main(["suite", "table", *folders, "--suite", name]) == 2
        assert f"{EARLIER}/small@1.json" in capsys.readouterr().err


async def test_list_and_verify(
    pool: TaskPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write_suite(tmp_path / "tiny.json", manifest(await problems_of(pool)))
    assert suite.main(["list"]) == 0
    assert "small" in capsys.readouterr().out
    assert await asyncio.to_thread(suite.main, ["verify", name]) == 0
    assert "all 5 questions have the hashes of the file" in capsys.readouterr().out


@pytest.mark.processes
async def test_a_suite_of_a_module_that_is_not_given_names_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = Problem(
        recipe=Recipe(task="own_task", seed=1), question="?", oracle="1", entry=b""
    )
    name = write_suite(tmp_path / "own.json", manifest([problem]))
    assert await asyncio.to_thread(cli.main, ["suite", "verify", name]) == 2
    assert (
        "'own_task'; see the `tasks` command (a task of your own"
        in capsys.readouterr().err
    )
