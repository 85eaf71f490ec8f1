"""Writes the table of docs/tasks.md; `--check` only compares.

python docs/task_table.py [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reasoning_gym_environment.tasks.catalogue import (
    LibrarySnapshot,
    TaskInfo,
    bundled_snapshot,
    select_tasks,
)
from reasoning_gym_environment.tasks.facts import NOT_A_TASK, floors
from reasoning_gym_environment.util.values import group_by

PAGE = Path(__file__).with_name("tasks.md")
BEGIN, END = "<!-- task table: begin -->", "<!-- task table: end -->"


def changed_parameters(levels: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the parameters in which levels differ, `x` for `min_x` and `max_x`.

    `candidates` is left out: it spreads the answers, and makes no problem harder.

    Example:
        >>> list(changed_parameters([{"min_n": 2, "max_n": 4, "p": 1}, {"min_n": 2, "max_n": 8}]))
        ['n', 'p']
    """
    names = dict.fromkeys(name for level in levels for name in level)
    differ = [
        n for n in names if any(level.get(n) != levels[0].get(n) for level in levels)
    ]
    shown = dict.fromkeys(
        name[4:] if {f"min_{name[4:]}", f"max_{name[4:]}"} <= names.keys() else name
        for name in differ
    )
    yield from (name for name in shown if name != "candidates")


def row(task: TaskInfo, levels: Sequence[Mapping[str, Any]]) -> str:
    used = "" if task.used else " (only if named)"
    floor = floors()[task.name]
    shares = f"{floor.chance.solved:.0%} | {floor.no_reasoning.solved:.0%}"
    changes = ", ".join(changed_parameters(levels))
    return f"| `{task.name}`{used} | {len(levels)} | {changes} | {shares} |"


def table(snapshot: LibrarySnapshot) -> str:
    """Every task, by category."""
    tasks = [
        task for task in select_tasks(snapshot.discovery) if task.name not in NOT_A_TASK
    ]
    lines = [
        "| task | levels | what levels change | chance | no reasoning |",
        f"|{' --- |' * 5}",
    ]
    for category, members in sorted(
        group_by(lambda task: task.category, tasks).items()
    ):
        lines.append(f"| **{category}** | | | | |")
        lines += [row(task, snapshot.ladders[task.name].levels) for task in members]
    return "\n".join(lines)


def updated(text: str, snapshot: LibrarySnapshot) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(snapshot)}\n{END}{after}"


def main() -> int | str:
    snapshot = bundled_snapshot()
    if snapshot is None:
        return "docs/library_snapshot.py has seen another version of reasoning-gym"
    text = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        return (
            0
            if updated(text, snapshot) == text
            else "docs/tasks.md is out of date: make docs"
        )
    PAGE.write_text(updated(text, snapshot), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
