"""The semaphore admits a few at a time, and everyone if the holders hang."""

import asyncio

import pytest
from clock import Clock

from reasoning_gym_environment.util.concurrency import StallTolerantSemaphore


async def test_at_most_two_hold_a_slot_in_order_of_arrival() -> None:
    semaphore, begun, running, most = StallTolerantSemaphore(2), list[int](), 0, 0

    async def job(number: int) -> None:
        nonlocal running, most
        async with semaphore.slot():
            begun.append(number)
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*map(job, range(7)))
    assert begun == [*range(7)]
    assert most == 2


async def test_everyone_is_admitted_if_the_holders_hang() -> None:
    clock, forever = Clock(), asyncio.Event()
    semaphore = StallTolerantSemaphore(1, patience=0.02, clock=clock)

    async def hang() -> None:
        async with semaphore.slot():
            await forever.wait()

    async def job() -> None:
        async with semaphore.slot():
            pass

    hanging, job_task = asyncio.create_task(hang()), asyncio.create_task(job())
    await asyncio.wait([job_task], timeout=0.1)
    assert not job_task.done()  # on the clock no time has passed
    clock.now += 0.02
    await asyncio.wait_for(job_task, timeout=5)
    await asyncio.wait_for(job(), timeout=5)
    forever.set()
    await hanging


async def test_nobody_is_admitted_early_while_slots_are_released() -> None:
    clock, begun, free = Clock(), list[int](), asyncio.Semaphore(0)
    semaphore = StallTolerantSemaphore(1, patience=0.02, clock=clock)

    async def job(number: int) -> None:
        async with semaphore.slot():
            begun.append(number)
            await free.acquire()

    jobs = asyncio.gather(*map(job, range(5)))
    for number in range(5):
        clock.now += 0.015
        await asyncio.wait([jobs], timeout=0.05)
        assert begun == [*range(number + 1)]
        free.release()
        for _ in range(5):
            await asyncio.sleep(0)
    await jobs


async def test_a_slot_acquired_during_cancellation_is_released() -> None:
    semaphore = StallTolerantSemaphore(1, patience=60.0)

    async def job() -> None:
        async with semaphore.slot():
            await asyncio.sleep(0)

    for iterations in range(5):
        async with semaphore.slot():
            waiting = asyncio.create_task(job())
            await asyncio.sleep(0)
        for _ in range(iterations):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.wait_for(job(), timeout=5)


async def test_a_slot_is_released_after_a_failure_and_a_cancelled_wait() -> None:
    semaphore = StallTolerantSemaphore(1, patience=60.0)
    with pytest.raises(ZeroDivisionError):
        async with semaphore.slot():
            _ = 1 / 0

    async def job() -> None:
        async with semaphore.slot():
            pass

    async with semaphore.slot():
        waiting = asyncio.create_task(job())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert waiting.cancelled()
    await asyncio.wait_for(job(), timeout=5)
