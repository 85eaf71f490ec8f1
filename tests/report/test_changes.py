"""What changed in a run: which tasks, and since which group."""

import dataclasses
import itertools
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
from reasoning_gym_environment.report.live import LiveIndex
from reasoning_gym_environment.rollouts.changes import DriftCheck
from reasoning_gym_environment.storage.rows import StoredGroup

CATEGORIES = {task: category for category, tasks in TASKS.items() for task in tasks}


def check(groups: Iterable[StoredGroup], **settings: Any) -> DriftCheck:
    changes = DriftCheck(**settings)
    for group in groups:
        changes.add(group, CATEGORIES[group.task])
    return changes


def named(changes: DriftCheck) -> set[tuple[str, str]]:
    return {
        (flag["kind"], flag["task"] or flag["category"] or "")
        for flag in changes.flags()
    }


@pytest.mark.parametrize("seed", [0, 1])
def test_the_faults_of_a_run_are_named_with_the_group_since_which_they_last(
    seed: int,
) -> None:
    flags = {flag["kind"]: flag for flag in check(invented_groups(seed=seed)).flags()}
    truncated, shorter, repeats = (
        flags[kind] for kind in ("truncated", "shorter", "repeats")
    )
    assert (truncated["category"], truncated["task"]) == ("games", None)
    assert abs(truncated["since"] - TRUNCATES) <= 20
    assert {shorter["task"], repeats["task"]} == {HACKED_TASK}
    assert abs(shorter["since"] - HACKED) <= 20
    assert truncated["text"].startswith(
        "games: 100% of completions are truncated since group 7"
    )
    assert "gcd: completions have 12 tokens since group 4" in shorter["text"]
    assert len(flags) == 3


def test_a_healthy_run_has_none_at_any_time() -> None:
    changes = DriftCheck()
    for group in invented_groups(truncates=math.inf, hacked=math.inf, seed=2):
        changes.add(group, CATEGORIES[group.task])
        assert group.number % 50 or changes.flags() == []


def test_the_order_in_which_groups_are_read_does_not_matter_to_lengths() -> None:
    groups = list(invented_groups(groups=900))
    by_kind = sorted(groups, key=lambda group: group.solved == 0)  # as in two files
    assert {("truncated", "games"), ("shorter", "gcd")} <= named(check(by_kind))


def test_what_is_over_is_not_flagged() -> None:
    again = [replace(each, number=1000 + each.number) for each in invented_groups(480)]
    assert named(check(itertools.chain(invented_groups(), again))) == set()


def test_a_category_is_named_only_where_all_its_tasks_change() -> None:
    groups = list(invented_groups(hacked=math.inf))
    mazes = [each for each in groups if each.task == "maze"]
    sound = itertools.cycle(each for each in mazes if each.number < TRUNCATES)
    of_mazes = [replace(next(sound), number=each.number) for each in mazes]
    others = [each for each in groups if each.task != "maze"]
    truncated = {("truncated", task) for task in TASKS["games"] if task != "maze"}
    assert named(check([*others, *of_mazes])) == truncated
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


def test_another_level_explains_a_change() -> None:
    def harder(group: StoredGroup) -> StoredGroup:
        return replace(group, recipe=dataclasses.replace(group.recipe, level=3.0))

    faults = invented_groups(hacked=math.inf)
    groups = [harder(each) if each.number >= TRUNCATES else each for each in faults]
    assert named(check(groups)) == set()


def test_few_groups_of_a_task_are_kept_where_memory_counts() -> None:
    groups = list(invented_groups())
    few = check(groups, keep=64)
    assert named(few) == named(check(groups))
    assert max(map(len, few._rows.values())) == 6 * 64


def test_a_report_and_the_live_page_tell_of_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    write_invented_run(dumps)
    assert report.main([str(dumps), "-o", str(tmp_path / "report.html")]) == 0
    printed = capsys.readouterr().out.splitlines()[1:]
    live = LiveIndex([dumps])
    while live.update():
        pass
    [run] = live.batch()["runs"]
    told = [flag["text"] for flag in run["flags"]]
    # Which answers repeat, files' order decides.
    assert (run["id"], told[:2]) == (RUN, printed[:2])
    assert (
        [text[:4] for text in told]
        == [text[:4] for text in printed]
        == ["game", "gcd:", "gcd:"]
    )
    assert [line["text"] for line in run["health"] if line["level"] == "warning"][
        :3
    ] == told
    assert run["health"][0]["text"].startswith("Ended 2026-01-01")
