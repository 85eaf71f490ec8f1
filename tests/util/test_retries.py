"""Retries end with their attempts and at their deadline, whichever is later."""

import itertools
import time

import pytest
from clock import Clock

from reasoning_gym_environment.util.retries import Retry, RetryPolicy


@pytest.fixture
def clock() -> Clock:
    return Clock()


def pauses(retry: Retry, clock: Clock, *, attempt_seconds: float = 0.0) -> list[float]:
    """The pauses of an operation that always fails, after so many seconds each time."""
    taken = []
    while True:
        clock.now += attempt_seconds
        pause = retry.next_pause()
        if pause is None:
            return taken
        clock.now += pause
        taken.append(pause)


def test_the_last_attempt_begins_at_the_deadline(clock: Clock) -> None:
    retry = Retry(RetryPolicy(seconds=2.5), clock=clock)
    assert pauses(retry, clock) == [1.0, 1.0, 0.5]
    assert (clock.now, retry.seconds_left) == (1002.5, 0.0)


def test_attempts_are_made_however_long_they_take(clock: Clock) -> None:
    retry = Retry(RetryPolicy(attempts=4, growth=3.0), clock=clock)
    assert pauses(retry, clock, attempt_seconds=99.0) == [1.0, 3.0, 9.0]


def test_there_are_more_attempts_until_the_deadline(clock: Clock) -> None:
    policy = RetryPolicy(attempts=3, seconds=20.0, growth=2.0, longest_pause=5.0)
    taken = pauses(Retry(policy, clock=clock), clock)
    assert taken == [1.0, 2.0, 4.0, 5.0, 5.0, 3.0]


def test_without_patience_there_is_one_attempt(clock: Clock) -> None:
    assert pauses(Retry(RetryPolicy(), clock=clock), clock) == []


def test_an_attempt_as_long_as_many_leaves_the_deadline_alone(clock: Clock) -> None:
    retry = Retry(RetryPolicy(attempts=3, seconds=1.0), clock=clock)
    retry.use_up_attempts()
    assert pauses(retry, clock) == [1.0]


def test_the_deadline_counts_from_when_all_began_to_fail(clock: Clock) -> None:
    retry = Retry(RetryPolicy(attempts=2, seconds=60.0), clock=clock)
    assert retry.next_pause(failing_for=60.0) == 1.0, "the second attempt is due"
    assert retry.next_pause(failing_for=59.5) == 0.5
    assert retry.next_pause(failing_for=60.0) is None
    assert retry.next_pause() == 1.0, "another operation has succeeded"


def test_a_server_that_asks_for_time_gets_it_or_is_not_asked_again(
    clock: Clock,
) -> None:
    retry = Retry(RetryPolicy(seconds=10.0), clock=clock)
    assert retry.next_pause(at_least=7.0) == 7.0
    clock.now += 7.0
    assert retry.next_pause(at_least=7.0) is None


async def test_waiting_takes_the_pause_and_ends_at_once_without_one() -> None:
    retry = Retry(RetryPolicy(attempts=2, first_pause=0.05))
    began = time.monotonic()
    assert await retry.wait()
    assert time.monotonic() - began >= 0.04
    assert not await retry.wait()


def test_pauses_grow_to_a_bound_and_differ() -> None:
    policy = RetryPolicy(first_pause=1.0, growth=2.0, longest_pause=10.0, jitter=True)
    drawn = [list(itertools.islice(policy.pauses(), 8)) for _ in range(200)]
    longest = [max(column) for column in zip(*drawn, strict=True)]
    for pause, bound in zip(longest, [1, 2, 4, 8, 10, 10, 10, 10], strict=True):
        assert 0.8 * bound < pause <= bound
