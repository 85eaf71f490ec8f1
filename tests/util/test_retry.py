"""Retries end with their pauses or at their deadline."""

import asyncio
import time

import pytest

from reasoning_gym_environment.util.outages import Retry


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which only pauses move; its other items are the pauses."""
    times = [1000.0]

    async def sleep(seconds: float) -> None:
        times[0] += seconds
        times.append(seconds)

    monkeypatch.setattr(time, "monotonic", lambda: times[0])
    monkeypatch.setattr(asyncio, "sleep", sleep)
    return times


async def attempts(retry: Retry) -> int:
    number = 1
    while await retry.wait():
        number += 1
    return number


async def test_the_last_attempt_begins_at_the_deadline(now: list[float]) -> None:
    retry = Retry(2.5)
    assert await attempts(retry) == 4
    assert now == [1002.5, 1.0, 1.0, 0.5]
    assert retry.left == 0.0


async def test_there_are_as_many_retries_as_pauses(now: list[float]) -> None:
    assert await attempts(Retry(pauses=[0.0, 3.0])) == 3
    assert now[1:] == [0.0, 3.0]


async def test_without_patience_there_is_one_attempt(now: list[float]) -> None:
    assert await attempts(Retry(0.0)) == 1
    assert now == [1000.0]


async def test_a_server_that_asks_for_time_gets_it_or_is_not_asked_again(
    now: list[float],
) -> None:
    retry = Retry(10.0)
    assert await retry.wait(at_least=7.0)
    assert retry.next_pause(at_least=7.0) is None
    assert now == [1007.0, 7.0]
