"""Outages are logged when they begin, once a minute, and when they end."""

import asyncio

import pytest
from clock import Clock

from reasoning_gym_environment.util.log_throttle import THROTTLE
from reasoning_gym_environment.util.outages import Outage, limit_loop_errors


@pytest.fixture
def clock() -> Clock:
    """The time of outages and of the log."""
    clock = Clock()
    THROTTLE.reset(clock)
    return clock


def test_an_outage_has_a_beginning_a_line_a_minute_and_an_end(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage(clock, server="The API")
    with outage.request() as a:
        for _ in range(70):
            outage.record_failure("refused", losses=0, request=a)
            clock.now += 1.0
        outage.add_losses(1)
    with outage.request() as b:
        outage.end(b)
        outage.end(b)
    assert caplog.messages == [
        "The API doesn't answer: refused",
        "The API doesn't answer for 60 s: refused",
        "The API is back after 70 s, 1 groups lost",
    ]


def test_any_failed_request_keeps_an_outage(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage(clock, server="The API")
    with outage.request() as a, outage.request() as b:
        outage.record_failure("413", losses=0, request=a)
        assert outage.end(b) is None
        assert outage
        assert outage.end(a) == 0.0
        outage.record_failure("refused", request=a)
    assert caplog.messages == [
        "The API doesn't answer: 413",
        "The API is back after 0 s, 0 groups lost",
        "The API doesn't answer: refused",
    ]
    assert outage.end() == 0.0  # a request that has ended fails no more


def test_seconds_before_the_failure_count(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage(clock, server="The server", unit="requests given up")
    outage.record_failure("it hangs", losses=0, already=8.0)
    clock.now += 2.0
    outage.end()
    assert caplog.messages == [
        "The server doesn't answer for 8 s: it hangs",
        "The server is back after 10 s, 0 requests given up",
    ]


def test_an_outage_counts_what_is_lost_until_its_end(clock: Clock) -> None:
    outage = Outage(clock)
    for seconds in range(200):
        clock.now = 1000.0 + seconds
        outage.record_failure()
    assert outage.losses == 200
    assert (outage.seconds, outage.end()) == (199, 199)
    assert (outage.seconds, outage.end()) == (0, None)
    clock.now += 1
    assert not outage
    outage.record_failure()  # the next one starts from zero
    assert (bool(outage), outage.losses) == (True, 1)


def test_messages_about_an_outage_are_logged_at_once_and_then_once_a_minute(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage(clock, server="The API")
    for seconds in range(200):
        clock.now = 1000.0 + seconds
        outage.record_failure(f"second {seconds}")
    outage.end()
    outage.record_failure("again")  # another outage
    said = "The API doesn't answer"
    assert caplog.messages == [
        f"{said}: second 0",
        f"{said} for 60 s: second 60",
        f"{said} for 120 s: second 120",
        f"{said} for 180 s: second 180",
        "The API is back after 199 s, 200 groups lost",
        f"{said}: again",
    ]


async def test_loop_errors_are_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    limit_loop_errors(loop)
    for _ in range(1000):
        loop.call_exception_handler(
            {"message": "socket.accept() out of system resource"}
        )
        loop.call_exception_handler({"message": "Task exception was never retrieved"})
    assert caplog.messages == [
        "socket.accept() out of system resource",
        "Task exception was never retrieved",
    ]
