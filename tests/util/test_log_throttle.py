"""Throttled messages are logged once per interval, for any handler."""

import io
import logging
from collections.abc import Iterator

import pytest
from clock import Clock

from reasoning_gym_environment.util.log_throttle import (
    LogPauses,
    Reminders,
    ThrottleFilter,
    throttled,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def logger(clock: Clock) -> Iterator[logging.Logger]:
    """A logger of its own with the filter."""
    logger = logging.getLogger("test_log_throttle")
    throttle = ThrottleFilter(clock)
    logger.addFilter(throttle)
    yield logger
    logger.removeFilter(throttle)


def test_a_message_is_logged_at_once_and_then_once_a_minute(
    logger: logging.Logger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(200):
        clock.now = 1000.0 + second
        logger.warning("failed at %d", second, extra=throttled())
    assert caplog.messages == [f"failed at {second}" for second in (0, 60, 120, 180)]


def test_a_call_may_name_another_interval(
    logger: logging.Logger, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(25):
        clock.now = 1000.0 + second
        logger.warning("at %d", second, extra=throttled(interval=10.0))
    assert caplog.messages == ["at 0", "at 10", "at 20"]


def test_each_message_and_each_subject_has_its_own_interval(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        for server in ("a", "b"):
            logger.warning("%s fails", server, extra=throttled(server))
        logger.warning("all fail", extra=throttled())
    assert caplog.messages == ["a fails", "b fails", "all fail"]


def test_other_messages_always_pass(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        logger.warning("lost a group")
    assert caplog.messages == ["lost a group"] * 3


def test_a_hosts_own_handler_gets_what_passes_as_a_plain_record(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    try:
        for _ in range(3):
            logger.warning("fails", extra=throttled())
    finally:
        logger.removeHandler(handler)
    assert stream.getvalue() == "fails\n"
    logger.warning("plain")
    throttled_record, plain_record = caplog.records
    assert vars(throttled_record).keys() == vars(plain_record).keys()


def test_after_a_reset_a_message_is_logged_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    throttle = ThrottleFilter(Clock())
    assert throttle.admits("fails")
    assert not throttle.admits("fails")
    throttle.reset(Clock())
    assert throttle.admits("fails")


def seconds_of_lines(pauses: LogPauses, seconds: int) -> list[float]:
    """Return when a wait of so many seconds, asked about each second, would be logged."""
    clock = Clock(0.0)
    reminders = Reminders(pauses, clock=clock)
    logged = []
    for second in range(seconds):
        clock.now = float(second)
        if reminders.is_due():
            logged.append(clock.now)
    return logged


def test_lines_about_a_wait_pause_longer_and_longer_up_to_five_minutes() -> None:
    assert seconds_of_lines(LogPauses(), 1500) == [
        *(0, 10, 30, 70, 150, 310, 610, 910, 1210)
    ]


def test_lines_that_change_in_their_place_do_not_pause_longer() -> None:
    assert seconds_of_lines(LogPauses(first=1.0, longest=1.0), 4) == [0, 1, 2, 3]
