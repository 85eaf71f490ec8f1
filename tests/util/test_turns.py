"""A few go ahead at a time; nobody waits for long for what hangs."""

import asyncio

import pytest

from reasoning_gym_environment.util.turns import Turns


async def test_no_more_than_the_most_go_ahead_and_in_the_order_they_came() -> None:
    turns, begun, running, most = Turns(2), list[int](), 0, 0

    async def job(number: int) -> None:
        nonlocal running, most
        async with turns.turn():
            begun.append(number)
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*map(job, range(7)))
    assert begun == [*range(7)]
    assert most == 2


async def test_who_has_waited_for_long_goes_ahead_of_what_hangs() -> None:
    turns, forever = Turns(1, patience=0.05), asyncio.Event()

    async def hang() -> None:
        async with turns.turn():
            await forever.wait()

    hanging = asyncio.create_task(hang())
    await asyncio.sleep(0)
    for _ in range(2):
        async with turns.turn():
            pass
    forever.set()
    await hanging


async def test_a_place_that_comes_as_its_waiter_is_cancelled_is_free_again() -> None:
    turns = Turns(1, patience=60.0)

    async def job() -> None:
        async with turns.turn():
            await asyncio.sleep(0)

    for turns_of_the_loop in range(5):
        async with turns.turn():
            waiting = asyncio.create_task(job())
            await asyncio.sleep(0)
        for _ in range(turns_of_the_loop):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.wait_for(job(), timeout=5)


async def test_a_place_is_free_again_after_a_failure_and_for_who_gave_up_waiting() -> None:
    turns = Turns(1, patience=60.0)
    with pytest.raises(ZeroDivisionError):
        async with turns.turn():
            _ = 1 / 0

    async def job() -> None:
        async with turns.turn():
            pass

    async with turns.turn():
        waiting = asyncio.create_task(job())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert waiting.cancelled()
    await asyncio.wait_for(job(), timeout=5)
