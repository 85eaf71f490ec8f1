"""`tasks`: all tasks, which of them a run uses, and their levels."""

from __future__ import annotations

import asyncio
import json
import logging
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import indent

from ..errors import ConfigurationError, GenerationError
from ..problems.options import add_task_modules, split_names
from ..problems.seeds import evaluation_seed
from ..records import Recipe
from ..sandbox.pool import PoolSettings, TaskPool
from ..tasks.catalogue import (
    LibrarySnapshot,
    TaskInfo,
    bundled_snapshot,
    count_used,
    proven_tasks,
    require_known,
    select_tasks,
)
from ..tasks.facts import level_floors
from ..tasks.ladders import TaskLadder
from ..tasks.modules import find_modules
from ..util.command_line import Parser
from ..util.values import shorten, table

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """List every task, or the levels of one."""
    parser = Parser("tasks", "List all tasks of reasoning-gym, or the levels of one.")
    parser.option(
        "task", "print this task's levels, each with a sample question", nargs="?"
    )
    parser.option("--levels", "the same", metavar="TASK")
    parser.flag("--json", "print JSON, with the levels")
    add_task_modules(parser)
    parser.option("--include-tasks", "as env.include_tasks", default="")
    parser.option("--exclude-tasks", "as env.exclude_tasks", default="")
    options = parser.parse(arguments)
    if options.task and options.levels:
        raise ConfigurationError(
            f"name one task, got {options.task} and --levels {options.levels}"
        )
    print(asyncio.run(_answer(options, options.task or options.levels)))
    return 0


async def _answer(options: Namespace, task: str | None) -> str:
    """Return the levels of a task, or all tasks."""
    if task and options.json:
        raise ConfigurationError(
            f"--json has the levels of all tasks: leave {task} out"
        )
    snapshot = None if options.task_modules else bundled_snapshot()
    if snapshot and task:
        require_known([task], snapshot.ladders, "tasks", what="task")
    if snapshot is None or task:
        logger.info("Starting the library, which takes a few seconds")
        settings = PoolSettings(
            processes=1,
            modules=find_modules(options.task_modules),
            task_environment=options.task_environment,
        )
        async with TaskPool(settings, Counter()) as pool:
            # Another version of the library is installed, or there is more.
            if snapshot is None:
                discovery = await pool.discover(proven=proven_tasks())
                if discovery.warning:
                    logger.warning("%s", discovery.warning)
                snapshot = LibrarySnapshot(discovery, await pool.ladders())
            if task:
                require_known([task], snapshot.ladders, "tasks", what="task")
                return await _levels(pool, task, snapshot.ladders[task])
    tasks = select_tasks(
        snapshot.discovery,
        include=split_names(options.include_tasks),
        exclude=split_names(options.exclude_tasks),
    )
    return (
        _json(tasks, snapshot.ladders)
        if options.json
        else _table(tasks, snapshot.ladders)
    )


def _json(tasks: Sequence[TaskInfo], ladders: Mapping[str, TaskLadder]) -> str:
    rows = [task.to_json() for task in tasks]
    for row in rows:
        ladder = ladders.get(row["name"])
        if ladder:
            row |= {
                "levels": ladder.levels,
                "origin": ladder.origin,
                "ladder": ladder.reason,
            }
            row["parameters"] = ladder.parameters
    return json.dumps(rows, indent=2)


def _table(tasks: Sequence[TaskInfo], ladders: Mapping[str, TaskLadder]) -> str:
    """Return aligned columns: name, category, levels, and why a task is unused."""
    rows = [["task", "category", "levels", "use"]]
    for task in tasks:
        levels = len(ladders[task.name].levels) if task.name in ladders else 0
        use = "used" if task.used else str(task.reason)
        rows.append([task.name, task.category, str(levels), use])
    return table([*rows, count_used(tasks)])


async def _levels(pool: TaskPool, task: str, ladder: TaskLadder) -> str:
    """Return every level with its difficulty, its changed parameters and a question."""
    levels = ladder.levels
    parts = [f"{task}: {len(levels)} levels ({ladder.origin}) {ladder.reason}".rstrip()]
    seed = evaluation_seed(0, task, 0)
    for level, parameters in enumerate(levels):
        recipe = Recipe(
            task=task,
            seed=seed,
            level=level,
            parameters=parameters,
        )
        try:
            question = (await pool.generate(recipe)).question
        except GenerationError as error:
            question = f"(generation failed: {error})"
        changed_parameters = ", ".join(
            f"{name}={json.dumps(value)}" for name, value in parameters.items()
        )
        difficulty = level / max(1, len(levels) - 1)
        title = f"level {level}  difficulty {difficulty:.2f}  {changed_parameters or 'the default'}"
        lines = [title, *_high_floor(recipe), indent(question, "    ")]
        parts.append("\n".join(lines))
    return table("\n\n".join(parts).splitlines())


def _high_floor(recipe: Recipe) -> list[str]:
    """Return a line on a level's floor if it is half or more."""
    measured = level_floors(recipe)
    floor = measured.high_floor if measured else None
    if measured is None or floor is None:
        return []
    way = "chance: the answer" if floor is measured.chance else "no reasoning: the rule"
    return [
        f"  {way} {shorten(floor.label)} solves {floor.solved:.0%} "
        f"({floor.low:.0%} to {floor.high:.0%})"
    ]
