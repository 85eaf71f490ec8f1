"""Every known hostile answer, through the real pool with the real task."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hostile_answers import CASES, hostile_answer
from process_tree import survivors

from reasoning_gym_environment.records import Recipe, Status, Verdict
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.tasks.facts import PAYS_ANY_ANSWER

JUNK = ("qwxz", "~ ~ ~")
ACCEPTED = {"syllogism", "prime_factorization"}
"""`Yes`, and a number that is prime: right on some items, see `scoring/guards/`."""


def scores(verdicts: list[Verdict]) -> list[tuple[float | None, Status]]:
    return [(verdict.score, verdict.status) for verdict in verdicts]


async def paid(
    pool: TaskPool, item: tuple[str, int], canary: Path
) -> list[dict[str, Any]]:
    """Return the cases of an item that earn more than junk, all asked in the midst of junk."""
    cases = [case for case in CASES if (case["task"], case["seed"]) == item]
    problem = await pool.generate(Recipe(task=item[0], seed=item[1]))
    honest = [*JUNK, problem.oracle or "none"]
    expected = await pool.verify(problem, honest)
    hostile = [hostile_answer(case, problem, canary) for case in cases]
    first, *judged = await pool.verify(problem, [honest[0], *hostile, *honest[1:]])
    assert scores([first, *judged[len(cases) :]]) == scores(expected), item
    most = max(verdict.score or 0.0 for verdict in expected[: len(JUNK)])
    return [
        case
        for case, verdict in zip(cases, judged, strict=False)
        if (verdict.score or 0) > most
    ]


@pytest.mark.processes
async def test_no_hostile_answer_is_paid_runs_touches_another_or_leaves_a_process(
    tmp_path: Path,
) -> None:
    items = dict.fromkeys((case["task"], case["seed"]) for case in CASES)
    async with TaskPool(
        PoolSettings(processes=2, verify_timeout=1.5), Counter()
    ) as pool:
        before = set(pool.pids)
        found = await asyncio.gather(
            *(paid(pool, item, tmp_path / "canary") for item in items)
        )
        accepted = ACCEPTED | PAYS_ANY_ANSWER.keys()
        assert [
            case for cases in found for case in cases if case["task"] not in accepted
        ] == []
        assert list(tmp_path.iterdir()) == []
        assert set(pool.pids) == before, "a worker was lost"
    assert await survivors(before) == set()
