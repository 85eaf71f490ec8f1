"""Writes the table of docs/tasks.md; `--check` only compares.

python docs/task_table.py [--check]
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from reasoning_gym_environment.tasks.catalogue import (
    LibrarySnapshot,
    TaskInfo,
    bundled_snapshot,
    select_tasks,
)
from reasoning_gym_environment.tasks.facts import NOT_A_TASK, floors
from reasoning_gym_environment.util.values import group_by

PAGE = Path(__file__).with_name("tasks.md")
LEVELS = PAGE.with_name("difficulty-levels.csv")
BEGIN, END = "<!-- task table: begin -->", "<!-- task table: end -->"


def row(task: TaskInfo, levels: Sequence[Mapping[str, str]]) -> str:
    used = "" if task.used else " (left out unless named)"
    floor = floors()[task.name]
    shares = f"{floor.chance.solved:.0%} | {floor.no_reasoning.solved:.0%}"
    chances = ", ".join(f"{float(level['chance']):.0%}" for level in levels if level["chance"])
    answers = ", ".join(level["answers"] for level in levels)
    return f"| `{task.name}`{used} | {len(levels)} | {shares} | {chances} | {answers.strip(', ')} |"


def table(snapshot: LibrarySnapshot) -> str:
    """Every task, by category."""
    tasks = [task for task in select_tasks(snapshot.discovery) if task.name not in NOT_A_TASK]
    with LEVELS.open(encoding="utf-8", newline="") as file:
        levels = group_by(lambda level: level["task"], csv.DictReader(file))
    lines = [
        "| task | levels | chance | no reasoning | chance by level | answers by level |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for category, members in sorted(group_by(lambda task: task.category, tasks).items()):
        lines.append(f"| **{category}** | | | | | |")
        lines += [row(task, levels[task.name]) for task in members]
    return "\n".join(lines)


def updated(text: str, snapshot: LibrarySnapshot) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(snapshot)}\n{END}{after}"


def main() -> int | str:
    snapshot = bundled_snapshot()
    if snapshot is None:
        return (
            "another version of reasoning-gym is installed than docs/library_snapshot.py has seen"
        )
    text = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        return 0 if updated(text, snapshot) == text else "docs/tasks.md is out of date: make docs"
    PAGE.write_text(updated(text, snapshot), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
