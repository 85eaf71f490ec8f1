"""Retries: how long the backoff waits, what it logs, and when it resets."""

import asyncio
import logging

import pytest
from clock import Clock

from reasoning_gym_environment.inference.errors import InferenceError
from reasoning_gym_environment.rollouts.backoff import FailureBackoff
from reasoning_gym_environment.util.log_throttle import THROTTLE

TRANSIENT = InferenceError("503 Service Unavailable")
PERMANENT = InferenceError("404 Not Found", is_transient=False)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def backoff(clock: Clock) -> FailureBackoff:
    THROTTLE.reset(clock)
    return FailureBackoff(clock)


async def may_request(backoff: FailureBackoff) -> bool:
    """Whether a group may be asked for now."""
    try:
        await asyncio.wait_for(backoff.wait(), timeout=0.01)
    except asyncio.TimeoutError:
        return False
    return True


async def test_while_groups_come_nobody_waits(backoff: FailureBackoff) -> None:
    for _ in range(3):
        assert await may_request(backoff)
        backoff.record_success()


async def test_the_pause_doubles_to_a_minute(
    backoff: FailureBackoff, clock: Clock
) -> None:
    pauses = []
    for _ in range(8):
        backoff.record_failure("gcd", TRANSIENT)
        pauses.append(backoff.pause)
        assert not await may_request(backoff)
        clock.now += backoff.pause
        assert await may_request(backoff)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_groups_lost_together_make_one_pause(
    backoff: FailureBackoff, clock: Clock
) -> None:
    for _ in range(16):
        backoff.record_failure("gcd", TRANSIENT)
        clock.now += 0.01
    assert backoff.pause == 1.0
    assert backoff.failures == 16


async def test_after_a_pause_a_single_one_asks(
    backoff: FailureBackoff, clock: Clock
) -> None:
    backoff.record_failure("gcd", TRANSIENT)
    clock.now += 1.0
    assert await may_request(backoff)
    assert not await may_request(backoff)
    backoff.record_success()
    assert await may_request(backoff)
    assert await may_request(backoff)


async def test_who_waits_may_request_when_a_group_comes(
    backoff: FailureBackoff,
) -> None:
    backoff.record_failure("gcd", TRANSIENT)
    waiting = asyncio.create_task(backoff.wait())
    await asyncio.sleep(0.01)
    backoff.record_success()
    await asyncio.wait_for(waiting, timeout=60)


async def test_one_line_a_minute_and_one_at_the_end(
    backoff: FailureBackoff, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(5):
        backoff.record_failure("gcd", TRANSIENT)
        clock.now += 30.0
    backoff.record_success()
    backoff.record_failure("gcd", TRANSIENT)
    backoff.record_success()
    assert caplog.messages == [
        "Lost a group of gcd, 1 in a row: 503 Service Unavailable",
        "Lost a group of gcd, 3 in a row: 503 Service Unavailable",
        "Lost a group of gcd, 5 in a row: 503 Service Unavailable",
        "Inference is back after 150 s, 5 groups lost",
    ]


def test_permanent_failures_are_counted_until_a_success(
    backoff: FailureBackoff, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for error in (PERMANENT, TRANSIENT, PERMANENT):
        backoff.record_failure("gcd", error)
    assert (backoff.failures, backoff.permanent) == (3, 2)
    backoff.record_success()
    assert (backoff.failures, backoff.permanent) == (0, 0)
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "Lost a group of gcd, 1 in a row",
        "Inference is back after 0 s, 3 groups lost",
    ]
