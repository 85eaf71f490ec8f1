"""A busy machine changes no verdict; what it starves is unscored, and never wrong."""

import asyncio
import pickle
import time
from collections import Counter
from pathlib import Path

import contained_functions
import pytest
from busy import busy_processes, processors

from reasoning_gym_environment import contain
from reasoning_gym_environment.records import Recipe, Status
from reasoning_gym_environment.sandbox import functions, worker_groups
from reasoning_gym_environment.sandbox._work_clock import COUNTS_STARVATION
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.tasks.modules import find_modules

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not COUNTS_STARVATION, reason="the kernel counts no starvation"),
]

MODULE = Path(__file__).parents[1] / "support" / "programs" / "slow_tasks.py"


async def test_a_verifier_and_a_generator_that_work_for_two_seconds_are_not_hurried() -> (
    None
):
    settings = PoolSettings(
        processes=2,
        generation_timeout=3.0,
        verify_timeout=3.0,
        modules=find_modules([str(MODULE)]),
    )
    recipe = Recipe(task="slow", seed=3)
    async with TaskPool(settings, Counter()) as pool:
        idle = await pool.generate(recipe)
        begin = time.monotonic()
        with busy_processes(processors()):
            busy = await pool.generate(recipe)
            [verdict] = await pool.verify(busy, [busy.oracle or ""])
        seconds = time.monotonic() - begin
    assert verdict.status is Status.SOLVED
    assert (busy.question, pickle.loads(busy.entry)) == (
        idle.question,
        pickle.loads(idle.entry),
    )
    # On the wall, it was more than both limits.
    assert seconds > settings.generation_timeout + settings.verify_timeout


@pytest.mark.nightly
async def test_the_import_of_a_verifiers_modules_is_not_the_answers_time() -> None:
    modules = find_modules([str(MODULE)])
    settings = PoolSettings(processes=1, verify_timeout=0.5, modules=modules)
    async with TaskPool(settings, Counter()) as pool:
        problem = await pool.generate(Recipe(task="late", seed=3))
        verdicts = await pool.verify(problem, ["1", "2"])
    statuses = [verdict.status for verdict in verdicts]
    assert statuses == [Status.SOLVED, Status.WRONG]


def test_what_the_machine_starves_twice_is_unscored_and_holds_up_no_other_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(functions, "FIRST_TRY_SECONDS", 3.0)
    monkeypatch.setattr(worker_groups, "SECOND_TRY_SECONDS", 3.0)
    with (
        contain(contained_functions.works, timeout=3, processes=1) as reward,
        busy_processes(8 * processors()),
    ):
        starved = reward.score("x", ["works", 2.9, 1])
        right = reward.score("x", ["works", 0.0, 1])
    assert (starved.score, starved.status) == (None, Status.UNSCORED)
    assert "too busy" in starved.detail
    assert right.status is Status.SOLVED


async def test_a_second_try_is_alone_and_delays_no_other_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(functions, "FIRST_TRY_SECONDS", 1.5)
    reward = contain(contained_functions.works, timeout=2, processes=1)
    with reward, busy_processes(3 * processors()):
        await reward.score_async("x", ["works", 0.0, 1])
        starved = asyncio.create_task(reward.score_async("x", ["works", 1.0, 1]))
        others = []
        while not starved.done():
            others.append(await reward.score_async("x", ["works", 0.0, 1]))
    assert starved.result().status is Status.SOLVED
    assert len(others) > 1
    assert {verdict.status for verdict in others} == {Status.SOLVED}


@pytest.mark.parametrize(
    "data", [["waits", 60, 1], ["works", 60, 1], ["works", 60, 8]], ids=str
)
def test_no_answer_masks_itself_by_waiting_or_by_a_crowd_of_threads(
    data: list[object],
) -> None:
    with (
        contain(contained_functions.works, timeout=1, processes=1) as reward,
        busy_processes(2 * processors()),
    ):
        verdict = reward.score("x", data)
    assert (verdict.score, verdict.status) == (0.0, Status.TIMEOUT)
