"""`python -m research.floors FILE [--levels]`: measure every task's floors, and write them.

With --tasks, the other tasks of the file stay as they are.
"""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Mapping, Sequence
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

LEVEL_ITEMS = 200
"""Items of each level: as many as prove that its questions and answers differ."""

LEVEL_CHOOSING = 24
"""Other items of each level, on which hundreds of answers are tried."""


def main(arguments: Sequence[str]) -> int:
    """Write the contents of `tasks/chance_floors.json`, or of `tasks/level_floors.json`."""
    parser = ArgumentParser(prog="python -m research.floors", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument(
        "--levels",
        action="store_true",
        help="measure every level",
    )
    parser.add_argument(
        "--items",
        type=int,
        help=f"items of each task (default: 300), or of each level ({LEVEL_ITEMS})",
    )
    parser.add_argument(
        "--tasks", default="", help="names, separated by commas (default: all)"
    )
    options = parser.parse_args(arguments)
    names = [name for name in options.tasks.split(",") if name]
    kept = _kept(options.file)
    if options.levels:
        found = asyncio.run(measure_levels(names, options.items or LEVEL_ITEMS))
        text = _level_text(kept | dict(found))
    else:
        measured = asyncio.run(measure(names, options.items or 300))
        floors = kept | {task: floors_json(own) for task, own in measured}
        text = json.dumps(
            {"reasoning_gym": version(LIBRARY), "floors": floors}, indent=1
        )
    options.file.write_text(text + "\n", encoding="utf-8")
    return 0


TASKS_AT_ONCE = 4


async def measure(names: Sequence[str], items: int) -> list[tuple[str, Floors]]:
    """Measure the floors of the named tasks, or of all."""
    places = asyncio.Semaphore(TASKS_AT_ONCE)
    async with TaskPool(PoolSettings(processes=default_processes()), Counter()) as pool:

        async def one(task: str) -> tuple[str, Floors]:
            async with places:
                return task, await find_floors(pool, task, items)

        tasks = chosen_tasks(await pool.discover(), names)
        return await with_progress([one(task) for task in tasks], "floors")


async def measure_levels(
    names: Sequence[str], items: int
) -> list[tuple[str, list[dict[str, Any]]]]:
    """Measure the floors of every level of the named tasks, or of all."""
    places = asyncio.Semaphore(TASKS_AT_ONCE)
    async with TaskPool(PoolSettings(processes=default_processes()), Counter()) as pool:
        ladders = await pool.ladders()

        async def one(task: str) -> tuple[str, list[dict[str, Any]]]:
            async with places:
                return task, [
                    floors_json(
                        await find_floors(
                            pool, task, items, parameters, choosing=LEVEL_CHOOSING
                        )
                    )
                    for parameters in ladders[task].levels
                ]

        tasks = chosen_tasks(await pool.discover(), names)
        return await with_progress([one(task) for task in tasks], "floors")


def _kept(file: Path) -> dict[str, Any]:
    """Return the floors that a file has, by task."""
    if not file.exists():
        return {}
    kept: dict[str, Any] = json.loads(file.read_text("utf-8"))["floors"]
    return kept


def _level_text(floors: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return JSON with a line for each level."""
    tasks = []
    for task in sorted(floors):
        levels = ",\n  ".join(json.dumps(level) for level in floors[task])
        tasks.append(f" {json.dumps(task)}: [\n  {levels}]")
    head = f'{{"reasoning_gym": {json.dumps(version(LIBRARY))}, "floors": {{'
    return head + "\n" + ",\n".join(tasks) + "}}"


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
