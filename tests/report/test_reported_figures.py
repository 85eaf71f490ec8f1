"""What changed in a run: which tasks, and since which group."""

import dataclasses
import itertools
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from invented_run import (
    HACKED,
    HACKED_TASK,
    RUN,
    TASKS,
    TRUNCATES,
    invented_groups,
    write_invented_run,
)
from msgspec.structs import replace

from reasoning_gym_environment.commands import report
from reasoning_gym_environment.report.filter import filter_rollouts
from reasoning_gym_environment.report.live import LiveIndex
from reasoning_gym_environment.rollouts.changes import DriftCheck
from reasoning_gym_environment.rollouts.measures import COLUMNS
from reasoning_gym_environment.storage.rows import StoredGroup

CATEGORIES = {task: category for category, tasks in TASKS.items() for task in tasks}


def check(groups: Iterable[StoredGroup], **settings: Any) -> DriftCheck:
    changes = DriftCheck(**settings)
    for group in groups:
        changes.add(group, CATEGORIES[group.task])
    return changes


def named(changes: DriftCheck) -> set[tuple[str, str]]:
    """The kinds of changes that last, each with its task or category."""
    return {
        (kind, flag["task"] or flag["category"] or "")
        for flag in changes.flags()
        if flag["until"] is None
        for kind in flag["kinds"]
    }


@pytest.mark.parametrize("seed", [0, 1])
def test_the_faults_of_a_run_are_named_with_the_group_since_which_they_last(
    seed: int,
) -> None:
    games, hacked = check(invented_groups(seed=seed)).flags()
    if games["category"] is None:
        games, hacked = hacked, games
    assert (games["category"], games["task"], games["until"]) == ("games", None, None)
    assert {"truncated", "solved"} <= {*games["kinds"]}
    assert abs(games["since"] - TRUNCATES) <= 20
    assert games["text"].startswith("games: 100% truncated (")
    assert (hacked["task"], hacked["until"]) == (HACKED_TASK, None)
    assert {*hacked["kinds"]} == {"repeats", "shorter"}
    assert abs(hacked["since"] - HACKED) <= 4 * len(CATEGORIES)
    assert "12 tokens (" in hacked["text"]


def test_a_healthy_run_has_none_at_any_time() -> None:
    changes = DriftCheck()
    for group in invented_groups(truncates=math.inf, hacked=math.inf, seed=2):
        changes.add(group, CATEGORIES[group.task])
        assert group.number % 50 or changes.flags() == []


def test_the_order_in_which_groups_are_read_does_not_matter_to_lengths() -> None:
    groups = list(invented_groups(groups=900))
    by_kind = sorted(groups, key=lambda group: group.solved == 0)  # as in two files
    assert {("truncated", "games"), ("shorter", "gcd")} <= named(check(by_kind))


def test_what_is_over_is_named_with_both_ends() -> None:
    again = [replace(each, number=1000 + each.number) for each in invented_groups(480)]
    changes = check(itertools.chain(invented_groups(), again))
    over = [flag for flag in changes.flags() if flag["until"] is not None]
    spans = {flag["task"] or flag["category"]: flag for flag in over}
    games = spans["games"]
    assert abs(games["since"] - TRUNCATES) <= 20
    assert abs(games["until"] - 1000) <= 20
    assert games["text"].endswith("over since then")
    assert abs(spans[HACKED_TASK]["since"] - HACKED) <= 4 * len(CATEGORIES)
    # What lasts comes first: that the task is as before.
    assert {flag["task"] for flag in changes.flags() if flag not in over} <= {"gcd"}


def test_a_category_is_named_only_where_most_of_its_tasks_change() -> None:
    groups = list(invented_groups(hacked=math.inf))
    own = [
        each
        for each in groups
        if each.task == "maze" or CATEGORIES[each.task] != "games"
    ]
    sound = [
        each
        for each in groups
        if CATEGORIES[each.task] == "games" and each.task != "maze"
    ]
    healthy = itertools.cycle(each for each in sound if each.number < TRUNCATES)
    others = [replace(next(healthy), number=each.number) for each in sound]
    assert {name for _, name in named(check([*own, *others]))} == {"maze"}
    changes = DriftCheck()
    for group in groups:
        if CATEGORIES[group.task] == "games":
            changes.add(group, "any")
    [flag] = changes.flags()
    assert (flag["task"], flag["category"], flag["text"][:10]) == (
        None,
        None,
        "all tasks:",
    )


def test_a_level_explains_what_differs_between_levels() -> None:
    def harder(group: StoredGroup) -> StoredGroup:
        return replace(group, recipe=dataclasses.replace(group.recipe, level=3.0))

    faults = invented_groups(hacked=math.inf)
    groups = [harder(each) if each.number >= TRUNCATES else each for each in faults]
    changes = check(groups)
    kinds = {kind for kind, _ in named(changes)}
    assert not kinds & {"truncated", "longer", "shorter"}
    # That nothing at all is solved is told with the level.
    [text] = [flag["text"] for flag in changes.flags() if "solved" in flag["kinds"]]
    told = "while the level goes from 1.0 to 3.0: level or ability, no common level ("
    assert told in text
    expected = int(text.partition(told)[2].partition("%")[0])
    assert 0 < expected < 15, "from half of them at level 1, down by two levels"


def test_few_groups_of_a_task_are_kept_where_memory_counts() -> None:
    groups = list(invented_groups())
    few = check(groups, keep=64)
    assert named(few) == named(check(groups))
    assert max(map(len, few._rows.values())) == COLUMNS * 64


def test_a_report_and_the_live_page_tell_of_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    write_invented_run(dumps)
    page = [str(dumps), "-o", str(tmp_path / "report.html")]
    assert report.main(page) == 0
    printed = capsys.readouterr().out.splitlines()[1:]
    assert report.main([*page, "--force", "--json"]) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert [change["text"] for change in as_json["changes"]] == printed
    assert as_json["report"] == str(tmp_path / "report.html")
    live = LiveIndex([dumps])
    while live.update():
        pass
    [run] = live.batch()["runs"]
    told = [flag["text"] for flag in run["flags"]]
    # Which answers repeat, files' order decides.
    assert run["id"] == RUN
    assert (
        {text[:4] for text in told}
        == {text[:4] for text in printed}
        == {"game", "gcd:"}
    )
    warnings = [line["text"] for line in run["health"] if line["level"] == "warning"]
    assert warnings[: len(told)] == told
    assert run["health"][0]["text"].startswith("Ended 2026-01-01")


def test_a_change_has_its_numbers_and_a_condition_that_selects_its_rollouts() -> None:
    groups = list(invented_groups())
    [games] = [flag for flag in check(groups).flags() if flag["category"] == "games"]
    assert games["where"] == f"category:games group:>={games['since']}"
    selected = list(filter_rollouts(groups, games["where"]))
    assert {CATEGORIES[group.task] for group, _ in selected} == {"games"}
    assert min(group.number for group, _ in selected) >= games["since"]
    [truncated] = [each for each in games["measures"] if each["kind"] == "truncated"]
    change = truncated["new"] - truncated["old"]
    assert truncated["low"] < change < truncated["high"] < truncated["low"] + 0.3
    points = f"{100 * change:+.0f} ± {50 * (truncated['high'] - truncated['low']):.0f}"
    assert f"{points} points)" in truncated["text"]


def test_what_the_servers_filter_withholds_is_a_change() -> None:
    def withheld(group: StoredGroup) -> StoredGroup:
        cut = [replace(r, finish_reason="content_filter") for r in group.rollouts]
        return replace(group, rollouts=cut)

    sound = invented_groups(truncates=math.inf, hacked=math.inf)
    groups = [withheld(each) if each.number > 500 else each for each in sound]
    [flag] = check(groups).flags()
    assert (flag["kind"], flag["task"], flag["category"]) == ("withheld", None, None)
    assert "100% withheld by the server's filter (0% before, " in flag["text"]
    assert abs(flag["since"] - 501) <= 10
