"""The figures of a report, checked by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_files import row, write

from reasoning_gym_environment.records import Status
from reasoning_gym_environment.report._sections import (
    Sections,
    build_sections,
    length_histogram,
    round_width,
    score_histogram,
)
from reasoning_gym_environment.report.data import (
    equal_parts,
    overview,
    read_report_data,
    rollouts_of,
    solved_share,
)
from reasoning_gym_environment.storage.rows import StoredGroup
from reasoning_gym_environment.tasks.chance_floors import floors


def groups(folder: Path, rows: list[dict[str, Any]]) -> list[StoredGroup]:
    return list(read_report_data([write(folder, rows)]).groups)


def sections(folder: Path, rows: list[dict[str, Any]]) -> Sections:
    return build_sections(read_report_data([write(folder, rows)]))


def test_unscored_rollouts_count_in_no_share_but_their_own(tmp_path: Path) -> None:
    found = overview(groups(tmp_path, [row([1.0, 0.0, None, None])]))
    assert found.solved is not None
    assert (found.solved.solved, found.solved.rollouts) == (0.5, 2)
    assert found.statuses == {Status.SOLVED: 1, Status.WRONG: 1, Status.UNSCORED: 2}
    assert found.score == 0.5


def test_groups_of_which_nothing_is_known_have_no_share(tmp_path: Path) -> None:
    found = overview(groups(tmp_path, [row([None], tokens=0)]))
    assert (found.solved, found.median_tokens, found.signal) == (None, None, {})


def test_signal_is_that_of_groups_with_more_than_one_scored_rollout(tmp_path: Path) -> None:
    rows = [row([1.0, 0.0]), row([1.0, 1.0]), row([0.0, 0.0]), row([0.0, 0.1]), row([1.0, None])]
    found = overview(groups(tmp_path, rows))
    assert found.signal == {"mixed": 0.25, "all_solved": 0.25, "none_solved": 0.5}


def test_chance_is_averaged_over_the_rollouts(tmp_path: Path) -> None:
    share = solved_share(groups(tmp_path, [row([1.0] * 3, task="coin_flip"), row([1.0])]))
    assert share is not None
    coin_flip, gcd = floors()["coin_flip"], floors()["gcd"]
    assert share.chance == pytest.approx((3 * coin_flip.chance.solved + gcd.chance.solved) / 4)
    copied = 3 * coin_flip.no_reasoning.solved + gcd.no_reasoning.solved
    assert share.no_reasoning == pytest.approx(copied / 4)


def test_a_task_that_the_audit_has_not_seen_has_no_chance_mark(tmp_path: Path) -> None:
    share = solved_share(groups(tmp_path, [row([1.0], task="new_task"), row([1.0])]))
    assert share is not None
    assert share.chance is share.no_reasoning is None


@pytest.mark.parametrize(
    "change",
    [
        {"recipe": {"task": "gcd", "seed": 0, "level": 1, "parameters": {}}},
        {"recipe": {"task": "gcd", "seed": 0, "level": None, "parameters": {"max_numbers": 3}}},
        {"scoring": {"solved_threshold": 0.9}},
    ],
)
def test_chance_is_marked_only_where_it_was_measured(
    change: dict[str, Any], tmp_path: Path
) -> None:
    usual = row([1.0]) | {"scoring": {"solved_threshold": None}}
    for rows, marked in (([usual], True), ([usual, usual | change], False)):
        share = solved_share(groups(tmp_path, rows))
        assert share is not None
        assert (share.chance is not None) is marked
        assert (share.no_reasoning is not None) is marked


def test_a_problem_in_two_evaluations_counts_once(tmp_path: Path) -> None:
    rows = [row([1.0, 0.0], number=0, evaluation=True), row([1.0], number=1, evaluation=True)]
    once = solved_share(groups(tmp_path, rows))
    twice = solved_share(groups(tmp_path, rows * 2))
    assert once is not None
    assert twice is not None
    assert (twice.low, twice.high) == (once.low, once.high)
    assert (twice.rollouts, twice.problems) == (6, 2)


def test_evaluations_and_their_difficulties_have_headlines_of_their_own(tmp_path: Path) -> None:
    hard = [row([0.0], number=5, level=3, evaluation=True) | {"difficulty": d} for d in (0.5, 0.25)]
    plain = row([1.0], evaluation=True)
    one = write(tmp_path, [*hard, plain, row([1.0, 0.0])], "one.jsonl")
    found = build_sections(read_report_data([one]))
    assert [(h.name, h.found.solved and h.found.solved.solved) for h in found.headlines] == [
        ("Training", 0.5),
        ("Evaluation", 1.0),
        ("Evaluation, difficulty 0.25", 0.0),
        ("Evaluation, difficulty 0.5", 0.0),
    ]
    [in_tasks] = [r for r in found.shares["task/arithmetic"] if r.split == "evaluation"]
    assert (in_tasks.share.solved, in_tasks.share.rollouts) == (1.0, 1)
    both = build_sections(read_report_data([one, write(tmp_path, [plain], "two.jsonl")])).headlines
    names = [h.name for h in both if "difficulty" not in h.name]
    assert [name.rpartition("/")[2] for name in names] == ["Training", "one.jsonl", "two.jsonl"]


def test_format_failures_are_of_the_rollouts_that_the_server_gave(tmp_path: Path) -> None:
    given = row([0.0, 0.0], texts=["no answer", "<answer>4</answer>"])
    found = overview(groups(tmp_path, [given, row([None] * 2, tokens=0)]))
    assert found.format_failures == 0.5


@given(count=st.integers(0, 5000))
def test_equal_parts_hold_everything_once_unless_there_are_few(count: int) -> None:
    parts = equal_parts(count)
    held = [number for part in parts for number in range(count)[part]]
    assert held == (list(range(count)) if count >= 10 else [])
    assert len(parts) <= 40
    assert all(part.stop - part.start >= 10 for part in parts)


def test_shares_are_sorted_and_both_splits_stand_together(tmp_path: Path) -> None:
    rows = [
        row([0.0], task="gcd"),
        row([1.0], task="lcm"),
        row([1.0], task="gcd", evaluation=True),
        row([0.0], task="sudoku"),
    ]
    found = sections(tmp_path, rows).shares
    assert [(r.name, r.split, r.share.solved) for r in found["task/arithmetic"]] == [
        ("lcm", "training", 1.0),
        ("gcd", "training", 0.0),
        ("gcd", "evaluation", 1.0),
    ]
    assert [r.name for r in found["category"]] == ["arithmetic", "arithmetic", "games"]


def test_what_the_rows_do_not_hold_has_no_chart(tmp_path: Path) -> None:
    found = sections(tmp_path, [row([1.0, 0.0])])
    assert not [place for place in found.charts if place.startswith(("level", "time"))]
    assert not found.leveled


def test_levels_rise_in_the_order_of_the_groups(tmp_path: Path) -> None:
    rows = [row([1.0, 0.0], number=n, level=float(n // 20)) for n in range(40)]
    found = sections(tmp_path, rows)
    levels = [value["level"] for value in found.charts["level_time/arithmetic"].values]
    assert levels == [0.0, 0.0, 1.0, 1.0]
    assert [r.name for r in found.shares["level"]] == ["difficulty 0.0", "difficulty 0.3"]
    assert len(found.charts["level_map/training/arithmetic"].values) == 2


def test_evaluations_of_several_files_are_set_side_by_side(tmp_path: Path) -> None:
    files = []
    for step, score in ((1, 0.0), (2, 1.0)):
        folder = tmp_path / "evaluation_r" / f"step-{step}"
        folder.mkdir(parents=True)
        files.append(write(folder, [row([score], evaluation=True)], "samples.jsonl"))
    found = build_sections(read_report_data(files)).shares["evaluation"]
    assert [(r.name, r.share.solved) for r in found] == [
        ("evaluation_r/step-1", 0.0),
        ("evaluation_r/step-2", 1.0),
    ]


def test_histograms_count_every_value_once(tmp_path: Path) -> None:
    own = groups(tmp_path, [row([0.0, 0.04, 0.05, 0.5, 1.0, None])])
    [last] = [r for r in own[0].rollouts if r.score == 1.0]
    strict = replace(last, raw_score=0.5, status=Status.WRONG)
    values = score_histogram([*own[0].rollouts, strict]).values
    assert [(v["start"], v["kind"], v["rollouts"]) for v in values] == [
        (0.0, "not solved", 2),
        (0.05, "not solved", 1),
        (0.5, "not solved", 1),
        (0.5, "solved", 1),
        (0.95, "solved", 1),
    ]


@given(width=st.floats(0.001, 1e6))
def test_bins_have_round_widths_that_suffice(width: float) -> None:
    rounded = round_width(width)
    assert width <= rounded <= max(1, 2.5 * width + 1e-9)
    assert str(rounded).rstrip("0") in ("1", "2", "5")


def test_lengths_beyond_the_99th_percentile_are_counted_instead_of_drawn(tmp_path: Path) -> None:
    rows = [row([1.0] * 100, tokens=50, number=n) for n in range(2)]
    usual = length_histogram(rollouts_of(groups(tmp_path, rows)))
    assert (usual.note, [value["share"] for value in usual.values]) == ("", [1.0])
    rows.append(row([1.0, 1.0], tokens=9000, number=2))
    cut = length_histogram(rollouts_of(groups(tmp_path, rows)))
    assert cut.note == "2 longer than 50 omitted"
    assert [(value["rollouts"], value["share"]) for value in cut.values] == [(200, 200 / 202)]


def test_every_evaluation_has_marks_of_its_own_and_two_are_compared(tmp_path: Path) -> None:
    items = [row([float(n % 2)], number=n, evaluation=True) for n in range(8)]
    solved = [row([1.0], number=n, evaluation=True) for n in range(8)]
    for name, rows in (("base", items), ("tuned", solved)):
        folder = tmp_path / name
        folder.mkdir()
        write(folder, rows, "samples.jsonl")
        settings = {"model_name": name, "eval_attempts": 1, "step": None}
        (folder / "run.json").write_text(json.dumps({"settings": settings}))
    found = build_sections(read_report_data([tmp_path, write(tmp_path, [row([1.0, 0.0])])]))
    assert [name.rpartition("/")[2] for name in found.series] == ["training", "base", "tuned"]
    tasks = found.shares["task/arithmetic"]
    assert [(r.series.rpartition("/")[2], r.share.solved) for r in tasks] == [
        ("training", 0.5),
        ("base", 0.5),
        ("tuned", 1.0),
    ]
    assert [h.about for h in found.headlines] == [
        "all groups of the run",
        "model base · attempts 1",
        "model tuned · attempts 1",
    ]
    assert "solved, mean over items" in found.comparison
    assert "+50.0" in found.comparison
    assert build_sections(read_report_data([tmp_path / "base"])).comparison == ""
