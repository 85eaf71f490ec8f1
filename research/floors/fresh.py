"""Check the stated floors of every level on items that no floor was measured on.

    python -m research.floors.fresh [--items 29] [--tasks gcd,lcm]

Answers each item by the constant and the strategy of its level's floors, by common constants, and
by echoes of its question. Prints what solves more than a floor says beyond chance, and ends with 1
if anything does.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from reasoning_gym_environment.problems.seeds import training_seed
from reasoning_gym_environment.problems.stream import skip_faulty
from reasoning_gym_environment.proof.proving import chosen_tasks
from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.sandbox.pool import (
    Generate,
    PoolSettings,
    TaskPool,
    default_processes,
)
from reasoning_gym_environment.tasks.facts import (
    Floor,
    Floors,
    all_level_floors,
    solved_score,
)
from reasoning_gym_environment.util.progress import with_progress

from ..distinct_items import made
from .measure import answers_without_reasoning, scores_of

ITEMS = 29
"""Of each level: 20,000 of all."""

RUN_SEED = 20_000
"""Its training items are not those of a run with a usual seed."""

SURPRISE = 1e-4
"""How improbable a share is that counts as above its floor: some 10,000 are looked at."""

CONSTANTS = ("0", "1", "2", "-1", "yes", "no", "true", "A", "[]", "x", ".")

ECHOES = (
    "the text",
    "line 1",
    "the last line",
    "the first number",
    "number 1",
    "the last number",
    "the largest number",
    "the smallest number",
    "the number of numbers",
    "word 1",
    "the last word",
    "quotation 1",
    "the last quotation",
    "bracket 1",
    "the last bracket",
    "the last grid",
)
"""Labels of strategies."""

Solved = Mapping[str, int]
"""By the label of an answer, how many items it solves."""


class Level(NamedTuple):
    """What solves how many of the items of a level."""

    task: str
    level: int
    items: int
    constants: Solved
    echoes: Solved


async def measure_level(
    pool: TaskPool, generate: Generate, recipes: Sequence[Recipe], stated: Floors
) -> Level:
    """Answer the items of a level, which has these recipes and floors."""
    task, level = recipes[0].task, recipes[0].level or 0
    solved_from = solved_score(task)
    constants: Counter[str] = Counter()
    echoes: Counter[str] = Counter()
    problems = await made(generate, recipes)
    for problem in problems:
        fixed = {text: text for text in (stated.chance.label, *CONSTANTS)}
        copies = answers_without_reasoning(problem)
        wanted = (stated.no_reasoning.label, *ECHOES)
        copied = {label: copies[label] for label in wanted if label in copies}
        scores = await scores_of(pool, problem, fixed, copied)
        for solved, own in zip((constants, echoes), scores, strict=True):
            solved.update(label for label, score in own.items() if score >= solved_from)
    return Level(task, level, len(problems), constants, echoes)


def above(level: Level, stated: Floors) -> list[str]:
    """Return a line for each answer that solves more than the floor of its kind allows."""
    kinds = [
        ("constant", level.constants, stated.chance),
        ("copy", level.echoes, stated.no_reasoning),
    ]
    return [
        f"{level.task} {level.level}: the {kind} {label!r} solves {solved} of {level.items}, "
        f"where its floor is {floor.solved:.3f} ({floor.low:.3f} to {floor.high:.3f})"
        for kind, answers, floor in kinds
        for label, solved in answers.items()
        if at_least(solved, level.items, floor) < SURPRISE
    ]


def at_least(solved: int, items: int, floor: Floor) -> float:
    """Return the probability that so many are solved, or more, at the floor's upper bound.

    Example:
        >>> floor = Floor(label="1", items=200, solved=0.02, low=0.01, high=0.05)
        >>> round(at_least(2, 29, floor), 3)
        0.429
    """
    p = floor.high
    return sum(
        math.comb(items, k) * p**k * (1 - p) ** (items - k)
        for k in range(solved, items + 1)
    )


async def check(
    names: Sequence[str], items: int, stated: Mapping[str, Sequence[Floors]]
) -> list[str]:
    """Return what is above the stated floors of the named tasks, or of all that have floors."""
    settings = PoolSettings(processes=default_processes(), generation_timeout=60.0)
    places = asyncio.Semaphore(default_processes())
    async with TaskPool(settings, Counter()) as pool:
        ladders = await pool.ladders()
        generate = skip_faulty(pool.generate, Counter())

        async def one(task: str, level: int) -> Level:
            recipes = [
                Recipe(
                    task=task,
                    seed=training_seed(RUN_SEED, str(level), task, index),
                    level=level,
                    parameters=ladders[task].levels[level],
                )
                for index in range(items)
            ]
            async with places:
                return await measure_level(pool, generate, recipes, stated[task][level])

        levels = await with_progress(
            [
                one(task, level)
                for task in chosen_tasks(await pool.discover(), names)
                if task in stated
                for level in range(len(ladders[task].levels))
            ],
            "levels",
        )
    total = sum(level.items for level in levels)
    print(f"{total} items of {len(levels)} levels")
    return [
        line
        for level in levels
        for line in above(level, stated[level.task][level.level])
    ]


def main(arguments: Sequence[str]) -> int:
    """Print what is above its floor."""
    parser = argparse.ArgumentParser(
        prog="python -m research.floors.fresh", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--items", type=int, default=ITEMS, help="of each level")
    parser.add_argument(
        "--tasks", default="", help="names, separated by commas (default: all)"
    )
    options = parser.parse_args(arguments)
    names = [name for name in options.tasks.split(",") if name]
    found = asyncio.run(check(names, options.items, all_level_floors()))
    print("\n".join(found) or "nothing is above its floor")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
