"""The blocking client: in threads, beside a running loop, after a fork, at exit."""

import asyncio
import contextlib
import gc
import inspect
import os
import pickle
import signal
import sys
import threading
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest
from process_tree import children, descendants, in_linux, survivors

from reasoning_gym_environment import AsyncReasoningGym, ProblemStream, ReasoningGym
from reasoning_gym_environment.errors import ConfigurationError, PoolClosedError
from reasoning_gym_environment.gym.streams import AsyncProblemStream
from reasoning_gym_environment.problems.options import StreamOptions

pytestmark = [pytest.mark.processes, in_linux]


@pytest.fixture(scope="module")
def gym() -> Iterator[ReasoningGym]:
    with ReasoningGym(processes=1) as gym:
        yield gym


def right(gym: ReasoningGym) -> bool:
    [problem] = gym.problems("gcd", level=1)
    thought = "I try one thing. " * 10_000  # so long that it is read in a thread
    return gym.score(
        problem, f"<think>{thought}</think><answer>{problem.oracle}</answer>"
    ).solved


def test_help_says_what_a_method_does() -> None:
    pairs = ((ReasoningGym, AsyncReasoningGym), (ProblemStream, AsyncProblemStream))
    for blocking, source in pairs:
        for name, method in vars(blocking).items():
            if not name.startswith("_") and callable(method) and hasattr(source, name):
                assert "see `Async" not in (method.__doc__ or ""), name
    assert ReasoningGym.problems.__doc__ == AsyncReasoningGym.problems.__doc__
    assert ProblemStream.observe.__doc__ == AsyncProblemStream.observe.__doc__


def test_help_shows_each_option() -> None:
    for method in (ReasoningGym.stream, AsyncReasoningGym.stream):
        shown = {*inspect.signature(method).parameters} - {"self"}
        assert shown == {*StreamOptions.model_fields}
    own = inspect.signature(ReasoningGym).parameters
    assert own == inspect.signature(AsyncReasoningGym).parameters
    assert "processes" in own


def test_a_pickled_gym_has_workers_of_its_own(gym: ReasoningGym) -> None:
    assert right(gym)
    before = children(os.getpid())
    with pickle.loads(pickle.dumps(gym)) as copy:
        assert right(copy)
        assert children(os.getpid()) > before
    assert right(gym)


async def test_what_belongs_to_a_process_or_loop_is_not_pickled(
    gym: ReasoningGym,
) -> None:
    async with AsyncReasoningGym() as of_a_loop:
        with pytest.raises(TypeError, match="pickle a ReasoningGym"):
            pickle.dumps(of_a_loop)
    with pytest.raises(TypeError, match="load_state_dict"):
        pickle.dumps(gym.stream(["gcd"]))


async def test_it_works_inside_a_running_event_loop(gym: ReasoningGym) -> None:
    assert asyncio.get_running_loop().is_running()
    assert right(gym)


def test_threads_can_use_it_concurrently(gym: ReasoningGym) -> None:
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: right(gym), range(8))) == [True] * 8


def test_a_stream_is_iterated_and_continued(gym: ReasoningGym) -> None:
    stream = gym.stream(["gcd"], complexity_mode="curriculum", seed=2)
    first = next(iter(stream))
    stream.observe(first, solved=1, attempts=2)
    assert list(stream.levels()) == ["gcd"]
    state = stream.state_dict([first])
    other = gym.stream(["gcd"], complexity_mode="curriculum", seed=2)
    other.load_state_dict(state)
    assert [other.next(), other.next()] == [first, stream.next()]


@contextlib.contextmanager
def policy_without_child_watcher() -> Iterator[None]:
    """Set one, as uvloop's is, where Python asks it."""
    if sys.version_info >= (3, 14):
        yield
        return

    class Policy(asyncio.DefaultEventLoopPolicy):
        def get_child_watcher(self) -> NoReturn:
            raise NotImplementedError

    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(Policy())
    try:
        yield
    finally:
        asyncio.set_event_loop_policy(before)


def test_a_fork_has_its_own_workers(gym: ReasoningGym) -> None:
    stream = gym.stream(["gcd"])
    before = children(os.getpid())
    pid = os.fork()
    if pid == 0:
        try:
            with pytest.raises(PoolClosedError, match="this stream belongs to process"):
                stream.next()
            assert right(gym)
            gym.close()
        except BaseException:  # noqa: BLE001 - a fork of the test run must end here
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert children(os.getpid()) == before
    assert right(gym)
    assert stream.next().recipe.task == "gcd"


ENDS = {
    "the end of the program": "",
    "an exception": "raise SystemExit(3)",
    "kill -9": "os.kill(os.getpid(), 9)",
    "kill -9 while a fork lives on": (
        "if os.fork():\n    os.kill(os.getpid(), 9)\n"
        # Else the program's end would wait for them.
        "os.close(0)\nos.close(1)\ntime.sleep(600)"
    ),
}
USES_A_GYM = """
import os, time
from reasoning_gym_environment import AsyncReasoningGym, ReasoningGym
from reasoning_gym_environment.gym.streams import AsyncProblemStream
os.setpgid(0, 0)
gym = ReasoningGym(processes=1)
[problem] = gym.problems("gcd")
print("ready", flush=True)
input()
"""


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_no_worker_outlives_the_program(end: str) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", USES_A_GYM + end, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    assert program.stdout is not None
    assert program.stdin is not None
    assert await program.stdout.readline() == b"ready\n"
    workers = descendants(program.pid)
    assert len(workers) == 3
    program.stdin.write(b"\n")
    await program.wait()
    left = await survivors(workers)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)  # the fork
    assert left == set()


def test_a_closed_gym_raises() -> None:
    gym = ReasoningGym()
    gym.close()
    gym.close()
    with pytest.raises(PoolClosedError, match="this gym is closed; create a new one"):
        gym.tasks()


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="unknown setting 'prozesses'; did you mean proc"
    ):
        ReasoningGym(prozesses=2)


async def unused(before: set[int]) -> bool:
    """Return whether no process and no thread of a gym is left, after a while."""
    for _ in range(100):
        gc.collect()
        threads = [thread.name for thread in threading.enumerate()]
        if children(os.getpid()) <= before and threads.count("reasoning-gym") <= 1:
            return True
        await asyncio.sleep(0.05)
    return False


async def test_a_gym_that_is_not_closed_leaves_no_process_and_no_thread_under_any_policy(
    gym: ReasoningGym,
) -> None:
    assert right(gym)  # it has a thread and a process of its own
    before = children(os.getpid())
    with policy_without_child_watcher():
        other = ReasoningGym(processes=1)
        assert right(other)
        stream = other.stream(["gcd"])
        del other
        gc.collect()
        assert stream.next().recipe.task == "gcd", "a stream keeps its gym"
        assert children(os.getpid()) > before
        del stream
        assert await unused(before)


def test_an_event_loop_closes_its_gym_and_another_is_told(gym: ReasoningGym) -> None:
    assert right(gym)
    before = children(os.getpid())
    own = AsyncReasoningGym(processes=1)

    async def start() -> AsyncProblemStream:
        stream = await own.stream(["gcd"])
        await stream.next()
        return stream

    stream = asyncio.run(start())
    assert children(os.getpid()) == before
    for call in (own.tasks, stream.next):
        with pytest.raises(
            PoolClosedError, match="this gym belongs to another event loop; create"
        ):
            asyncio.run(call())
    asyncio.run(own.close())
