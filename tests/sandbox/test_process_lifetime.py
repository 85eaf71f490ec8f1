"""Workers end with their pool, whatever way it goes, and know none of its secrets."""

import asyncio
import os
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from fewer_layers import Unscreened
from process_tree import PROC, by_root, children, descendants, is_alive, survivors

from reasoning_gym_environment.errors import WorkerStartError
from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.sandbox._fork_server import ForkServer, worker_environment
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.processes,
    pytest.mark.skipif(not PROC.exists(), reason="reads /proc"),
]

SCRIPT = Path(__file__).with_name("pool_parent.py")
SECRET = "hush-0815"


async def start_parent(state: str) -> tuple[asyncio.subprocess.Process, list[int]]:
    """A process that runs a pool, and its workers' pids."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SCRIPT),
        state,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"WANDB_API_KEY": SECRET, "MY_OWN_TOKEN": SECRET},
    )
    assert process.stdout is not None
    return process, [int(pid) for pid in (await process.stdout.readline()).split()]


@pytest.mark.parametrize("state", ["idle", "verifying", "generating"])
async def test_no_process_outlives_a_parent_that_is_killed(state: str) -> None:
    parent, workers = await start_parent(state)
    family = descendants(parent.pid)
    assert len(workers) == 2
    assert family >= set(workers)
    assert len(family) > len(workers) or state != "verifying"
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    assert await survivors(family) == set()


@by_root
async def test_workers_and_their_children_carry_no_secret_of_their_parent() -> None:
    parent, workers = await start_parent("verifying")
    family = descendants(parent.pid)
    environments = {pid: (PROC / str(pid) / "environ").read_bytes() for pid in family}
    parent.kill()
    await parent.wait()
    await survivors(family)
    assert set(workers) <= set(environments)
    for environment in environments.values():
        assert b"PYTHONHASHSEED=0" in environment
        assert SECRET.encode() not in environment
        assert b"TOKEN" not in environment


@by_root
async def test_generators_do_not_stand_where_the_user_does() -> None:
    server = ForkServer()
    try:
        worker = await server.start("generator")
        assert (PROC / str(worker.pid) / "cwd").resolve() == Path(tempfile.gettempdir()).resolve()
        await worker.kill()
    finally:
        await server.close()


async def test_the_environment_of_workers_is_a_short_list_of_names() -> None:
    kept = {"PATH", "LANG", "TMPDIR"}
    own = {"PYTHONHASHSEED", "PYTHONPATH", "PYTHONWARNINGS"}
    threads = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    assert set(worker_environment()) <= kept | own | threads
    assert worker_environment()["PYTHONHASHSEED"] == "0"


async def test_closing_a_pool_ends_all_its_processes_amid_work_and_may_be_repeated() -> None:
    settings = PoolSettings(processes=1, generation_timeout=100.0, verify_timeout=100.0)
    server = Unscreened()
    pool = TaskPool(settings, Counter(), start_worker=server.start)
    await pool.start()
    puzzle = await pool.generate(Recipe(task="binary_matrix", seed=2))
    hanging = asyncio.create_task(pool.verify(puzzle, ["9**9**9**9"]))
    family = set(pool.pids)
    while len(family) == 2:  # until the answer has a process of its own
        await asyncio.sleep(0.05)
        family = family.union(*(descendants(pid) for pid in pool.pids))
    for _ in range(2):
        await pool.close()
        await server.close()
    assert await survivors(family) == set()
    assert pool.pids == []
    with pytest.raises(asyncio.CancelledError):
        await hanging


async def test_a_pool_that_is_left_by_an_error_leaves_no_process() -> None:
    pids: list[int] = []

    async def fail() -> None:
        async with TaskPool(PoolSettings(processes=1), Counter()) as pool:
            pids.extend(pool.pids)
            assert all(map(is_alive, pids))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert len(pids) == 2
    assert await survivors(pids) == set()


async def test_a_pool_whose_start_is_cancelled_leaves_no_process() -> None:
    before = descendants(os.getpid())
    pool = TaskPool(PoolSettings(processes=1), Counter())
    start = asyncio.create_task(pool.start())
    started: set[int] = set()
    while not started:
        await asyncio.sleep(0.05)
        started = descendants(os.getpid()) - before
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert await survivors(started) == set()


async def test_a_fork_server_that_is_killed_costs_no_worker_and_is_started_again() -> None:
    async with TaskPool(PoolSettings(processes=1), Counter()) as pool:
        workers = set(pool.pids)
        problem = await pool.generate(Recipe(task="gcd", seed=2))
        [server] = [pid for pid in children(os.getpid()) if children(pid) & workers]
        os.kill(server, signal.SIGKILL)
        await survivors([server])
        assert [v.score for v in await pool.verify(problem, [problem.oracle or ""])] == [1.0]
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        await survivors(workers)
        assert (await pool.generate(problem.recipe)).question == problem.question


async def test_a_worker_that_does_not_come_up_says_what_it_printed() -> None:
    server = ForkServer()
    try:
        with pytest.raises(WorkerStartError, match=r"(?s)gardener process did not start.*KeyError"):
            await server.start("gardener")
    finally:
        await server.close()
