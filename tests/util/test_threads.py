"""What is large is done beside the event loop, one job after another; what is small at once."""

import asyncio
import threading
import time

import pytest

from reasoning_gym_environment.util.concurrency import (
    LARGE,
    run_in_thread,
    run_in_thread_if_large,
)


async def test_small_work_is_done_in_its_own_thread_and_large_in_another() -> None:
    own_thread = threading.get_ident()
    small = await run_in_thread_if_large(threading.get_ident, tokens=LARGE - 1)
    assert small == own_thread
    thread = await run_in_thread_if_large(threading.get_ident, tokens=LARGE)
    assert await run_in_thread(threading.get_ident) == thread != threading.get_ident()


async def test_large_jobs_are_done_in_one_other_thread_and_the_loop_goes_on() -> None:
    running = most = 0
    loop_went_on = threading.Event()

    def job() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        assert loop_went_on.wait(60)
        time.sleep(0.01)
        running -= 1
        return threading.get_ident()

    jobs = asyncio.gather(
        *(run_in_thread_if_large(job, tokens=LARGE) for _ in range(5))
    )
    while not running:
        await asyncio.sleep(0.001)
    loop_went_on.set()
    await jobs
    assert most == 1
    assert len({*await jobs} - {threading.get_ident()}) == 1


@pytest.mark.parametrize("tokens", [0, LARGE])
async def test_what_it_raises_is_raised(tokens: int) -> None:
    with pytest.raises(ZeroDivisionError):
        await run_in_thread_if_large(lambda: 1 / 0, tokens=tokens)


async def test_who_is_cancelled_waits_for_the_end_of_the_work() -> None:
    ended = threading.Event()

    def job() -> None:
        time.sleep(0.05)
        ended.set()

    asker = asyncio.create_task(run_in_thread_if_large(job, tokens=LARGE))
    await asyncio.sleep(0.01)
    asker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asker
    assert ended.is_set()
