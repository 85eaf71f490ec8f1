"""Write the tasks and ladders of the installed reasoning-gym into the package.

python docs/library_snapshot.py
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from importlib.metadata import version

from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.tasks.catalogue import SNAPSHOT_FILE, LibrarySnapshot


async def main() -> None:
    async with TaskPool(PoolSettings(processes=1), Counter()) as pool:
        snapshot = LibrarySnapshot(await pool.discover(), await pool.ladders())
    content = snapshot.to_json(version("reasoning-gym"))
    ladders = ",\n".join(
        f"{json.dumps(task)}: {json.dumps(row)}" for task, row in content["ladders"].items()
    )
    head = json.dumps({name: value for name, value in content.items() if name != "ladders"})
    one_task_per_line = f'{head[:-1]}, "ladders": {{\n{ladders}\n}}}}\n'
    SNAPSHOT_FILE.write_text(one_task_per_line)


if __name__ == "__main__":
    asyncio.run(main())
