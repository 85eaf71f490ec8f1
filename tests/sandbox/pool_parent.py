"""Runs a task pool for the tests that kill its process: prints the workers, then lives on.

Usage: python pool_parent.py idle|verifying|generating
"""

import asyncio
import sys
from pathlib import Path

from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.sandbox.pool import PoolSettings

sys.path.append(str(Path(__file__).parents[1] / "support" / "processes"))
from disabled_protections import Unscreened, pool_of

HUNDRED_SECONDS = PoolSettings(
    processes=1, generation_timeout=100.0, verify_timeout=100.0
)
SLOW = {"min_disks": 60, "max_disks": 60}


async def main(state: str) -> None:
    # The screen would reject the answer that hangs.
    async with pool_of(Unscreened, HUNDRED_SECONDS) as pool:
        puzzle = await pool.generate(Recipe(task="binary_matrix", seed=2))
        work = None
        if state == "verifying":
            work = asyncio.create_task(pool.verify(puzzle, ["9**9**9**9"]))
        if state == "generating":
            slow = Recipe(task="tower_of_hanoi", seed=2, parameters=SLOW)
            work = asyncio.create_task(pool.generate(slow))
        await asyncio.sleep(1.0)  # until the work has reached its process
        print(*pool.pids, flush=True)  # noqa: T201 - read by the test
        await (work or asyncio.sleep(100.0))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
