"""Writes the table of docs/tasks.md; `--check` only compares.

python docs/task_table.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

from reasoning_gym_environment.tasks.catalogue import TaskInfo, select_tasks
from reasoning_gym_environment.tasks.chance import floors
from reasoning_gym_environment.tasks.facts import NOT_A_TASK
from reasoning_gym_environment.tasks.shipped import Offer, shipped

PAGE = Path(__file__).with_name("tasks.md")
BEGIN, END = "<!-- task table: begin -->", "<!-- task table: end -->"


def row(task: TaskInfo, levels: int) -> str:
    used = "" if task.used else " (left out unless named)"
    link = f"[`{task.name}`](difficulty-levels.md#{task.name}){used}"
    floor = floors()[task.name]
    shares = f"{floor.chance.solved:.0%} | {floor.no_reasoning.solved:.0%}"
    return f"| {link} | {task.category} | {levels} | {shares} |"


def table(offer: Offer) -> str:
    """Every task, by category."""
    tasks = [task for task in select_tasks(offer.discovery) if task.name not in NOT_A_TASK]
    rows = [
        row(task, len(offer.ladders[task.name].levels))
        for task in sorted(tasks, key=lambda task: (task.category, task.name))
    ]
    head = "| task | category | levels | chance | no reasoning |\n| --- | --- | --- | --- | --- |"
    return "\n".join([head, *rows])


def updated(text: str, offer: Offer) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(offer)}\n{END}{after}"


def main() -> int | str:
    offer = shipped()
    if offer is None:
        return "another version of reasoning-gym is installed than docs/shipped_tasks.py has seen"
    text = PAGE.read_text(encoding="utf-8")
    if "--check" in sys.argv[1:]:
        return 0 if updated(text, offer) == text else "docs/tasks.md is out of date: make docs"
    PAGE.write_text(updated(text, offer), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
