"""Writes the table of docs/tasks.md; `--check` only compares.

python docs/task_table.py [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from page_table import write_table

from reasoning_gym_environment.tasks.catalogue import (
    LibrarySnapshot,
    TaskInfo,
    bundled_snapshot,
    select_tasks,
)
from reasoning_gym_environment.tasks.facts import (
    NOT_A_TASK,
    Floor,
    all_level_floors,
    floors,
)
from reasoning_gym_environment.util.values import group_by

PAGE = Path(__file__).with_name("tasks.md")


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


def share(floor: Floor) -> str:
    """Format a floor with its 95 % interval.

    Example:
        >>> share(Floor(label="Yes", items=400, solved=0.55, low=0.501, high=0.598))
        '55% (50 to 60)'
    """
    return f"{floor.solved:.0%} ({100 * floor.low:.0f} to {100 * floor.high:.0f})"


def high_floors(task: str) -> str:
    """Format where a floor is half or more, and how high it is there.

    Example:
        >>> high_floors("sudoku"), high_floors("gcd")
        ('level 0: 86%', '')
        >>> high_floors("aiw")
        'default: 100%, levels 0 to 1: 100%'
    """
    default = floors()[task].high_floor
    parts = [f"default: {default.solved:.0%}"] if default else []
    at_levels = [measured.high_floor for measured in all_level_floors()[task]]
    shares = {level: floor.solved for level, floor in enumerate(at_levels) if floor}
    if shares:
        ends = [f"{100 * end(shares.values()):.0f}" for end in (min, max)]
        solved = " to ".join(dict.fromkeys(ends))
        parts.append(f"{level_names([*shares])}: {solved}%")
    return ", ".join(parts)


def level_names(levels: Sequence[int]) -> str:
    """Format levels in order, a run of them by its ends.

    Example:
        >>> level_names([0]), level_names([0, 3]), level_names([1, 2, 3])
        ('level 0', 'levels 0 and 3', 'levels 1 to 3')
    """
    first, last = levels[0], levels[-1]
    if first == last:
        return f"level {first}"
    if len(levels) == last - first + 1:
        return f"levels {first} to {last}"
    return f"levels {' and '.join(map(str, levels))}"


def row(task: TaskInfo, levels: Sequence[Mapping[str, Any]]) -> str:
    used = "" if task.used else " (only if named)"
    floor = floors()[task.name]
    shares = f"{share(floor.chance)} | {share(floor.no_reasoning)} | {high_floors(task.name)}"
    changes = ", ".join(changed_parameters(levels))
    return f"| `{task.name}`{used} | {len(levels)} | {changes} | {shares} |"


def table(snapshot: LibrarySnapshot) -> str:
    """Every task, by category."""
    tasks = [
        task for task in select_tasks(snapshot.discovery) if task.name not in NOT_A_TASK
    ]
    lines = [
        "| task | levels | what levels change | chance | no reasoning | half or more |",
        f"|{' --- |' * 6}",
    ]
    for category, members in sorted(
        group_by(lambda task: task.category, tasks).items()
    ):
        lines.append(f"| **{category}** | | | | | |")
        lines += [row(task, snapshot.ladders[task.name].levels) for task in members]
    return "\n".join(lines)


def main() -> int | str:
    snapshot = bundled_snapshot()
    if snapshot is None:
        return "docs/library_snapshot.py has seen another version of reasoning-gym"
    return write_table(PAGE, "task", table(snapshot))


if __name__ == "__main__":
    sys.exit(main())
