"""The progress line, and the warning that nothing can be learned."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from clock import Clock
from group_values import completion, group

from reasoning_gym_environment.records import GroupResult, Status
from reasoning_gym_environment.rollouts.accounting import Statistics
from reasoning_gym_environment.rollouts.answer_check import GROUPS, AnswerCheck, excerpt
from reasoning_gym_environment.rollouts.progress import ProgressReporter
from reasoning_gym_environment.util.log_throttle import LogPauses


class Reported:
    """A reporter that hears of groups as the environment tells it."""

    waiting = ""

    def __init__(self, *clock: Callable[[], float]) -> None:
        self.statistics = Statistics()
        self.statistics.use_categories({"gcd": "arithmetic"})
        self.progress = ProgressReporter(
            self.statistics, *clock, waiting=lambda: [self.waiting]
        )
        self.line = self.progress.line

    def add(self, result: GroupResult) -> None:
        self.statistics.begin_group().mark_collected()
        self.statistics.group_finished(result)
        self.progress.group_finished(result)


def at_level(result: GroupResult, level: int) -> GroupResult:
    recipe = replace(result.problem.recipe, level=level)
    return replace(result, problem=replace(result.problem, recipe=recipe))


def unanswered(*texts: str, finish_reason: str = "stop") -> GroupResult:
    """A group without any answer."""
    base = group(*(0.0 for _ in texts), texts=texts)
    verdict = replace(base.attempts[0].verdict, status=Status.NO_ANSWER)
    said = (completion(text, finish_reason=finish_reason) for text in texts)
    pairs = zip(base.attempts, said, strict=True)
    attempts = (
        replace(attempt, completion=one, verdict=verdict) for attempt, one in pairs
    )
    return replace(base, attempts=tuple(attempts))


def test_a_line_describes_the_groups_since_the_last_one() -> None:
    reported = Reported(clock := Clock(0.0))
    reported.add(at_level(group(1.0, 0.0), 2))
    reported.add(at_level(unanswered("", "", finish_reason="length"), 1))
    clock.now = 4.0
    assert reported.line() == (
        "2 groups, 0.5/s, 25% solved, 50% with signal, 50% truncated, 50% no answer, mean level 1.5"
    )
    reported.statistics.take_report()
    reported.add(group(1.0, 1.0))
    clock.now = 5.0
    expected = (
        "3 groups, 1.0/s, 100% solved, 0% with signal, 0% truncated, 0% no answer"
    )
    assert reported.line() == expected
    clock.now = 15.0
    assert reported.line() == "3 groups, 0.0/s"
    reported = Reported()
    reported.add(group(1.0, None, None))
    assert " 100% solved" in reported.line()  # of those that were scored


def cut() -> GroupResult:
    """A group of two truncated completions."""
    attempts = (
        replace(each, completion=completion(finish_reason="length"))
        for each in group(0.0, 0.0).attempts
    )
    return replace(group(0.0, 0.0), attempts=tuple(attempts))


def test_from_fifty_groups_on_a_line_has_the_solved_share_of_late() -> None:
    reported = Reported()
    for _ in range(49):
        reported.add(group(1.0, 0.0))
    assert "lately" not in reported.line()
    for _ in range(71):
        reported.add(group(1.0, 1.0))
    assert "lately solved 100.0% (+0.0 points to before" in reported.line()
    [solved] = [r for r in reported.progress.figures() if r.measure == "solved"]
    assert (solved.last, solved.first) == (1.0, 0.5)


def test_after_a_minute_without_delivery_the_line_says_what_groups_became() -> None:
    reported = Reported(clock := Clock(0.0))
    counts = reported.statistics.counts
    for name in ("started", "collected", "sent"):
        counts[f"groups/{name}"] = 3
    assert reported.line() == ""
    counts.update({"groups/started": 9, "groups/collected": 7, "groups/filtered": 7})
    clock.now = 59.0
    assert reported.line() == ""
    clock.now = 60.0
    assert reported.line() == (
        "0 groups, 0.0/s, no group delivered for 60 s: 7 filtered (equal scores), 2 generating"
    )
    reported.waiting = "the trainer waits"
    assert reported.line() == (
        "0 groups, 0.0/s, the trainer waits; no group delivered for 60 s: 7 filtered (equal "
        "scores), 2 generating"
    )


async def test_lines_start_with_the_first_group_or_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    reported = Reported()
    async with reported.progress.logging_every(LogPauses(first=0.01, longest=0.01)):
        await asyncio.sleep(0.05)
        assert not caplog.messages
        reported.waiting = "waiting until noon"
        while not caplog.messages:
            await asyncio.sleep(0.01)
        assert caplog.messages[0] == "0 groups, 0.0/s, waiting until noon"
        reported.waiting = ""
        reported.add(group(1.0, 0.0))
        while "1 groups, " not in caplog.messages[-1]:
            await asyncio.sleep(0.01)


async def test_lines_pause_longer_and_longer_while_no_group_is_finished(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    reported = Reported()
    reported.waiting = "the trainer waits"
    pauses = LogPauses(first=0.05, longest=0.2)
    async with reported.progress.logging_every(pauses):
        while len(caplog.records) < 5:
            await asyncio.sleep(0.01)
    gaps = [
        later.created - earlier.created for earlier, later in pairwise(caplog.records)
    ]
    least = [0.05, 0.1, 0.2, 0.2]
    assert all(gap > 0.99 * pause for gap, pause in zip(gaps, least, strict=False))
    assert {record.levelname for record in caplog.records} == {"INFO"}


def warned_after(
    groups: list[GroupResult], caplog: pytest.LogCaptureFixture
) -> list[tuple[int, str]]:
    """The warnings, each with the number of the group after which it came."""
    reported, warned = Reported(), []
    for number, each in enumerate(groups, start=1):
        reported.add(each)
        warned += [(number, message) for message in caplog.messages]
        caplog.clear()
    return warned


def test_one_warning_follows_50_groups_without_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    groups = [unanswered(f"The answer\nis {n}.", "hm") for n in range(120)]
    [(after, warning)] = warned_after(groups, caplog)
    assert after == GROUPS == 50
    assert warning == (
        "100% of the completions of the first 50 groups have no answer between <answer> and "
        "</answer> (0% truncated, 0% filtered, 0% empty, 0% boxed without tags): nothing "
        "can be learned from them. "
        "The model wrote:\n"
        "  The answer is 0.\n"
        "  The answer is 1.\n"
        "Ways out: train it on demonstrations first (`export --format sft` makes them from "
        "rollouts of a model that answers); another system_prompt; another chat template, if "
        "this one opens a thought that the prompt asks for again (docs/inference.md)."
    )


def test_the_warning_names_the_length_of_truncated_texts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    groups = [unanswered("<think>so", finish_reason="length") for _ in range(50)]
    [(_, warning)] = warned_after(groups, caplog)
    assert warning == (
        "100% of the completions of the first 50 groups are truncated at max_token_length: "
        "nothing can be learned from them. The model wrote:\n"
        "  <think>so\n"
        "  <think>so\n"
        "Ways out: a larger max_token_length, on the server and the trainer too; a model that "
        "thinks less; for a model that thinks by itself, system_prompt: direct."
    )


def test_some_answers_are_enough_for_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    groups = [unanswered("hm") for _ in range(47)] + [group(0.0) for _ in range(3)]
    assert warned_after(groups, caplog) == []


def test_all_solved_groups_get_a_warning_with_ways_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    mixed, solved = group(1.0, 0.0), group(1.0, 1.0)
    assert warned_after([mixed] * 3 + [solved] * 100, caplog) == []
    [(after, warning)] = warned_after([mixed] * 2 + [solved] * 100, caplog)
    assert after == 50
    assert warning.startswith(
        "96% of the first 50 groups are all solved: little can be learned from them, and a group "
        "with equal rewards is not sent (ensure_scores_are_not_same). Ways out: complexity_mode: "
        "curriculum, "
    )


def test_nearly_all_is_nineteen_in_twenty_and_the_most_specific_fault_named() -> None:
    answer = ("<answer>1</answer>", "stop")
    for kinds, expected in (
        ({("hm", "stop"): 94, answer: 6}, None),
        (
            {("hm", "stop"): 95, answer: 5},
            "95% of the completions of all items have no answer",
        ),
        (
            {("hm", "length"): 95, answer: 5},
            "95% of the completions of all items are truncated at",
        ),
        (
            {("", "stop"): 100},
            "100% of the completions of all items are empty: no use. The model ",
        ),
        ({("", "content_filter"): 100}, "are withheld by the server's content filter"),
        ({(r"\boxed{4}", "stop"): 100}, "wrote:\n  \\boxed{4}\n"),
        ({(r"\boxed{4}", "stop"): 100}, "Ways out: --env.answer_format boxed"),
        ({(r"\boxed{4", "stop"): 100}, "have no answer between <answer> and </answer>"),
        (
            {("", "stop"): 60, ("so", "length"): 40},
            "(40% truncated, 0% filtered, 60% empty, 0% boxed without tags)",
        ),
        (
            {("", "stop"): 60, ("so", "length"): 40},
            "wrote:\n  (nothing)\n  (nothing)\nWays out:",
        ),
        ({}, None),
    ):
        check = AnswerCheck("tags")
        for (text, reason), count in kinds.items():
            for _ in range(count):
                status = Status.WRONG if "<answer>" in text else Status.NO_ANSWER
                check.add([(text, reason, status)])
        said = check.warning("all items", consequence="no use")
        assert said is None if expected is None else expected in str(said), kinds


def test_a_missing_answer_is_told_where_its_format_has_it() -> None:
    check = AnswerCheck("boxed")
    check.add([("<answer>4</answer>", "stop", Status.NO_ANSWER)] * 20)
    assert "have no answer in \\boxed{}" in str(check.finding("all items"))


def test_a_text_is_shown_on_one_safe_line_with_its_beginning_and_end() -> None:
    assert excerpt("\x1b[31mred\n\n\u202eside") == "\\x1b[31mred \\u202eside"
    long = excerpt("a" * 500 + "z" * 500)
    assert long == "a" * 79 + " … " + "z" * 78
    assert len(long) == 160
