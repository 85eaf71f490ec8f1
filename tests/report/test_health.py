"""How a run goes: what its record and its last groups say, in the words of the log."""

from datetime import datetime, timezone
from typing import Any

import pytest
from msgspec.structs import replace
from report_files import row

from reasoning_gym_environment.report.health import RunHealth
from reasoning_gym_environment.storage.rows import StoredGroup
from reasoning_gym_environment.storage.run_record import RecordedWait, RunRecord

NOW = 1_800_000_000.0


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def of(*scores: float | None, ago: float = 5.0, **rollout: Any) -> StoredGroup:
    """A group of those scores, written so many seconds ago."""
    stored = row(list(scores), time=iso(NOW - ago))
    for each in stored["rollouts"]:
        each |= rollout
    return StoredGroup.from_json(stored)


def health(*groups: StoredGroup) -> RunHealth:
    run = RunHealth()
    for group in groups:
        run.add(group)
    return run


def record(*, updated: float = 1.0, **fields: Any) -> RunRecord:
    times = {"started": iso(NOW - 600), "updated": iso(NOW - updated)}
    return RunRecord(run="r", **{**times, **fields})


def lines(run: RunHealth, **known: Any) -> list[tuple[str, str]]:
    found = run.lines(**{"trains": True, "now": NOW, **known})
    return [(line["level"], line["text"]) for line in found]


def numbered(group: StoredGroup, number: int) -> StoredGroup:
    return replace(group, number=number)


MIXED = [of(1.0, 0.0) for _ in range(20)]


DONE = "20 groups, 100% of the last 20 taught, the last one 2027-01-15 07:59 UTC"


def test_a_run_says_what_it_does_how_fast_and_how_it_ended() -> None:
    [(level, text)] = lines(health(*MIXED))
    assert level == "ok"
    pace = "8.0 rollouts and 160 tokens per second, last group 5 s ago"
    assert text == f"Running, {pace}: {DONE}"
    run = health(*MIXED)
    [(level, text)] = lines(run, record=record(step=7))
    assert text.endswith(f"last group 5 s ago: step 7, {DONE}")
    ended = record(ended=iso(NOW), ending="at step 7 of 9", step=7)
    assert lines(run, record=ended, ended=ended.ended) == [
        ("past", f"Ended 2027-01-15 08:00 UTC at step 7 of 9: {DONE}")
    ]


def test_the_time_left_is_that_of_the_steps_so_far() -> None:
    groups = [
        replace(of(1.0, 0.0, ago=1000 - 10 * step), step=step) for step in range(101)
    ]
    run = health(*groups)
    [(_, text)] = lines(run, record=record(step=100, total_steps=400))
    assert "step 100 of 400, about 50 min left at this pace, 101 groups" in text
    [(_, text)] = lines(run, record=record(step=100))
    assert "left at this pace" not in text


def test_a_run_that_waits_says_for_what_and_since_when() -> None:
    over = RecordedWait(reason="a trainer", since=iso(NOW - 900), until=iso(NOW - 800))
    wait = RecordedWait(reason="inference at http://a", since=iso(NOW - 300))
    [(level, text)] = lines(health(*MIXED), record=record(waits=[over, wait]))
    assert level == "warning"
    since = "since 2027-01-15 07:55 UTC (5 min)"
    assert text == f"Waiting for inference at http://a {since}: {DONE}"
    [(level, _)] = lines(health(*MIXED), record=record(waits=[over]))
    assert level == "ok"


def test_dumps_of_long_ago_without_a_record_are_neither_fast_nor_sound() -> None:
    old = health(*(of(1.0, 0.0, ago=327 * 86400) for _ in range(20)))
    [(level, text)] = lines(old)
    assert level == "past"
    assert text.startswith("No record tells whether the run goes on: 20 groups")
    assert text.endswith("the last one 2026-02-22 08:00 UTC")


def test_the_rate_is_that_of_the_last_minute() -> None:
    run = health(
        of(1.0, 0.0, ago=5000), *(of(*[0.0] * 6, ago=second) for second in range(90))
    )
    assert run.pace(NOW) == [["rollouts per second", "6.0"], ["last group", "0 s ago"]]
    assert run.pace(NOW + 300) == [
        ["rollouts per second", "0.0"],
        ["last group", "5 min ago"],
    ]
    assert health().pace(NOW) == []


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"failures": 5}, "Inference fails: lost 5 groups in a row"),
        ({"lost": 1}, "1 group lost to disk"),
    ],
)
def test_a_record_tells_what_its_run_loses(fields: dict[str, Any], text: str) -> None:
    assert lines(health(*MIXED), record=record(**fields))[1:] == [("error", text)]


def test_a_run_that_was_killed_says_since_when_there_is_nothing() -> None:
    [(level, text)] = lines(health(*MIXED), record=record(updated=45.0))
    assert level == "error"
    assert text == f"No end recorded, nothing since 2027-01-15 07:59 UTC: {DONE}"


def test_a_clock_that_is_set_back_does_not_freeze_the_health_of_a_run() -> None:
    before = [numbered(of(1.0, 0.0, ago=-3600), number) for number in range(1, 61)]
    after = [numbered(of(0.0, 0.0), number) for number in range(61, 121)]
    for groups in (before + after, after + before):  # whichever file is read first
        run = health(*groups)
        assert run.pace(NOW) == [
            ["rollouts per second", "24.0"],
            ["last group", "5 s ago"],
        ]
        _, (_, last) = lines(run)
        assert "100% of the last 50 groups are all unsolved" in last


def test_a_run_without_groups_says_for_how_long() -> None:
    silent = "No group for 10 min, since 2027-01-15 07:50 UTC: 0 groups"
    assert lines(health(), record=record()) == [("warning", silent)]
    old = health(*(of(1.0, 0.0, ago=300) for _ in range(20)))
    [(level, text)] = lines(old, record=record())
    assert level == "warning"
    assert text.startswith("No group for 5 min, since 2027-01-15 07:55 UTC: 20 groups")


def test_what_an_ended_run_waited_for_is_past() -> None:
    ended = record(failures=2, lost=3, updated=5000, ended=iso(NOW - 5000))
    (level, text), loss = lines(health(*MIXED), record=ended, ended=ended.ended)
    assert (level, text[:26]) == ("past", "Ended 2027-01-15 06:36 UTC")
    assert loss == ("error", "3 groups lost to disk")


OF_COMPLETIONS = "completions of the last 12 groups"


@pytest.mark.parametrize(
    ("group", "level", "text"),
    [
        (
            of(1.0, 1.0),
            "warning",
            "last 12 groups are all solved: little can be learned",
        ),
        (
            of(0.0, 0.0),
            "warning",
            "last 12 groups are all unsolved: little can be learned",
        ),
        (
            of(1.0, 0.0, finish_reason="length"),
            "error",
            f"{OF_COMPLETIONS} are truncated at max_token_length",
        ),
        (
            of(0.0, 1.0, status="no_answer"),
            "error",
            f"{OF_COMPLETIONS} have no answer between <answer> and </answer>",
        ),
        (of(None, None), "warning", "rollouts of the last 12 groups are unscored"),
    ],
)
def test_the_last_groups_tell_that_nothing_can_be_learned(
    group: StoredGroup, level: str, text: str
) -> None:
    _, (found, said) = lines(health(*[group] * 12))
    assert found == level
    assert said.startswith(f"100% of the {text}")
    assert len(lines(health(*[group] * 9))) == 1, "too few to tell"


def test_a_share_of_truncated_completions_is_a_warning() -> None:
    cut = of(1.0, 0.0, finish_reason="length")
    said = (
        "25% of the completions of the last 20 groups are truncated at max_token_length"
    )
    assert lines(health(*[*MIXED[:3], cut] * 5))[1:] == [("warning", said)]


def test_the_last_groups_are_the_last_by_time_in_whatever_order_they_come() -> None:
    solved = [of(1.0, 1.0, ago=1000 - n) for n in range(100)]
    run = health(*(of(1.0, 0.0, ago=n) for n in range(60)), *solved)
    assert len(lines(run)) == 1


def test_evaluations_need_no_signal_and_skipped_lines_are_reported() -> None:
    assert len(lines(health(*[of(1.0)] * 12), trains=False)) == 1
    said = ("warning", "Skipped 3 torn or unreadable lines")
    assert lines(health(*MIXED), unreadable=3)[1:] == [said]


@pytest.mark.parametrize(
    "time", ["soon", "9999-12-31T23:59:59+00:00", "0001-01-01", ""]
)
def test_any_time_is_taken(time: str) -> None:
    run = health(StoredGroup.from_json(row([1.0], time=time or None)))
    assert lines(run)
    assert isinstance(run.pace(NOW), list)
