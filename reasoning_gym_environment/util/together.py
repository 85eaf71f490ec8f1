"""Several jobs at once, of which none goes on where one has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def all_or_none(jobs: Iterable[Awaitable[T]]) -> list[T]:
    """Await all jobs; where one fails, the others are ended before its error is raised."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
