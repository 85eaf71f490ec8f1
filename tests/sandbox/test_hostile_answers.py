"""Every known hostile answer, through the real pool with the real task."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hostile_answers import CASES, hostile_answer
from process_tree import survivors

from reasoning_gym_environment.records import Recipe, Status, Verdict
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.tasks.facts import PAYS_ANY_ANSWER

pytestmark = pytest.mark.asyncio(loop_scope="module")

JUNK = ("qwxz", "~ ~ ~")
ACCEPTED = {"syllogism", "prime_factorization"}
"""`Yes`, and a number that is prime: right on some items, see `scoring/guards.py`."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[TaskPool]:
    async with TaskPool(PoolSettings(processes=2, verify_timeout=1.5), Counter()) as pool:
        yield pool


async def judge(
    pool: TaskPool, case: dict[str, Any], canary: Path
) -> tuple[list[Verdict], list[Verdict]]:
    """Verdicts on junk alone, and on the same junk with the case's answer in its midst."""
    problem = await pool.generate(Recipe(task=case["task"], seed=case["seed"]))
    honest = [*JUNK, problem.oracle or "none"]
    expected = await pool.verify(problem, honest)
    hostile = hostile_answer(case, problem, canary)
    return expected, await pool.verify(problem, [honest[0], hostile, *honest[1:]])


def scores(verdicts: list[Verdict]) -> list[tuple[float | None, Status]]:
    return [(verdict.score, verdict.status) for verdict in verdicts]


async def test_no_hostile_answer_is_paid_runs_or_touches_another(
    pool: TaskPool, tmp_path: Path
) -> None:
    before = set(pool.pids)
    found = await asyncio.gather(*(judge(pool, case, tmp_path / "canary") for case in CASES))
    paid = []
    for case, (expected, (first, hostile, *rest)) in zip(CASES, found, strict=True):
        assert scores([first, *rest]) == scores(expected), case
        junk = max(verdict.score or 0.0 for verdict in expected[: len(JUNK)])
        if (hostile.score or 0.0) > junk:
            paid.append((case["task"], case.get("answer"), hostile.score))
    assert [p for p in paid if p[0] not in ACCEPTED | PAYS_ANY_ANSWER.keys()] == []
    assert list(tmp_path.iterdir()) == []
    assert set(pool.pids) == before, "a worker was lost"


async def test_nothing_that_hostile_answers_started_is_left(pool: TaskPool) -> None:
    pids = pool.pids
    await pool.close()
    assert await survivors(pids) == set()
