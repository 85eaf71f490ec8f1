"""Processes that the system kills, as it does when memory runs out: tried again, never 0."""

import asyncio
import math
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
from disabled_protections import Unscreened
from process_tree import children, descendants, in_linux, is_alive

from reasoning_gym_environment.errors import GenerationError, WorkerDiedError
from reasoning_gym_environment.records import Problem, Recipe, Status
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool

pytestmark = [pytest.mark.processes, in_linux]

HANGS = "9**9**9**9"

SETTINGS = PoolSettings(processes=1, generation_timeout=20.0, verify_timeout=3.0)


@pytest.fixture(scope="module")
def counts() -> Counter[str]:
    return Counter()


@pytest.fixture(scope="module")
async def unscreened(
    unscreened_server: Unscreened, counts: Counter[str]
) -> AsyncIterator[TaskPool]:
    """Answers come as far as `eval`, behind the filter."""
    async with TaskPool(SETTINGS, counts, start_worker=unscreened_server.start) as pool:
        yield pool


@pytest.fixture(scope="module")
async def matrix(unscreened: TaskPool) -> Problem:
    return await unscreened.generate(Recipe(task="binary_matrix", seed=2))


async def kill(find: Callable[[], set[int]], times: float) -> None:
    """Kill the first process that is found, and the next one that takes its place."""
    killed: set[int] = set()
    while len(killed) < times:
        for pid in filter(is_alive, find() - killed):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            killed.add(pid)
            break
        await asyncio.sleep(0.02)


def hosts_children(pool: TaskPool) -> set[int]:
    """The zygotes, which fork a child for each answer."""
    return {child for pid in pool.pids for child in children(pid)}


def answers_children(pool: TaskPool) -> set[int]:
    """Those that score one answer."""
    return {pid for child in hosts_children(pool) for pid in descendants(child)}


@pytest.mark.parametrize("find", [hosts_children, answers_children])
async def test_an_answer_whose_process_is_killed_three_times_is_unscored(
    find: Callable[[TaskPool], set[int]], unscreened: TaskPool, matrix: Problem
) -> None:
    killing = asyncio.create_task(kill(lambda: find(unscreened), math.inf))
    [verdict] = await unscreened.verify(matrix, [HANGS])
    killing.cancel()
    assert (verdict.score, verdict.status) == (None, Status.UNSCORED)
    assert verdict.detail == "the verifier's process was killed from outside"


async def test_what_is_killed_costs_no_other_answer(
    unscreened: TaskPool, matrix: Problem
) -> None:
    killing = asyncio.create_task(kill(lambda: hosts_children(unscreened), 3))
    verdicts = await unscreened.verify(matrix, [HANGS, matrix.oracle or ""])
    await asyncio.wait_for(killing, 60)
    assert [v.status for v in verdicts] == [Status.UNSCORED, Status.SOLVED]


async def test_an_answer_whose_process_is_killed_once_is_scored_after_all(
    unscreened: TaskPool, matrix: Problem
) -> None:
    killing = asyncio.create_task(kill(lambda: answers_children(unscreened), 1))
    [verdict] = await unscreened.verify(matrix, [HANGS])
    await asyncio.wait_for(killing, 60)
    assert (verdict.score, verdict.status) == (0.0, Status.TIMEOUT)


async def test_an_answer_that_ends_its_process_is_no_victim(
    unscreened: TaskPool, matrix: Problem
) -> None:
    [verdict] = await unscreened.verify(matrix, ["__import__('os')._exit(3)"])
    assert (verdict.score, verdict.status) == (0.0, Status.CRASHED)


class Dying:
    """A worker that dies of every request."""

    missing_protections = ""
    pid = 0

    async def request(self, payload: bytes, *, timeout: float) -> bytes:
        raise WorkerDiedError("the worker process died")

    async def kill(self) -> None: ...


async def dying(role: str) -> Dying:
    return Dying()


async def test_what_always_costs_its_worker_is_given_up(matrix: Problem) -> None:
    counts: Counter[str] = Counter()
    async with TaskPool(SETTINGS, counts, start_worker=dying) as pool:
        [verdict] = await pool.verify(matrix, ["0"])
        with pytest.raises(GenerationError, match="the worker process died"):
            await pool.generate(Recipe(task="gcd", seed=2))
    assert (verdict.score, verdict.status) == (None, Status.UNSCORED)
    assert verdict.detail == "the verifier's host was killed from outside twice"
    assert counts["generation/asked_again"] == 2
    assert counts["generation/errors"] == 1


async def test_a_problem_whose_generator_is_killed_is_made_by_the_next(
    unscreened: TaskPool, counts: Counter[str]
) -> None:
    before = Counter(counts)
    expected = await unscreened.generate(Recipe(task="gcd", seed=2))
    [generator] = unscreened._sources[0].generators.pids
    os.kill(generator, signal.SIGSTOP)
    asked = asyncio.create_task(unscreened.generate(Recipe(task="gcd", seed=2)))
    await asyncio.sleep(0.1)
    os.kill(generator, signal.SIGKILL)
    assert (await asked).question == expected.question
    assert counts - before == {"generation/asked_again": 1, "sandbox/restarts": 1}
