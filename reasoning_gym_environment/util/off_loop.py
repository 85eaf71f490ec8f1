"""Keeps what takes long with much text from holding up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

LARGE = 16_000
"""Tokens, or letters to encode, from which work is done in a thread; fewer take milliseconds."""

_one_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large")
"""One for all: a call into C holds the interpreter, so the loop would wait for as many as there are
threads."""


async def off_loop(work: Callable[[], T], *, tokens: int) -> T:
    """Do work on so many tokens: in a thread where they are many, one job after another.

    Who is cancelled meanwhile waits for the end of it: what it works on may be used by others then.
    """
    if tokens < LARGE:
        return work()
    working = asyncio.get_running_loop().run_in_executor(_one_thread, work)
    try:
        return await asyncio.shield(working)
    finally:
        await asyncio.wait([working])
