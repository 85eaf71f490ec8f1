"""Code in a text reaches no other process, terminal or device, as root and as another user.

`tests/test_deploy.py` runs this file as uid 65534.
"""

import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from disabled_protections import WITHOUT_LANDLOCK, Unscreened, pool_of
from filter_attempts import where_filtered
from process_tree import PROC, descendants
from sandbox_attacks import ELSEWHERE, ON_A_PROCESS, program

from reasoning_gym_environment import Status, contain
from reasoning_gym_environment.errors import ConfigurationError, WorkerStartError
from reasoning_gym_environment.gym.containment import ContainedFunction
from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.sandbox import _landlock, functions
from reasoning_gym_environment.sandbox.pool import PoolSettings
from reasoning_gym_environment.tasks.facts import EXECUTES_ANSWERS

pytestmark = [pytest.mark.processes, where_filtered]

ROOT = os.geteuid() == 0
ALL = ["network", "processes", "write"]


def has_landlock() -> bool:
    try:
        return _landlock.landlock_rules(write=True) > 0
    except OSError:
        return False


@asynccontextmanager
async def executing(
    allow: list[str],
) -> AsyncIterator[tuple[ContainedFunction, set[int]]]:
    """A contained function that runs its text, and its processes with a call of a sibling."""
    others = descendants(os.getpid())
    with contain(
        "contained_functions:executes", allow=allow, processes=2, timeout=600
    ) as reward:
        reward.start()
        workers = descendants(os.getpid()) - others
        sibling = asyncio.create_task(
            reward.score_async("import time; time.sleep(1000)")
        )
        while not (family := descendants(os.getpid()) - others) > workers:
            await asyncio.sleep(0.01)
        yield reward, family
        sibling.cancel()


@pytest.fixture
def terminal() -> Iterator[str]:
    """The name of one that is open."""
    ends = pty.openpty()
    yield os.ttyname(ends[1])
    for end in ends:
        os.close(end)


@pytest.mark.parametrize("allow", [[], ALL])
async def test_a_text_that_runs_reaches_nothing_else(
    allow: list[str], terminal: str
) -> None:
    if not has_landlock():
        pytest.skip("this kernel has no Landlock")
    async with executing(allow) as (reward, family):
        everyone = [os.getpid(), *family]
        attacks = program({**ON_A_PROCESS, **ELSEWHERE}, everyone, terminal=terminal)
        verdict = await reward.score_async(attacks)
        assert (verdict.status, verdict.detail) == (Status.SOLVED, "")
        assert reward.missing_protections == []


@pytest.mark.parametrize("allow", [[], ALL])
async def test_without_landlock_it_reaches_no_worker_and_the_gap_is_named(
    allow: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functions, "PROGRAM", WITHOUT_LANDLOCK)
    async with executing(allow) as (reward, family):
        pids = [os.getpid(), *family] if ROOT else family
        verdict = await reward.score_async(program(ON_A_PROCESS, pids, terminal=""))
        assert (verdict.status, verdict.detail) == (Status.SOLVED, "")
        gap = "No Landlock: the kernel refuses it (Function not implemented)."
        assert reward.missing_protections == [f"function processes: {gap}"]
    refused = contain(
        "contained_functions:executes", processes=1, require_containment=True
    )
    with pytest.raises(
        ConfigurationError, match=r"the sandbox is incomplete .*No Landlock"
    ):
        refused.start()


async def test_the_attacks_succeed_where_nothing_is_contained() -> None:
    with subprocess.Popen(["sleep", "1000"]) as victim:
        for name, attack in ON_A_PROCESS.items():
            tried = program({name: attack}, [victim.pid], terminal="")
            done = subprocess.run(
                [sys.executable, "-c", tried], capture_output=True, text=True
            )
            assert f"RuntimeError: [('{name}', {victim.pid})]" in done.stderr
        victim.kill()


async def test_answers_of_the_tasks_that_execute_them_reach_nothing_else_nor_any_pipe(
    terminal: str,
) -> None:
    """Without the screen. One that reaches something ends its process; the second always does."""
    others = descendants(os.getpid())

    def opened() -> list[str]:
        names: list[str] = []
        for pid in descendants(os.getpid()) - others:
            with suppress(FileNotFoundError):  # it has ended
                names += map(os.readlink, (PROC / str(pid) / "fd").iterdir())
        return names

    async with (
        executing([]),
        pool_of(Unscreened, PoolSettings(processes=1, verify_timeout=1000.0)) as pool,
    ):
        for task in sorted(EXECUTES_ANSWERS):
            problem = await pool.generate(Recipe(task=task, seed=2))
            everyone = [os.getpid(), *descendants(os.getpid())]
            tried = program({**ON_A_PROCESS, **ELSEWHERE}, everyone, terminal=terminal)
            ends = "import os\ntry:\n    exec({!r}, {{}})\n{}:\n    os._exit(3)"
            codes = [
                ends.format(tried, when) for when in ("except RuntimeError", "finally")
            ]
            answers = [
                'exec("'
                + "".join(f"\\x{ord(character):02x}" for character in code)
                + '")'
                for code in codes
            ]
            statuses = [
                verdict.status for verdict in await pool.verify(problem, answers)
            ]
            assert statuses[0] is not Status.CRASHED, task
            assert statuses[1] is Status.CRASHED, task
        if not ROOT:  # who alone sees the descriptors of a protected process
            return
        problem = await pool.generate(Recipe(task="countdown", seed=2))
        hanging = asyncio.create_task(pool.verify(problem, ["9**9**9**9"]))
        processes = 4 + 5  # of the function; server, generator, host, zygote and child
        while len(descendants(os.getpid()) - others) < processes:
            await asyncio.sleep(0.01)
        for _ in range(600):  # one that has just been started may have its parent's
            pipes = [name for name in opened() if name.startswith("pipe:")]
            if not pipes:
                break
            await asyncio.sleep(0.1)
        assert pipes == []
        assert len(opened()) > 20
        hanging.cancel()


@pytest.mark.parametrize(
    ("name", "allow"),
    [("forks_without_end", ["processes"]), ("starts_threads_without_end", [])],
)
async def test_a_call_with_too_many_processes_or_threads_is_killed(
    name: str, allow: list[str]
) -> None:
    with contain(
        f"contained_functions:{name}", allow=allow, processes=1, timeout=60
    ) as reward:
        verdict = await reward.score_async("x")
        # Stacks take memory.
        assert verdict.status in (Status.CRASHED, Status.OUT_OF_MEMORY)
        assert verdict.score == 0.0


async def test_no_call_sees_what_another_wrote_to_memory_shared_by_import() -> None:
    with contain("contained_functions:remembers", processes=1) as reward:
        assert [(await reward.score_async("x")).score for _ in range(3)] == [1.0] * 3


LINKED = """
import os, sys
from pathlib import Path
from reasoning_gym_environment.sandbox import _landlock
os.chroot(sys.argv[1])
assert _landlock.isolate(write=True) is None
Path("/tmp/file").write_text("")
try:
    Path("/link/file").write_text("")
except PermissionError:
    print("refused")
"""


@pytest.mark.skipif(not ROOT, reason="only root changes its root folder")
async def test_a_link_at_the_root_allows_no_more_than_its_target(
    tmp_path: Path,
) -> None:
    if not has_landlock():
        pytest.skip("this kernel has no Landlock")
    for folder in ("dev", "tmp"):
        (tmp_path / folder).mkdir()
    (tmp_path / "link").symlink_to("/dev")
    (tmp_path / "dangling").symlink_to("/nowhere")
    command = [sys.executable, "-c", LINKED, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("refused\n", "")


LARGE = """
import mmap, resource
from reasoning_gym_environment.sandbox._limits import address_space
MEMORY = mmap.mmap(-1, 2**31 + 4096)
MEMORY[-1] = 1
if {limit}:
    resource.setrlimit(resource.RLIMIT_AS, [address_space() + 2**30] * 2)

def remembers(text, data):
    MEMORY[-1] += 1
    return MEMORY[-1] == 2
"""


@pytest.mark.nightly
async def test_large_memory_is_copied_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large_memory.py").write_text(LARGE.format(limit=False))
    monkeypatch.syspath_prepend(tmp_path)
    with contain("large_memory:remembers", processes=1) as reward:
        assert [(await reward.score_async("x")).score for _ in range(2)] == [1.0] * 2


async def test_memory_that_cannot_be_copied_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no_memory.py").write_text(LARGE.format(limit=True))
    monkeypatch.syspath_prepend(tmp_path)
    refused = contain("no_memory:remembers", processes=1)
    with pytest.raises(
        WorkerStartError, match=f"no copy of {2**31 + 4096} bytes of memory"
    ):
        refused.start()
