"""Measure what no reasoning solves of a suite whose items are not the tasks' default ones."""

from __future__ import annotations

import asyncio
import json
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence

from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.problems.suites import SuiteItems, load_suite
from reasoning_gym_environment.sandbox.pool import (
    PoolSettings,
    TaskPool,
    default_processes,
)
from reasoning_gym_environment.util.progress import with_progress

from ..floors.measure import find_floors
from .standings import FLOORS


async def measure(sets: Sequence[SuiteItems], items: int) -> dict[str, float]:
    """Return the higher floor of each set's task: of a constant answer, or of copies."""
    places = asyncio.Semaphore(2)
    async with TaskPool(PoolSettings(processes=default_processes()), Counter()) as pool:

        async def one(of: SuiteItems) -> float:
            async with places:
                found = await find_floors(pool, of.task, items, of.parameters)
                return float(max(found.chance.solved, found.no_reasoning.solved))

        values = await with_progress([one(of) for of in sets], "floors")
    return {of.task: round(value, 3) for of, value in zip(sets, values, strict=True)}


def write_floors(options: Namespace) -> str:
    """Measure the floors of a suite's tasks, and write them beside this module."""
    suite = load_suite(options.suite)
    if len(suite.sets) > len(suite.tasks):
        raise FixableError(f"{suite.name} has several sets of one task")
    known = json.loads(FLOORS.read_text(encoding="utf-8"))
    known[suite.name] = asyncio.run(measure(suite.sets, options.items))
    FLOORS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return f"{FLOORS}: {len(suite.sets)} tasks of {suite.name}"
