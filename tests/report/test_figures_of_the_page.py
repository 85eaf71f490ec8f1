"""The page's figures are the package's, on the same groups."""

import json
import math
import re
import shutil
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from invented_run import TASKS, invented_groups

from reasoning_gym_environment.report.page import live_page
from reasoning_gym_environment.rollouts.differences import Difference
from reasoning_gym_environment.rollouts.figures import MEASURES, Figure, RunFigures
from reasoning_gym_environment.storage.rows import StoredGroup

NODE = shutil.which("node")
ASSETS = Path(__file__).resolve().parents[2] / "reasoning_gym_environment/report/assets"
CATEGORIES = {task: category for category, tasks in TASKS.items() for task in tasks}

PROGRAM = """
const NORMAL_QUANTILE = 1.959964;
const [values, cells, target, tasks] = JSON.parse(require("fs").readFileSync(0, "utf8"));
const numbers = [...cells.keys()];
const limits = { rows: MARKED.length, size: 0.1, target };
const all = figuresOfParts(partsOfSeries(numbers), values, cells, limits);
const own = [...new Set(tasks)].map((task) => {
  const groups = numbers.filter((group) => tasks[group] === task);
  const rows = MARKED.length * new Set(tasks).size;
  const figures = figuresOfParts(partsOfSeries(groups), values, cells, { rows, size: 0.1 });
  return [task, worstOfTask(figures), figures];
});
console.log(JSON.stringify([all, own]));
"""


def in_node(program: str, value: Any) -> Any:
    """What a program prints after the page's script, with a value as its input."""
    assert NODE is not None
    script = (ASSETS / "differences.js").read_text(encoding="utf-8") + program
    done = subprocess.run(
        [NODE, "-e", script],
        input=json.dumps(value),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def of_page(
    groups: Sequence[StoredGroup], target: float | None
) -> tuple[list[Any], list[Any]]:
    """The rows of all tasks and of each, as the page's script computes them."""
    values = {
        measure.name: [measure.value(group) for group in groups] for measure in MEASURES
    }
    cells = [f"{group.task} {group.recipe.level}" for group in groups]
    tasks = [group.task for group in groups]
    rows, own = in_node(PROGRAM, [values, cells, target, tasks])
    return rows, own


def require_same(found: dict[str, Any] | None, expected: Difference | None) -> None:
    if found is None or expected is None:
        assert found is expected
        return
    for name, value in expected.to_json().items():
        assert found[name] == (
            value if value is None else pytest.approx(value, abs=1e-9)
        )


def require_same_row(found: dict[str, Any], expected: Figure) -> None:
    assert found["measure"]["name"] == expected.measure
    assert (found["groups"], found["marked"]) == (expected.groups, expected.marked)
    for name in ("last", "before", "first", "best", "target", "worst"):
        own = getattr(expected, name)
        assert found[name] == (own if own is None else pytest.approx(own, abs=1e-9))
    for name in ("before", "first", "best"):
        require_same(found["whole"][name], getattr(expected, f"to_{name}"))
        require_same(found["level"][name], expected.at_level[f"to_{name}"])
    require_same(found["toTarget"], expected.to_target)


@pytest.mark.processes
@pytest.mark.skipif(NODE is None, reason="needs node")
def test_at_the_same_level_a_curve_keeps_what_rising_levels_hide() -> None:
    """Ability rises by 0.1 from part to part, and a level costs 0.2; levels rise."""
    program = """
    const NORMAL_QUANTILE = 1.959964;
    const [parts, values, cells] = JSON.parse(require("fs").readFileSync(0, "utf8"));
    console.log(JSON.stringify(standardisedMeans(parts, values, cells)));
    """
    parts: list[list[int]] = []
    values: list[float | None] = []
    cells: list[str] = []
    for part in range(4):
        parts.append([])
        for level in (part, part + 1):
            parts[-1].append(len(values))
            values.append(0.5 + 0.1 * part - 0.2 * level)
            cells.append(f"gcd {level}")
    parts.append([len(values)])
    values.append(None)
    cells.append("gcd 0")
    means = in_node(program, [parts, values, cells])
    assert means[-1] is None
    steps = [after - before for before, after in pairwise(means[:-1])]
    assert steps == pytest.approx([0.1] * 3, abs=0.01)


@pytest.mark.processes
@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_pages_module_is_sound_javascript(tmp_path: Path) -> None:
    assert NODE is not None
    *_, module = re.findall(
        r'<script type="module">(.*?)</script>', live_page(), re.DOTALL
    )
    file = tmp_path / "page.mjs"
    file.write_text(module, encoding="utf-8")
    subprocess.run([NODE, "--check", file], check=True)


@pytest.mark.processes
@pytest.mark.skipif(NODE is None, reason="needs node")
@pytest.mark.parametrize("target", [None, 0.9])
@pytest.mark.parametrize(("count", "truncates"), [(1000, 721), (90, math.inf)])
def test_the_page_computes_the_packages_figures(
    count: int, truncates: float, target: float | None
) -> None:
    groups = list(invented_groups(count, truncates=truncates))
    figures = RunFigures()
    for group in groups:
        figures.add(group, CATEGORIES[group.task])
    rows, tasks = of_page(groups, target)
    expected_rows = {row.measure: row for row in figures.all_figures(target=target)}
    assert [row["measure"]["name"] for row in rows][:3] == [*expected_rows][:3]
    assert len(rows) == len(expected_rows)
    for row in rows:
        require_same_row(row, expected_rows[row["measure"]["name"]])
    expected_tasks = {row.task: row for row in figures.task_figures()}
    assert {task for task, _, _ in tasks} == expected_tasks.keys()
    for task, worst, own in tasks:
        assert worst == pytest.approx(expected_tasks[task].worst, abs=1e-9)
        by_name = {row.measure: row for row in expected_tasks[task].figures}
        for row in own:
            require_same_row(row, by_name[row["measure"]["name"]])
