"""The line that says every few seconds how a run goes."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace

import pytest
from clock import Clock
from group_values import completion, group

from reasoning_gym_environment.records import GroupResult, Status
from reasoning_gym_environment.rollouts.summary import Summary


def at_level(result: GroupResult, level: int) -> GroupResult:
    recipe = replace(result.problem.recipe, level=level)
    return replace(result, problem=replace(result.problem, recipe=recipe))


def cut_off(result: GroupResult) -> GroupResult:
    """The same, but truncated and without an answer."""
    attempts = tuple(
        replace(
            attempt,
            completion=completion(finish_reason="length"),
            verdict=replace(attempt.verdict, status=Status.NO_ANSWER),
        )
        for attempt in result.attempts
    )
    return replace(result, attempts=attempts)


def test_a_line_says_what_came_since_the_last() -> None:
    clock = Clock(0.0)
    summary = Summary(clock)
    summary.add(at_level(group(1.0, 0.0), 2))
    summary.add(at_level(cut_off(group(0.0, 0.0)), 1))
    clock.now = 4.0
    assert summary.line() == (
        "2 groups, 0.5/s, 25% solved, 50% with signal, 50% truncated, 50% no answer, mean level 1.5"
    )
    summary.add(group(1.0, 1.0))
    clock.now = 5.0
    assert summary.line() == (
        "3 groups, 1.0/s, 100% solved, 0% with signal, 0% truncated, 0% no answer"
    )
    clock.now = 15.0
    assert summary.line() == "3 groups, 0.0/s"


def test_unscored_rollouts_are_no_share_of_what_is_solved() -> None:
    summary = Summary(Clock())
    summary.add(group(1.0, None, None))
    assert " 100% solved" in summary.line()


async def test_lines_begin_with_the_first_group(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    summary = Summary()
    task = asyncio.ensure_future(summary.log(0.01))
    await asyncio.sleep(0.05)
    assert not caplog.messages
    summary.add(group(1.0, 0.0))
    while not caplog.messages:
        await asyncio.sleep(0.01)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert caplog.messages[0].startswith("1 groups, ")
