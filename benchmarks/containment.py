"""What containment costs: scored groups per second with each layer, side by side in one run.

python benchmarks/containment.py [--groups 400] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

from reasoning_gym_environment.problems.sampler import Sampler
from reasoning_gym_environment.records import Problem
from reasoning_gym_environment.sandbox._fork_server import ForkServer
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.tasks.facts import PAYS_ANY_ANSWER, known_categories

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support" / "processes"))
from disabled_protections import Unsandboxed, Unscreened, pool_of

LAYERS = {
    "screen, sandbox, limits, children": ForkServer,
    "sandbox, limits, children": Unscreened,
    "limits on time and memory, children": Unsandboxed,
}
GROUP_SIZE = 8
PROCESSES = 2
IN_FLIGHT = 8


async def make_problems(count: int) -> list[Problem]:
    tasks = list(known_categories())
    weights = {task: 1.0 for task in tasks if task not in PAYS_ANY_ANSWER}
    sampler = Sampler(weights, run_seed=0, replica="benchmark")
    recipes = [sampler.next_recipe() for _ in range(count)]
    async with TaskPool(PoolSettings(processes=PROCESSES), Counter()) as pool:
        return list(
            await asyncio.gather(*(pool.generate(recipe) for recipe in recipes))
        )


async def groups_per_second(problems: list[Problem], layers: type[ForkServer]) -> float:
    """Score every problem's group once: the oracle and wrong answers, IN_FLIGHT at a time."""
    rng = random.Random(0)
    wrong = [[str(rng.randrange(100)) for _ in range(GROUP_SIZE - 1)] for _ in problems]
    left = iter(zip(problems, wrong, strict=True))

    async def worker(pool: TaskPool) -> None:
        for problem, answers in left:
            await pool.verify(problem, [problem.oracle or "none", *answers])

    async with pool_of(layers, PoolSettings(processes=PROCESSES)) as pool:
        begin = time.perf_counter()
        await asyncio.gather(*(worker(pool) for _ in range(IN_FLIGHT)))
        return len(problems) / (time.perf_counter() - begin)


async def compare(groups: int, rounds: int) -> None:
    problems = await make_problems(groups)
    rates: dict[str, list[float]] = {layers: [] for layers in LAYERS}
    for _ in range(rounds):
        for layers, found in rates.items():
            found.append(await groups_per_second(problems, LAYERS[layers]))
    print(
        f"{groups} groups of {GROUP_SIZE}, all tasks, {PROCESSES} hosts, {rounds} rounds"
    )
    bare = statistics.mean(rates["limits on time and memory, children"])
    for layers, found in rates.items():
        mean = statistics.mean(found)
        print(
            f"{layers:50} {mean:7.1f} groups/s ({min(found):.1f} to {max(found):.1f}), "
            f"{1000 * PROCESSES / mean:.1f} ms of a host a group, {mean / bare:.0%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    asyncio.run(compare(options.groups, options.rounds))


if __name__ == "__main__":
    main()
