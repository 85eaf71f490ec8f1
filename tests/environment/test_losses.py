"""Groups lost in a row: how long to wait, what is said, and how it ends."""

import asyncio
import logging

import pytest
from clock import Clock

from reasoning_gym_environment.inference.errors import InferenceError
from reasoning_gym_environment.inference.failover import Losses

HEALS = InferenceError("503 Service Unavailable")
FOR_GOOD = InferenceError("404 Not Found", heals=False)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def losses(clock: Clock) -> Losses:
    return Losses(clock)


async def goes_on(losses: Losses) -> bool:
    """Whether a group may be asked for now."""
    try:
        await asyncio.wait_for(losses.turn(), timeout=0.01)
    except asyncio.TimeoutError:
        return False
    return True


async def test_while_groups_come_nobody_waits(losses: Losses) -> None:
    for _ in range(3):
        assert await goes_on(losses)
        losses.came()


async def test_the_pause_doubles_to_a_minute(losses: Losses, clock: Clock) -> None:
    pauses = []
    for _ in range(8):
        losses.lost("gcd", HEALS)
        pauses.append(losses.pause)
        assert not await goes_on(losses)
        clock.now += losses.pause
        assert await goes_on(losses)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_groups_that_are_lost_together_make_one_pause(losses: Losses, clock: Clock) -> None:
    for _ in range(16):
        losses.lost("gcd", HEALS)
        clock.now += 0.01
    assert losses.pause == 1.0
    assert losses.in_a_row == 16


async def test_after_a_pause_one_asks_and_the_others_wait_for_it(
    losses: Losses, clock: Clock
) -> None:
    losses.lost("gcd", HEALS)
    clock.now += 1.0
    assert await goes_on(losses)
    assert not await goes_on(losses)
    losses.came()
    assert await goes_on(losses)
    assert await goes_on(losses)


async def test_who_waits_goes_on_when_a_group_comes(losses: Losses) -> None:
    losses.lost("gcd", HEALS)
    waiting = asyncio.create_task(losses.turn())
    await asyncio.sleep(0.01)
    losses.came()
    await asyncio.wait_for(waiting, timeout=5)


async def test_one_line_a_minute_and_one_at_the_end(
    losses: Losses, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(5):
        losses.lost("gcd", HEALS)
        clock.now += 30.0
    losses.came()
    losses.lost("gcd", HEALS)
    losses.came()
    assert caplog.messages == [
        "Lost a group of gcd, 1 in a row: 503 Service Unavailable",
        "Lost a group of gcd, 3 in a row: 503 Service Unavailable",
        "Lost a group of gcd, 5 in a row: 503 Service Unavailable",
        "Inference is back after 150 s, 5 groups lost",
    ]


def test_what_can_not_heal_is_counted_until_a_group_comes(losses: Losses) -> None:
    for error in (FOR_GOOD, HEALS, FOR_GOOD):
        losses.lost("gcd", error)
    assert (losses.in_a_row, losses.for_good) == (3, 2)
    losses.came()
    assert (losses.in_a_row, losses.for_good) == (0, 0)
