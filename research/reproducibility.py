"""Make items in processes with different hash seeds, and report those that differ.

    python -m research.reproducibility FILE [--items 20000]

Half have the default configuration, half are of levels, drawn over all tasks; those that are faulty
or can't be made are drawn again. The second process has another hash seed and goes backwards. A
third makes again what differs, under the first one's. It prints how many items differ under another
hash seed, by task, and those that differ under the same. FILE lets the command go on where it was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from reasoning_gym_environment.problems.seeds import training_seed
from reasoning_gym_environment.problems.stream import skip_faulty
from reasoning_gym_environment.proof.ladder_proof import find_difference
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.tasks.ladders import TaskLadder

from .make_suites import make

BLOCK = 250


def draw(ladders: dict[str, TaskLadder], index: int) -> Recipe:
    """Draw a training recipe: of the default configuration if the index is even, else a level."""
    task = (random := Random(index)).choice(sorted(ladders))
    recipe = Recipe(task=task, seed=training_seed(0, "", task, index))
    level = random.randrange(len(ladders[task].levels))
    parameters = ladders[task].levels[level]
    return replace(recipe, level=level, parameters=parameters) if index % 2 else recipe


async def make_all(pool: TaskPool, recipes: Iterable[Recipe]) -> list[Problem]:
    """Make the problems, one after the other."""
    return [
        await make(skip_faulty(pool.generate, Counter()), recipe) for recipe in recipes
    ]


async def compare(
    pools: Sequence[TaskPool], ours: Problem, theirs: Problem
) -> list[Any]:
    """Return a recipe and what differs under another hash seed, and then under the same."""
    one, two, three = pools
    recipe, same = ours.recipe, None
    if found := await find_difference(one, two, ours, theirs):
        same = await find_difference(one, three, ours, await three.generate(recipe))
    return [recipe.task, recipe.level, recipe.seed, found, same]


async def main(file: Path, items: int) -> None:
    file.touch()
    for start in range(len(lines := file.read_text().splitlines()), items, BLOCK):
        async with AsyncExitStack() as stack:
            settings = [PoolSettings(processes=1, hash_seed=seed) for seed in (0, 1, 0)]
            pools = [
                await stack.enter_async_context(TaskPool(s, Counter()))
                for s in settings
            ]
            (one, two, _), ladders = pools, await pools[0].ladders()
            drawn = [draw(ladders, n) for n in range(start, min(start + BLOCK, items))]
            ours, theirs = await asyncio.gather(
                make_all(one, drawn), make_all(two, drawn[::-1])
            )
            for pair in zip(ours, theirs[::-1], strict=True):
                lines.append(json.dumps(await compare(pools, *pair)))
        file.write_text("\n".join(lines) + "\n")
        print(f"{len(lines)} items", flush=True)
    differ = [line for line in map(json.loads, lines) if line[3]]
    print(
        Counter(line[0] for line in differ),
        *(line for line in differ if line[4]),
        sep="\n",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--items", type=int, default=20_000)
    asyncio.run(main(**vars(parser.parse_args())))
