"""What is slow to make and shared by all tests, and which tests start processes."""

import asyncio
import fcntl
import gc
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from demo_runs import run_demo
from disabled_protections import Unsandboxed, pool_of
from hypothesis import HealthCheck, settings
from worker_stock import WorkerStock
from xdist.scheduler import LoadScopeScheduling

import reasoning_gym_environment
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.tasks.facts import known_categories
from reasoning_gym_environment.util.log_throttle import THROTTLE

# Property tests state no times: a slow machine is no failure.
settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unhurried")

# Under nohup, programs that tests start would ignore a hangup as we do; a handler ends with exec.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

STARTS_PROCESSES = {
    "subprocess.Popen",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
}
"""Audit events, see the table in the library reference."""
STARTING_FIXTURES = {"pool", "uncontained", "stock", "browser", "demo_run", "commands"}
"""A test that uses one of them, through whatever other fixture, is marked `processes`."""

SHARING_FOLDERS = {"gym", "proof", "service"}
"""Their tests run in one of the workers, so that a pool is started once; elsewhere those of a file
do, so that what they share is made once."""

_unmarked: str | None = None
"""The test that runs, where it has no mark."""


def _refuse_processes(event: str, _: object) -> None:
    """Keep the tests of `make quick` free of processes, which take seconds to start."""
    if event in STARTS_PROCESSES and _unmarked:
        pytest.fail(
            f"{_unmarked} starts a process: mark it with `pytest.mark.processes`, "
            "so that `make quick` leaves it out"
        )


sys.addaudithook(_refuse_processes)

gc.disable()  # until all is imported, which makes no garbage


def pytest_collection_finish() -> None:
    gc.freeze()  # no collection looks at the modules again
    gc.enable()


def pytest_report_header() -> str:
    # `make release` tests an installed one.
    return f"package: {reasoning_gym_environment.__file__}"


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not STARTING_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("processes")


class SharingScheduling(LoadScopeScheduling):
    """Runs tests that share fixtures in one worker.

    pytest-xdist's own groups have no effect with pytest 9.2, which lets it rename no test.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = Path(nodeid.partition("::")[0])
        return path.parent.name if path.parent.name in SHARING_FOLDERS else str(path)


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist nothing is scheduled
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SharingScheduling:
    return SharingScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _unmarked
    _unmarked = None if item.get_closest_marker("processes") else item.nodeid
    try:
        return (yield)
    finally:
        _unmarked = None


@pytest.fixture(autouse=True)
def _unthrottled() -> None:
    """Let each test log what another one has logged a moment ago."""
    THROTTLE.reset()


@pytest.fixture(scope="session")
def pool_counts() -> Counter[str]:
    """Where the shared pool counts."""
    return Counter()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pool(pool_counts: Counter[str]) -> AsyncIterator[TaskPool]:
    """Shared: tests that use it carry `pytest.mark.asyncio(loop_scope="session")`."""
    async with TaskPool(
        PoolSettings(processes=2, generation_timeout=60.0), pool_counts
    ) as pool:
        yield pool


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def uncontained() -> AsyncIterator[TaskPool]:
    """Shared: no screen and no sandbox, to see what answers do without them."""
    async with pool_of(Unsandboxed, PoolSettings(processes=2)) as pool:
        yield pool


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stock() -> AsyncIterator[WorkerStock]:
    stock = WorkerStock()
    yield stock
    await stock.close()


@pytest.fixture(scope="session")
def all_tasks() -> list[str]:
    return sorted(known_categories())


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def problems(pool: TaskPool, all_tasks: list[str]) -> dict[str, list[Problem]]:
    """Task name to problems of two seeds."""
    recipes = [
        Recipe(task=task, seed=seed)
        for task in all_tasks
        for seed in (2**40, 2**52 + 6)
    ]
    made = await asyncio.gather(*(pool.generate(recipe) for recipe in recipes))
    return {task: [p for p in made if p.recipe.task == task] for task in all_tasks}


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    # Imported here since most tests run without transformers, which is slow to import.
    from reasoning_gym_environment.demo.server import build_tokenizer

    return str(build_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="session")
def tokenizer(tokenizer_folder: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tokenizer_folder)


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one demo with all it wrote, `demo.out` what it said: shared by all workers."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder = root / "demo"
    with (root / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "demo.out").exists():
            # A test split of a tenth is not empty; a second start would cost more than the time.
            run_demo(folder, groups=60, seconds=24)
    return folder


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose name is short enough for code in a parameter, which has a bound."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)
