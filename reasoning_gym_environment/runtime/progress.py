"""Many jobs awaited together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")


async def with_progress(
    jobs: Sequence[Coroutine[Any, Any, T]], description: str, *, done: int = 0
) -> list[T]:
    """Await all jobs; on a terminal a bar shows their rate and the time left.

    The first failure cancels the others.

    Args:
        done: jobs that were done before.
    """
    tasks = [asyncio.ensure_future(job) for job in jobs]
    total = done + len(tasks)
    with tqdm(total=total, initial=done, desc=description, disable=None) as bar:
        for task in tasks:
            task.add_done_callback(lambda _: bar.update())
        try:
            return await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
