"""Statistics since the last report, and over the whole run."""

from dataclasses import replace

from group_values import group

from reasoning_gym_environment.rollouts.accounting import Statistics


def counting() -> Statistics:
    statistics = Statistics()
    statistics.use_categories({"gcd": "arithmetic", "sudoku": "games"})
    return statistics


def test_a_report_holds_the_groups_since_the_last_one() -> None:
    statistics = counting()
    statistics.group_finished(group(1.0, 1.0))
    first = statistics.take_report()
    statistics.group_finished(group(1.0, 0.0, 0.0, 0.0, task="sudoku"))
    second = statistics.take_report()
    assert first["train/percent_correct"] == first["train/solved"] == 1.0
    assert second["train/percent_correct"] == 0.25
    assert "train/task/gcd/solved" not in second
    assert (first["train/groups/all_solved"], second["train/groups/all_solved"]) == (
        1.0,
        0.0,
    )
    assert second["train/groups/mixed"] == 1.0
    assert second["train/category/games/solved"] == 0.25


def test_totals_and_counts_go_on_over_reports() -> None:
    statistics = counting()
    statistics.group_finished(group(1.0))
    statistics.take_report()
    statistics.group_finished(group(0.0))
    assert statistics.total["solved"].value == 0.5
    assert statistics.interval["solved"].value == 0.0
    statistics = counting()
    statistics.counts["sandbox/restarts"] += 2
    assert statistics.take_report() == {"counts/sandbox/restarts": 2.0}
    for number in (1.0, 2.0):
        statistics.begin_group().mark_collected()
        statistics.group_finished(group(1.0))
        report = statistics.take_report()
        assert report["counts/groups/collected"] == number
        assert report["counts/sandbox/restarts"] == 2.0


def test_groups_in_progress_are_reported() -> None:
    statistics = counting()
    statistics.begin_group().mark_collected()
    statistics.group_finished(group(1.0))
    report = statistics.take_report()
    assert report["counts/groups/started"] == report["counts/groups/in_flight"] == 1.0
    assert report["counts/groups/generating"] == 0.0


def test_verifiers_that_raise_are_counted_for_their_task() -> None:
    statistics = counting()
    statistics.group_finished(group(0.0, 1.0, errors=1))
    statistics.group_finished(group(0.0, 0.0, task="sudoku"))
    statistics.group_finished(group(0.0, errors=2))
    assert statistics.counts["verifier_errors/gcd"] == 4
    assert "verifier_errors/sudoku" not in statistics.counts


def test_rollouts_with_broken_text_are_counted() -> None:
    whole = group(0.0, 1.0, 0.0)
    broken = replace(whole.attempts[0].completion, text="half \ud800 a pair \udc00")
    attempts = (replace(whole.attempts[0], completion=broken), *whole.attempts[1:])
    statistics = counting()
    statistics.group_finished(replace(whole, attempts=attempts))
    assert statistics.counts["rollouts/broken_text"] == 1
    statistics.group_finished(whole)
    assert statistics.counts["rollouts/broken_text"] == 1


def test_a_group_without_any_score_moves_no_score() -> None:
    statistics = counting()
    statistics.group_finished(group(None, None))
    report = statistics.take_report()
    assert "train/percent_correct" not in report
    assert report["train/status/unscored"] == 1.0
