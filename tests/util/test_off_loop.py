"""What is large is done beside the event loop, one job after another; what is small at once."""

import asyncio
import threading
import time

import pytest

from reasoning_gym_environment.util.off_loop import LARGE, off_loop


async def test_small_work_is_done_at_once_in_the_same_thread() -> None:
    assert await off_loop(threading.get_ident, tokens=LARGE - 1) == threading.get_ident()


async def test_large_jobs_are_done_in_one_other_thread_and_the_loop_goes_on() -> None:
    running = most = 0

    def job() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.01)
        running -= 1
        return threading.get_ident()

    jobs = asyncio.gather(*(off_loop(job, tokens=LARGE) for _ in range(5)))
    turns = 0
    while not jobs.done():
        turns += 1
        await asyncio.sleep(0.001)
    assert turns > 5
    assert most == 1
    assert len({*await jobs} - {threading.get_ident()}) == 1


@pytest.mark.parametrize("tokens", [0, LARGE])
async def test_what_it_raises_is_raised(tokens: int) -> None:
    with pytest.raises(ZeroDivisionError):
        await off_loop(lambda: 1 / 0, tokens=tokens)
