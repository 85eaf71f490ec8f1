"""Workers whose memory is used up or that have grown are replaced, and frames have a size."""

import asyncio
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from disabled_protections import LittleMemory, pool_of

from reasoning_gym_environment.errors import GenerationError, WorkerDiedError
from reasoning_gym_environment.records import Problem, Recipe, Status
from reasoning_gym_environment.sandbox._fork_server import ForkServer, WorkerProcess
from reasoning_gym_environment.sandbox._protocol import (
    LENGTH,
    MAX_ANSWER,
    MAX_ANSWERS,
    MAX_REPLY,
)
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.sandbox.worker_groups import WorkerGroup

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        sys.platform != "linux", reason="memory is not limited elsewhere"
    ),
]


def primes_below(number: int) -> Recipe:
    """Return a recipe whose dataset has 8 bytes per number."""
    return Recipe(task="count_primes", seed=2, parameters={"max_n": number})


MANY = [primes_below(3 * 10**6 - index) for index in range(3)]
"""One fits into the memory of a worker, two don't."""

TOO_LARGE = primes_below(10**7)


@pytest.fixture(scope="module")
def counts() -> Counter[str]:
    return Counter()


@pytest.fixture(scope="module")
async def little(counts: Counter[str]) -> AsyncIterator[TaskPool]:
    async with pool_of(LittleMemory, PoolSettings(processes=1), counts) as pool:
        yield pool


async def test_a_generator_without_memory_is_replaced_and_its_problem_made(
    little: TaskPool, counts: Counter[str]
) -> None:
    counts.clear()
    for recipe in MANY:
        assert (await little.generate(recipe)).recipe == recipe
    assert (counts["sandbox/restarts"], counts["generation/errors"]) == (2, 0)


async def test_a_recipe_that_needs_more_than_any_generator_has_is_refused(
    little: TaskPool,
) -> None:
    with pytest.raises(
        GenerationError, match="worker process ran out of memory"
    ) as refused:
        await little.generate(TOO_LARGE)
    assert refused.value.__cause__ is None, (
        "the service would take it for its own failure"
    )
    assert (await little.generate(Recipe(task="gcd", seed=2))).question


async def test_a_verifier_host_without_memory_is_replaced_and_its_answers_scored(
    little: TaskPool, pool: TaskPool, counts: Counter[str]
) -> None:
    problems = [await pool.generate(recipe) for recipe in MANY]
    counts.clear()
    for problem in problems:
        right, wrong = await little.verify(problem, [problem.oracle or "", "x"])
        assert (right.status, wrong.status) == (Status.SOLVED, Status.WRONG)
    assert counts["sandbox/restarts"] == 2


async def test_answers_that_no_host_has_memory_for_are_unscored(
    little: TaskPool, pool: TaskPool
) -> None:
    problem = await pool.generate(TOO_LARGE)
    for verdict in await little.verify(problem, [problem.oracle or "", "x"]):
        assert (verdict.score, verdict.status) == (None, Status.UNSCORED)
        assert verdict.detail == "two verifier hosts ran out of memory"


async def test_a_worker_that_has_grown_is_replaced_after_its_reply() -> None:
    server, counts = ForkServer(), Counter[str]()
    group = WorkerGroup(
        "generator", size=1, counts=counts, start_worker=server.start, max_growth=-1
    )
    await group.start()
    try:
        pids = set()
        for _ in range(3):
            pids |= set(group.pids)
            assert await group.submit(b"\x80\x04\x8c\x07ladders\x94.", timeout=60.0)
            while not group.pids:
                await asyncio.sleep(0.01)
    finally:
        await group.close()
        await server.close()
    assert (len(pids), counts["sandbox/restarts"]) == (3, 3)


async def test_a_reply_beyond_the_limit_is_not_read() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    worker = WorkerProcess(0, reader, writer, ForkServer())
    theirs.send(LENGTH.pack(MAX_REPLY + 1))
    with pytest.raises(
        WorkerDiedError, match=f"a reply of {MAX_REPLY + 1} bytes, more than"
    ):
        await worker.request(b"x", timeout=1.0)
    writer.close()
    theirs.close()


async def test_an_answer_of_more_than_a_million_characters_is_wrong(
    pool: TaskPool,
) -> None:
    gcd: Problem = await pool.generate(Recipe(task="gcd", seed=2))
    long, right = await pool.verify(gcd, ["9" * (MAX_ANSWER + 1), gcd.oracle or ""])
    assert (long.score, long.status) == (0.0, Status.WRONG)
    assert long.detail == f"an answer of more than {MAX_ANSWER} characters"
    assert right.status is Status.SOLVED


async def test_many_long_answers_go_to_the_host_in_parts(pool: TaskPool) -> None:
    gcd: Problem = await pool.generate(Recipe(task="gcd", seed=2))
    long = [
        f"{number:0{MAX_ANSWER}}" for number in range(MAX_ANSWERS // MAX_ANSWER + 1)
    ]
    *wrong, right = await pool.verify(gcd, [*long, gcd.oracle or ""])
    assert right.status is Status.SOLVED
    assert {verdict.status for verdict in wrong} <= {
        Status.WRONG,
        Status.VERIFIER_ERROR,
    }
