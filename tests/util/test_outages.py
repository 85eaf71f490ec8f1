"""Outages are logged when they begin, once a minute, and when they end."""

import pytest
from clock import Clock

from reasoning_gym_environment.util.outages import FailingRequests, Outage


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_logging_is_due_at_once_and_then_once_a_minute(clock: Clock) -> None:
    line = Outage(clock)
    due = []
    for _ in range(7):
        due.append(line.failed())
        clock.now += 20.0
    assert due == [True, False, False, True, False, False, True]


def test_an_outage_has_a_beginning_a_line_a_minute_and_an_end(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    outage = FailingRequests("The API", clock)
    for _ in range(70):
        outage.fails("a", "refused")
        clock.now += 1.0
    outage.dropped("a", lost=1)
    outage.answered("b")
    outage.answered("b")
    assert caplog.messages == [
        "The API doesn't answer: refused",
        "The API doesn't answer for 60 s: refused",
        "The API is back after 70 s, 1 groups lost",
    ]


def test_an_outage_lasts_while_any_request_fails(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    outage = FailingRequests("The API", clock)
    outage.fails("a", "413")
    outage.answered("b")
    assert len(caplog.messages) == 1
    outage.answered("a")
    outage.fails("a", "refused")
    assert caplog.messages == [
        "The API doesn't answer: 413",
        "The API is back after 0 s, 0 groups lost",
        "The API doesn't answer: refused",
    ]


def test_seconds_before_the_first_failure_was_seen_count(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    outage = FailingRequests("The server", clock, lost="requests given up")
    outage.fails("a", "it hangs", already=8.0)
    clock.now += 2.0
    outage.answered("a")
    assert caplog.messages == [
        "The server doesn't answer for 8 s: it hangs",
        "The server is back after 10 s, 0 requests given up",
    ]


def test_an_outage_is_logged_at_once_and_then_once_a_minute(clock: Clock) -> None:
    outage, spoken = Outage(clock), []
    for seconds in range(200):
        clock.now = 1000.0 + seconds
        if outage.failed():
            spoken.append(seconds)
    assert spoken == [0, 60, 120, 180]
    assert outage.lost == 200
    assert outage.over() == 199
    assert outage.over() is None


def test_the_next_outage_starts_from_zero(clock: Clock) -> None:
    outage = Outage(clock)
    assert outage.failed(lost=3)
    outage.over()
    clock.now += 1
    assert not outage
    assert outage.failed()
    assert (bool(outage), outage.lost) == (True, 1)
