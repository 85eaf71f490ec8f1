"""`python -m research.floors FILE`: measure every task's floors, and write them."""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reasoning_gym_environment.proof.proving import chosen_tasks
from reasoning_gym_environment.sandbox.pool import (
    PoolSettings,
    TaskPool,
    default_processes,
)
from reasoning_gym_environment.tasks.facts import LIBRARY, Floors
from reasoning_gym_environment.util.progress import with_progress

from .measure import find_floors


def main(arguments: Sequence[str]) -> int:
    """Write the contents of `tasks/chance_floors.json`."""
    parser = ArgumentParser(prog="python -m research.floors", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument(
        "--items", type=int, default=300, help="items of each task (default: 300)"
    )
    parser.add_argument(
        "--tasks", default="", help="names, separated by commas (default: all)"
    )
    options = parser.parse_args(arguments)
    names = [name for name in options.tasks.split(",") if name]
    found = {
        task: floors_json(own)
        for task, own in asyncio.run(measure(names, options.items))
    }
    whole = {"reasoning_gym": version(LIBRARY), "floors": found}
    options.file.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return 0


async def measure(names: Sequence[str], items: int) -> list[tuple[str, Floors]]:
    """Measure the floors of the named tasks, or of all."""
    places = asyncio.Semaphore(4)  # tasks at once
    async with TaskPool(PoolSettings(processes=default_processes()), Counter()) as pool:

        async def one(task: str) -> tuple[str, Floors]:
            async with places:
                return task, await find_floors(pool, task, items)

        tasks = chosen_tasks(await pool.discover(), names)
        return await with_progress([one(task) for task in tasks], "floors")


def floors_json(floors: Floors) -> dict[str, dict[str, Any]]:
    return {
        kind: {
            k: round(v, 3) if isinstance(v, float) else v
            for k, v in own._asdict().items()
        }
        for kind, own in floors._asdict().items()
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
