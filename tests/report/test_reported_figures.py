"""The figures that `report` prints and writes: of all tasks, and of each."""

import json
import math
from pathlib import Path

import pytest
from invented_run import (
    HACKED_TASK,
    RUN,
    TASKS,
    TRUNCATES,
    invented_groups,
    write_invented_run,
)

from reasoning_gym_environment.commands import report
from reasoning_gym_environment.rollouts.figures import RunFigures, describe

CATEGORIES = {task: category for category, tasks in TASKS.items() for task in tasks}


def test_a_report_prints_the_figures_and_has_them_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    write_invented_run(dumps)
    output = tmp_path / "report.html"
    expected = RunFigures()
    for group in invented_groups():
        expected.add(group, CATEGORIES[group.task])
    assert report.main([str(dumps), "-o", str(output)]) == 0
    _, *printed = capsys.readouterr().out.splitlines()
    for row, said in zip(expected.all_figures(), printed, strict=True):
        assert describe(row) in said
        assert said.endswith("worse") == row.marked
    assert report.main([str(dumps), "-o", str(output), "--force", "--json"]) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert as_json["report"] == str(output)
    [run] = as_json["runs"]
    assert run["run"] == RUN
    written = json.loads(json.dumps([row.to_json() for row in expected.all_figures()]))
    assert run["figures"] == written
    assert {row["task"] for row in run["tasks"]} == CATEGORIES.keys()


def test_the_faults_of_the_invented_run_stand_first() -> None:
    figures = RunFigures()
    for group in invented_groups():
        figures.add(group, CATEGORIES[group.task])
    truncated = next(row for row in figures.all_figures() if row.measure == "truncated")
    assert truncated.marked
    games = [task for task, category in CATEGORIES.items() if category == "games"]
    first = [row.task for row in figures.task_figures()[:5]]
    assert {*first} == {*games, HACKED_TASK}


def test_a_run_without_a_fault_is_not_marked() -> None:
    figures = RunFigures()
    for group in invented_groups(truncates=math.inf, hacked=math.inf, seed=2):
        figures.add(group, CATEGORIES[group.task])
        if group.number % TRUNCATES == 0:
            assert not any(row.marked for row in figures.all_figures())
    assert not any(row.marked for row in figures.all_figures())
    assert not any(row.marked for row in figures.task_figures())
