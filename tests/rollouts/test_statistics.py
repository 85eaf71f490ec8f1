"""What is reported since the last report, and what over the whole run."""

from dataclasses import replace

from group_values import group

from reasoning_gym_environment.rollouts.metrics import Statistics

CATEGORIES = {"gcd": "arithmetic", "sudoku": "games"}


def test_a_report_holds_the_groups_since_the_last_one() -> None:
    statistics = Statistics()
    statistics.add_group(group(1.0, 1.0), CATEGORIES)
    first = statistics.take_report()
    statistics.add_group(group(1.0, 0.0, 0.0, 0.0, task="sudoku"), CATEGORIES)
    second = statistics.take_report()
    assert first["train/percent_correct"] == first["train/solved"] == 1.0
    assert second["train/percent_correct"] == 0.25
    assert "train/task/gcd/solved" not in second
    assert (first["train/groups/all_solved"], second["train/groups/all_solved"]) == (1.0, 0.0)
    assert second["train/groups/mixed"] == 1.0
    assert second["train/category/games/solved"] == 0.25


def test_the_totals_go_on_over_reports() -> None:
    statistics = Statistics()
    statistics.add_group(group(1.0), CATEGORIES)
    statistics.take_report()
    statistics.add_group(group(0.0), CATEGORIES)
    assert statistics.total["solved"].value == 0.5
    assert statistics.interval["solved"].value == 0.0


def test_counts_go_on_over_reports() -> None:
    statistics = Statistics()
    statistics.counts["sandbox/restarts"] += 2
    statistics.add_group(group(1.0), CATEGORIES)
    assert statistics.take_report()["counts/groups/collected"] == 1.0
    statistics.add_group(group(1.0), CATEGORIES)
    report = statistics.take_report()
    assert report["counts/groups/collected"] == 2.0
    assert report["counts/workers/restarts"] == 2.0


def test_verifiers_that_raise_are_counted_for_their_task() -> None:
    statistics = Statistics()
    statistics.add_group(group(0.0, 1.0, errors=1), CATEGORIES)
    statistics.add_group(group(0.0, 0.0, task="sudoku"), CATEGORIES)
    statistics.add_group(group(0.0, errors=2), CATEGORIES)
    assert statistics.counts["verifier_errors/gcd"] == 4
    assert "verifier_errors/sudoku" not in statistics.counts


def test_rollouts_with_broken_text_are_counted() -> None:
    whole = group(0.0, 1.0, 0.0)
    broken = replace(whole.attempts[0].completion, text="half \ud800 a pair \udc00")
    attempts = (replace(whole.attempts[0], completion=broken), *whole.attempts[1:])
    statistics = Statistics()
    statistics.add_group(replace(whole, attempts=attempts), CATEGORIES)
    assert statistics.counts["rollouts/broken_text"] == 1
    statistics.add_group(whole, CATEGORIES)
    assert statistics.counts["rollouts/broken_text"] == 1


def test_a_report_without_groups_holds_counts_alone() -> None:
    statistics = Statistics()
    statistics.counts["dumps/lost"] += 1
    assert statistics.take_report() == {"counts/dumps/lost": 1.0}


def test_a_group_without_any_score_moves_no_score() -> None:
    statistics = Statistics()
    statistics.add_group(group(None, None), CATEGORIES)
    report = statistics.take_report()
    assert "train/percent_correct" not in report
    assert report["train/status/unscored"] == 1.0
