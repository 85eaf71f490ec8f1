"""`tasks`: which tasks there are, and which of them a run uses."""

from __future__ import annotations

import asyncio
import json
import logging
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Sequence

from ..runtime.task_pool import PoolSettings, TaskPool
from ..tasks.catalogue import TaskInfo, select_tasks


def main(arguments: Sequence[str]) -> int:
    """List every task."""
    parser = ArgumentParser(prog="tasks", description="List every task reasoning-gym registers.")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--include-tasks", default="", help="as env.include_tasks")
    parser.add_argument("--exclude-tasks", default="", help="as env.exclude_tasks")
    options = parser.parse_args(arguments)

    async def list_tasks() -> list[TaskInfo]:
        async with TaskPool(PoolSettings(processes=1), Counter()) as pool:
            discovery = await pool.discover()
        if discovery.warning:
            logging.getLogger(__name__).warning("%s", discovery.warning)
        return select_tasks(
            discovery,
            include=[name for name in options.include_tasks.split(",") if name],
            exclude=[name for name in options.exclude_tasks.split(",") if name],
        )

    tasks = asyncio.run(list_tasks())
    print(json.dumps([t.to_json() for t in tasks], indent=2) if options.json else _table(tasks))
    return 0


def _table(tasks: Sequence[TaskInfo]) -> str:
    """Aligned columns: name, category, whether it is used and, if not, why."""
    width = max(len(task.name) for task in tasks)
    category = max(len(task.category) for task in tasks)
    rows = [
        f"{task.name:{width}}  {task.category:{category}}  {'used' if task.used else task.reason}"
        for task in tasks
    ]
    used = sum(task.used for task in tasks)
    return "\n".join([*rows, f"{used} of {len(tasks)} are used"])
