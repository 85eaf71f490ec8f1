"""`suite`: published answers become evaluations, and evaluations a leaderboard."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from suite_values import RECIPES, manifest, problems_of, write_suite

from reasoning_gym_environment.commands import compare, suite
from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.evaluation.store import read_results
from reasoning_gym_environment.problems.suites import load_suite, question_sha256
from reasoning_gym_environment.sandbox.pool import TaskPool

pytestmark = pytest.mark.asyncio(loop_scope="session")

GOOD, BAD = "good-model", "bad-model"


def lines(problems: Any, **changes: Any) -> str:
    """Return a file in which one model is right and the other wrong, but for partial credit."""
    rows = [
        {
            "set": "tiny",
            "task": p.recipe.task,
            "parameters": {},
            "seed": p.recipe.seed,
            "question_sha256_16": question_sha256(p.question)[:16],
            "answers": [
                {"text": f"<answer>{p.oracle}</answer>", "given_by": [[GOOD, 1.0], [GOOD, 0.5]]},
                {"text": "<answer>no number</answer>", "given_by": [[BAD, 0.25]]},
            ],
            **changes,
        }
        for p in problems
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


async def imported(pool: TaskPool, folder: Path) -> tuple[str, list[str]]:
    """Return the suite's file and the folders of both models, with the suite's hash."""
    problems = await problems_of(pool)
    name = write_suite(folder / "tiny.json", manifest(problems))
    (folder / "answers.jsonl").write_text(lines(problems))
    arguments = ["import", str(folder / "answers.jsonl"), "-o", str(folder / "out")]
    assert await asyncio.to_thread(suite.main, [*arguments, "--suites", name]) == 0
    return name, [str(folder / "out" / "tiny" / model) for model in (GOOD, BAD)]


async def test_published_answers_become_rows_of_a_leaderboard(
    pool: TaskPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, folders = await imported(pool, tmp_path)
    results = read_results(Path(folders[0]))
    assert len(results.samples) == len(RECIPES)
    assert [r.other["stored_score"] for r in results.samples[0].rollouts] == [1.0, 0.5]
    assert suite.main(["table", *folders, "--suite", name]) == 0
    head, _, first, second = capsys.readouterr().out.strip().splitlines()[-4:]
    assert head.startswith("| rank | model | items | solved | 95 % | above chance | score |")
    assert first.startswith("| 1 | good-model | 5 | 100.0% |")
    assert "| 1 | 0.750 | 1.000 | 100.0% |" in first
    assert second.startswith("| 2 | bad-model | 5 | 0.0% |")
    assert "| 2 | 0.250 |" in second
    for folder in folders:
        arguments = ["table", folder, "--suite", name, "--json", "-o", f"{folder}.json"]
        assert suite.main(arguments) == 0
    again = [*(f"{folder}.json" for folder in folders), "--suite", name]
    capsys.readouterr()
    assert suite.main(["table", *again]) == 0
    assert capsys.readouterr().out.strip().splitlines()[-2:] == [first, second]


async def test_a_file_of_standings_is_checked(pool: TaskPool, tmp_path: Path) -> None:
    name, folders = await imported(pool, tmp_path)
    path = tmp_path / "one.json"
    suite.main(["table", folders[0], "--suite", name, "--json", "-o", str(path)])
    known = json.loads(path.read_text())
    for changed, said in (
        ({**known, "more": 1}, "more"),
        ({**known, "suite": {**known["suite"], "version": 2}}, "is of the suite"),
        ({**known, "models": [{**known["models"][0], "solved": 1}]}, "solved"),
    ):
        path.write_text(json.dumps(changed))
        with pytest.raises(FixableError, match=said):
            suite.main(["table", str(path), "--suite", name])


async def test_items_that_are_made_differently_are_left_out_and_counted(
    pool: TaskPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = await problems_of(pool)
    path = tmp_path / "answers.jsonl"
    path.write_text(lines(problems[:1]) + lines(problems[1:], question_sha256_16="0" * 16))
    assert await asyncio.to_thread(suite.main, ["import", str(path), "-o", str(tmp_path)]) == 0
    assert "Left out: 4 items that this version of the library makes differently" in (
        capsys.readouterr().out
    )


async def test_results_on_other_suites_are_neither_ranked_nor_compared(
    pool: TaskPool, tmp_path: Path
) -> None:
    name, folders = await imported(pool, tmp_path)
    other = manifest(await problems_of(pool), version=2)
    other_name = write_suite(tmp_path / "other.json", other)
    with pytest.raises(FixableError, match="run `evaluate --suite tiny`"):
        suite.main(["table", *folders, "--suite", other_name])
    run = Path(folders[1]) / "run.json"
    settings = json.loads(run.read_text())
    settings["settings"]["suite"] = load_suite(other_name).identity
    run.write_text(json.dumps(settings))
    with pytest.raises(FixableError, match="evaluate both on one suite"):
        compare.main(folders)
    assert name


async def test_a_model_that_the_file_lacks_is_named(pool: TaskPool, tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_text(lines(await problems_of(pool)))
    arguments = ["import", str(tmp_path / "answers.jsonl"), "-o", str(tmp_path), "--models", "x"]
    with pytest.raises(ConfigurationError, match=r"no answers of x; it has bad-model, good-model"):
        suite.main(arguments)


async def test_list_and_verify(
    pool: TaskPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write_suite(tmp_path / "tiny.json", manifest(await problems_of(pool)))
    assert suite.main(["list"]) == 0
    assert "small" in capsys.readouterr().out
    assert await asyncio.to_thread(suite.main, ["verify", name]) == 0
    assert "all 5 questions have the hashes of the file" in capsys.readouterr().out
