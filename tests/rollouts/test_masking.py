"""A run that trains on nothing says so within a minute."""

from dataclasses import replace

import pytest
from clock import Clock
from group_values import completion, group

from reasoning_gym_environment.records import GroupResult, Status
from reasoning_gym_environment.rollouts.accounting import Statistics
from reasoning_gym_environment.rollouts.progress import ProgressReporter


def ended(reason: str, word: str | None = None, *, status: Status) -> GroupResult:
    """A group of four completions that end so."""
    plain = group(0.0, 0.0, 0.0, 0.0)
    attempts = []
    for attempt in plain.attempts:
        cut = completion(finish_reason=reason)
        cut = replace(cut, server_finish_reason=word)
        verdict = replace(attempt.verdict, status=status)
        attempts.append(replace(attempt, completion=cut, verdict=verdict))
    return replace(plain, attempts=tuple(attempts))


MASKED = ended("tool_calls", "TOOL_CALL", status=Status.WRONG)
UNANSWERED = ended("stop", status=Status.NO_ANSWER)


class Run:
    """A reporter with the clock of a run whose groups come every `seconds`."""

    def __init__(self, seconds: float, *, mask_incomplete: bool = True) -> None:
        self.clock = Clock(0.0)
        self.seconds = seconds
        statistics = Statistics()
        statistics.use_categories({"gcd": "arithmetic"})
        self.progress = ProgressReporter(
            statistics, self.clock, mask_incomplete=mask_incomplete
        )

    def add(self, *groups: GroupResult) -> None:
        for each in groups:
            self.progress.group_finished(each)
            self.clock.now += self.seconds


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [m for m in caplog.messages if m.startswith("Nothing can be learned")]


@pytest.mark.parametrize(
    ("useless", "reason"),
    [
        (MASKED, "finish_reason tool_calls, the server says TOOL_CALL"),
        (UNANSWERED, "no answer"),
    ],
)
def test_a_run_whose_rows_teach_nothing_says_why_within_a_minute(
    useless: GroupResult, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(seconds=9.0)
    run.add(*[useless] * 4)
    assert told(caplog) == []
    run.add(*[useless] * 20)
    [message] = told(caplog)
    assert reason in message


def test_one_slow_group_is_enough_where_none_taught_anything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = Run(seconds=40.0)
    run.add(MASKED)
    run.progress.warn_of_useless_rows()  # as it is called every ten seconds
    assert len(told(caplog)) == 1


def test_a_few_useless_groups_among_others_are_chance(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = Run(seconds=20.0)
    run.add(*[group(1.0, 0.0), MASKED, MASKED, UNANSWERED] * 10)
    assert told(caplog) == []


def test_a_server_that_changes_its_words_in_a_run_is_found_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = Run(seconds=10.0)
    for number in (1, 2):
        run.add(group(1.0, 0.0), *[MASKED] * 8)
        assert len(told(caplog)) == number


def test_rows_that_are_trained_on_though_they_are_cut_are_not_masked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = Run(seconds=10.0, mask_incomplete=False)
    run.add(*[MASKED] * 12)
    assert told(caplog) == []
