"""Write the tasks and ladders of the installed reasoning-gym into the package.

python docs/library_snapshot.py

The number of questions of each level is that of docs/difficulty-levels.csv.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from difficulty_levels import read_table

from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.tasks import catalogue


async def main() -> None:
    async with TaskPool(PoolSettings(processes=1), Counter()) as pool:
        discovery, ladders_of_tasks = await pool.discover(), await pool.ladders()
    questions = defaultdict[str, list[int]](list)
    for row in read_table():
        questions[row["task"]].append(int(row["questions"]))
    ladders = ",\n".join(
        f"{json.dumps(task)}: {json.dumps(asdict(ladder))}"
        for task, ladder in ladders_of_tasks.items()
    )
    head = json.dumps(
        {
            "version": version("reasoning-gym"),
            "categories": discovery.categories,
            "failures": discovery.failures,
            "questions": questions,
        }
    )
    one_task_per_line = f'{head[:-1]}, "ladders": {{\n{ladders}\n}}}}\n'
    Path(catalogue.__file__).with_name("library_snapshot.json").write_text(
        one_task_per_line
    )


if __name__ == "__main__":
    asyncio.run(main())
