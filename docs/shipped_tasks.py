"""Writes what the installed reasoning-gym offers into the package, so that nobody need ask it.

python docs/shipped_tasks.py
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from importlib.metadata import version

from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.tasks.shipped import TABLE, Offer, to_json


async def main() -> None:
    async with TaskPool(PoolSettings(processes=1), Counter()) as pool:
        offer = Offer(await pool.discover(), await pool.ladders())
    content = to_json(offer, version("reasoning-gym"))
    ladders = ",\n".join(
        f"{json.dumps(task)}: {json.dumps(row)}" for task, row in content["ladders"].items()
    )
    head = json.dumps({name: value for name, value in content.items() if name != "ladders"})
    TABLE.write_text(f'{head[:-1]}, "ladders": {{\n{ladders}\n}}}}\n')  # a line for each task


if __name__ == "__main__":
    asyncio.run(main())
