"""How long an evaluation set takes to generate: the slowest tasks, and the whole set.

    python benchmarks/evaluation_sets.py [--items 5]

Three of four draws belong to training, so that a set takes four times as many draws as it has
items. Prints the processor seconds of each slow task's items at the default configuration and at
difficulty 1, beside those of a set without the split, and then of all tasks together, with the
share of the time in which fewer items were wanted than there are processes. Needs Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from reasoning_gym_environment.evaluation.planning import (
    EvaluationSet,
    PlannedItem,
    planned_recipes,
)
from reasoning_gym_environment.problems.seeds import EVAL_SEED
from reasoning_gym_environment.problems.split import SplitProblems
from reasoning_gym_environment.problems.stream import skip_faulty
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import Generate, PoolSettings, TaskPool
from reasoning_gym_environment.tasks.facts import (
    ONLY_IF_NAMED,
    ladder_heights,
    stored_snapshot,
)

PROCESSES = 2

SHOWN = 10
"""Tasks in the table: the slowest ones."""

LEVELS = Path(__file__).parents[1] / "docs" / "difficulty-levels.csv"


def processor_seconds(pids: Sequence[int]) -> float:
    """Return the processor time that running processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Watched:
    """A generator of items that counts its draws, and the seconds with few of them wanted."""

    def __init__(self, generate: Generate, processes: int) -> None:
        self.draws = 0
        self.few_seconds = 0.0
        self._generate = generate
        self._processes = processes
        self._wanted = 0
        self._changed = time.perf_counter()

    def _change(self, by: int) -> None:
        now = time.perf_counter()
        if self._wanted < self._processes:
            self.few_seconds += now - self._changed
        self._changed = now
        self._wanted += by

    async def generate(self, recipe: Recipe) -> Problem:
        self.draws += 1
        self._change(+1)
        try:
            return await self._generate(recipe)
        finally:
            self._change(-1)


def planned(
    tasks: Sequence[str], items: int, difficulties: Sequence[float]
) -> list[PlannedItem]:
    """Plan so many items of each task at the default configuration, or at difficulties."""
    ladders = {
        task: row["levels"] for task, row in stored_snapshot()["ladders"].items()
    }
    every = planned_recipes(
        tasks=tasks,
        ladders=ladders,
        eval_seed=EVAL_SEED,
        num_eval_samples_per_task=items,
        eval_difficulties=difficulties,
    )
    wanted: set[float | None] = {*difficulties} or {None}
    return [item for item in every if item[1] in wanted]


async def measure(
    pool: TaskPool, plan: Sequence[PlannedItem], *, is_split: bool
) -> tuple[Watched, float, float]:
    """Make a set; return its draws, and the seconds of processors and on the wall."""
    watched = Watched(pool.generate_fixed, PROCESSES)
    generate = skip_faulty(watched.generate, Counter())
    if is_split:
        split = SplitProblems(
            pool.generate,
            Counter(),
            skip_faulty_items=True,
            generate_fixed=watched.generate,
        )
        generate = split.make
    # Each process makes a dataset of the task, which it keeps.
    first, _ = plan[0]
    await asyncio.gather(*(pool.generate_fixed(first) for _ in range(PROCESSES)))
    used = processor_seconds(pool.pids)
    began = time.perf_counter()
    await EvaluationSet(generate, plan).items()
    wall = time.perf_counter() - began
    return watched, processor_seconds(pool.pids) - used, wall


def slow_tasks() -> list[str]:
    """Return the tasks that the table of levels names the slowest, at their slowest level."""
    slowest: dict[str, float] = {}
    with LEVELS.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            slowest[row["task"]] = max(
                slowest.get(row["task"], 0.0), float(row["mean s"])
            )
    return sorted(slowest, key=lambda task: slowest[task], reverse=True)[:SHOWN]


async def main(items: int) -> None:
    async with TaskPool(PoolSettings(processes=PROCESSES), Counter()) as pool:
        print(
            f"| {items} items of | without the split | with it | at difficulty 1 | with it |"
        )
        print("| --- | --- | --- | --- | --- |", flush=True)
        for task in slow_tasks():
            seconds = []
            for difficulties in ([], [1.0]):
                for is_split in (False, True):
                    plan = planned([task], items, difficulties)
                    _, used, _ = await measure(pool, plan, is_split=is_split)
                    seconds.append(f"{used:.1f}")
            print(f"| `{task}` | {' | '.join(seconds)} |", flush=True)
        tasks = sorted(ladder_heights().keys() - ONLY_IF_NAMED.keys())
        plan = planned(tasks, items, [])
        watched, used, wall = await measure(pool, plan, is_split=True)
    print(
        f"\n{len(tasks)} tasks, {watched.draws} draws: {used:.0f} s of processors, {wall:.0f} s on "
        f"the wall; {watched.few_seconds / wall:.1%} of the time with fewer items than processes"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--items", type=int, default=5, help="of each task")
    asyncio.run(main(parser.parse_args().items))
