"""Count how many different questions and items each level of each task has, in 200 draws.

    python -m research.distinct_items FILE [TASK ...]

Draws 200 training items of every level and of the default configuration, and writes
distinct_items.csv beside this module. FILE keeps the drawn items, so that the command goes on
where it was. Lines of tasks that it lacks stay as they are.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reasoning_gym_environment.errors import GenerationError
from reasoning_gym_environment.problems.identity import IDENTITIES, problem_identity
from reasoning_gym_environment.problems.seeds import training_seed
from reasoning_gym_environment.problems.stream import skip_faulty
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import (
    Generate,
    PoolSettings,
    TaskPool,
)
from reasoning_gym_environment.tasks.facts import DISGUISES_ITS_ANSWER, ladder_heights
from reasoning_gym_environment.tasks.ladders import TaskLadder
from reasoning_gym_environment.util.progress import with_progress

DRAWS = 200
PROCESSES = 2

TABLE = Path(__file__).with_name("distinct_items.csv")

EVALUATED = 20
"""Items of an evaluation set, in the share of training items that copy one of them."""


Part = tuple[str, int | None]
"""A task, and a level or None for the default configuration."""


Drawn = Sequence[tuple[str, str]]
"""The question of each drawn item, and what identifies it."""


def read_drawn(path: Path) -> dict[Part, Drawn]:
    """Return the items that were drawn of each part."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return {(row["task"], row["level"]): row["items"] for row in rows}


class Row(NamedTuple):
    """A line of the table.

    Attributes:
        draws: items drawn.
        questions, items: how many of them differ; items by what identifies them.
        held_out: "yes" if copies are known, and go to the side of their question; else empty.
        copies: share of the draws that copy one of the first EVALUATED, without these.
    """

    task: str
    level: str
    draws: int
    questions: int
    items: int
    held_out: str
    copies: str


def count(task: str, level: int | None, drawn: Drawn) -> Row:
    """Count the different questions and items among the drawn."""
    items = [identity for _, identity in drawn]
    evaluated = {*items[:EVALUATED]}
    copies = sum(item in evaluated for item in items[EVALUATED:])
    share = copies / max(1, len(items) - EVALUATED)
    knows_copies = task in IDENTITIES or task in DISGUISES_ITS_ANSWER
    return Row(
        task=task,
        level="default" if level is None else str(level),
        draws=len(drawn),
        questions=len({question for question, _ in drawn}),
        items=len(set(items)),
        held_out="yes" if knows_copies else "",
        copies=f"{share:.2f}",
    )


def is_on_ladder(line: Iterable[Any]) -> bool:
    """Return whether the task of a line has its level; the ladder may have been taller once.

    Example:
        >>> [is_on_ladder(["aiw", level, 200]) for level in ("1", "7", "default")]
        [True, False, True]
    """
    task, level, *_ = line
    return level == "default" or int(level) < ladder_heights()[task]


def write_table(drawn: Mapping[Part, Drawn], table: Path) -> None:
    """Write the table; lines of tasks that were not drawn stay as they are."""

    def order(line: Iterable[Any]) -> tuple[str, int]:
        task, level, *_ = line
        return task, -1 if level == "default" else int(level)

    tasks = {task for task, _ in drawn}
    with table.open(encoding="utf-8", newline="") as file:
        lines: list[Iterable[Any]] = [
            line for line in [*csv.reader(file)][1:] if line[0] not in tasks
        ]
    lines += [count(*part, items) for part, items in drawn.items()]
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(sorted(filter(is_on_ladder, lines), key=order))


async def made(generate: Generate, recipes: Iterable[Recipe]) -> list[Problem]:
    """Return the problems of recipes, and say which can't be made."""
    problems = []
    for recipe in recipes:
        try:
            problems.append(await generate(recipe))
        except GenerationError as error:
            print(f"left out: {error}")
    return problems


async def draw(
    generate: Generate, task: str, level: int | None, parameters: Any
) -> Drawn:
    """Return DRAWS training items of both sides, but for those that can't be made."""
    recipes = [
        Recipe(
            task=task,
            seed=training_seed(0, "", task, index),
            level=level,
            parameters=parameters,
        )
        for index in range(DRAWS)
    ]
    return [(p.question, problem_identity(p)) for p in await made(generate, recipes)]


async def draw_all(path: Path, tasks: Sequence[str]) -> None:
    """Draw the items of all parts that the file lacks, and add them to it."""
    drawn = read_drawn(path)
    places = asyncio.Semaphore(PROCESSES)
    # A busy machine must not leave out what takes longer there.
    settings = PoolSettings(processes=PROCESSES, generation_timeout=60.0)
    async with TaskPool(settings, Counter()) as pool:
        ladders: dict[str, TaskLadder] = dict(await pool.ladders())
        generate = skip_faulty(pool.generate, Counter())

        async def one(task: str, level: int | None, parameters: Any) -> None:
            async with places:
                items = await draw(generate, task, level, parameters)
            row = {"task": task, "level": level, "items": items}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

        jobs = []
        for task in tasks or sorted(ladders):
            levels = ladders[task].levels
            for level, parameters in ((None, {}), *enumerate(levels)):
                if (task, level) not in drawn:
                    jobs.append(one(task, level, parameters))
        await with_progress(jobs, "levels")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("tasks", nargs="*")
    options = parser.parse_args()
    asyncio.run(draw_all(options.file, options.tasks))
    write_table(read_drawn(options.file), TABLE)
