"""The check finds false labels, also planted ones, and says what the item checks miss."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from worker_stock import WorkerStock

from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from research.labels.__main__ import main
from research.labels.check import Kind, LabelAudit, audit_level, summary

SESSION = pytest.mark.asyncio(loop_scope="session")


class FaultyCopy(TaskPool):
    """A pool whose labels of gcd are one too large, on every third item."""

    async def generate(self, recipe: Recipe) -> Problem:
        problem = await super().generate(recipe)
        if recipe.task != "gcd" or recipe.seed // 2 % 3 or problem.oracle is None:
            return problem
        return replace(problem, oracle=str(int(problem.oracle) + 1))


async def audited(pool: TaskPool, task: str, items: int) -> LabelAudit:
    with ThreadPoolExecutor(1) as executor:
        return await audit_level(pool, executor, task, None, {}, items=items)


@SESSION
async def test_a_planted_fault_is_found_and_the_check_misses_it(
    stock: WorkerStock,
) -> None:
    settings = PoolSettings(processes=1)
    async with FaultyCopy(settings, Counter(), start_worker=stock.lend) as pool:
        found = await audited(pool, "gcd", 12)
    planted = [e for e in found.examples if e.kind is Kind.FALSE]
    assert len(planted) == found.count(Kind.FALSE) == len(found.missed) > 0
    assert {e.recipe.seed // 2 % 3 for e in planted} == {0}
    assert f"miss {len(planted)} of them" in summary([found])


@SESSION
@pytest.mark.parametrize("task", ["syllogism", "family_relationships", "aiw"])
async def test_the_known_faults_are_found_and_checked(
    pool: TaskPool, task: str
) -> None:
    found = await audited(pool, task, 60)
    assert found.count(Kind.FALSE, Kind.UNANSWERABLE) > 2
    assert (found.missed, found.refused) == ([], [])


@SESSION
async def test_a_sound_task_has_no_finding(pool: TaskPool) -> None:
    found = await audited(pool, "lcm", 12)
    assert (found.items, found.failed, found.examples) == (12, 0, [])


@pytest.mark.nightly
@pytest.mark.processes
def test_the_command_writes_a_page_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("z3", reason="needs the extra `labels`")
    page = tmp_path / "labels.md"
    options = ["--tasks", "syllogism", "--items", "20", "--level-items", "2", "--json"]
    assert main(["check", *options, "--markdown", str(page)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["level"] for row in rows} == {None, 0, 1, 2, 3}
    assert rows[0]["missed"] == rows[0]["refused"] == 0
    assert rows[0]["left_out"] == len(
        {e["recipe"]["seed"] for e in rows[0]["examples"]}
    )
    data = json.loads(page.with_suffix(".json").read_text())
    assert data["tasks"]["syllogism"]["items"] == [20, 8]
    assert {e["recipe"]["task"] for e in data["examples"]} == {"syllogism"}
    assert "| `syllogism` | false label " in page.read_text()


@pytest.mark.parametrize("option", ["--items", "--level-items"])
def test_a_check_of_no_items_is_refused(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["check", option, "0"])
    assert f"{option}: must be an integer ≥ 1, got 0" in capsys.readouterr().err
