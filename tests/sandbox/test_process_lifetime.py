"""Workers end with their pool, whatever way it goes, and know none of its secrets."""

import asyncio
import os
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from disabled_protections import Unscreened
from process_tree import PROC, children, descendants, in_linux, is_alive, survivors

from reasoning_gym_environment.errors import PoolClosedError, WorkerStartError
from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.sandbox._fork_server import (
    ForkServer,
    worker_environment,
)
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool

pytestmark = [pytest.mark.processes, in_linux]

SCRIPT = Path(__file__).with_name("pool_parent.py")
SECRET = "hush-0815"


@pytest.mark.parametrize("state", ["idle", "verifying", "generating"])
async def test_workers_carry_no_secret_of_a_parent_and_end_when_it_is_killed(
    state: str,
) -> None:
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, str(SCRIPT), state),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"WANDB_API_KEY": SECRET, "MY_OWN_TOKEN": SECRET},
    )
    assert parent.stdout is not None
    workers = {int(pid) for pid in (await parent.stdout.readline()).split()}
    family = descendants(parent.pid)
    assert len(workers) == 2
    assert family >= workers
    assert len(family) > len(workers) or state != "verifying"
    if os.geteuid() == 0:  # only root sees what a protected process has
        for pid in family:
            environment = (PROC / str(pid) / "environ").read_bytes()
            assert b"PYTHONHASHSEED=0" in environment
            assert SECRET.encode() not in environment
            assert b"TOKEN" not in environment
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    assert await survivors(family) == set()


async def test_a_worker_runs_in_the_temporary_folder_and_says_why_it_fails() -> None:
    server = ForkServer()
    try:
        worker = await server.start("generator")
        if os.geteuid() == 0:  # as above
            folder = (PROC / str(worker.pid) / "cwd").resolve()
            assert folder == Path(tempfile.gettempdir()).resolve()
        await worker.kill()
        with pytest.raises(
            WorkerStartError, match=r"(?s)gardener process did not start.*KeyError"
        ):
            await server.start("gardener")
    finally:
        await server.close()


async def test_the_environment_of_workers_is_a_short_list_of_names() -> None:
    kept = {"PATH", "LANG", "TMPDIR"}
    own = {"PYTHONHASHSEED", "PYTHONPATH", "PYTHONWARNINGS"}
    threads = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    assert set(worker_environment()) <= kept | own | threads
    assert worker_environment()["PYTHONHASHSEED"] == "0"


async def test_closing_a_pool_amid_work_ends_its_processes_and_may_repeat() -> None:
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
    with pytest.raises(PoolClosedError):
        await hanging


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


async def test_a_killed_fork_server_costs_no_worker_and_errors_no_process() -> None:
    pids: list[int] = []

    async def fail() -> None:
        async with TaskPool(PoolSettings(processes=1), Counter()) as pool:
            workers = set(pool.pids)
            problem = await pool.generate(Recipe(task="gcd", seed=2))
            [server] = [pid for pid in children(os.getpid()) if children(pid) & workers]
            os.kill(server, signal.SIGKILL)
            await survivors([server])
            assert [
                v.score for v in await pool.verify(problem, [problem.oracle or ""])
            ] == [1.0]
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            await survivors(workers)
            assert (await pool.generate(problem.recipe)).question == problem.question
            assert [
                v.score for v in await pool.verify(problem, [problem.oracle or ""])
            ] == [1.0]
            pids.extend(pool.pids)
            assert all(map(is_alive, pids))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert len(pids) == 2
    assert await survivors(pids) == set()
