"""Keeps what takes long with much text from holding up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

LARGE = 16_000
"""Tokens from which work is done in a thread: below, it holds up the event loop by 5 ms at most."""

_one_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large")
"""One for all: a call into C holds the interpreter, so the loop would wait for as many as there are
threads."""


async def off_loop(work: Callable[[], T], *, tokens: int) -> T:
    """Do work on so many tokens: in a thread where they are many, one job after another."""
    if tokens < LARGE:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_one_thread, work)
