"""Keeps what takes long with much text from holding up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

LARGE = 16_000
"""Tokens from which work is done in a thread; fewer take milliseconds."""

SWITCH_SECONDS = 0.001
"""So long the event loop waits for a thread that computes, each time it has let go of the
interpreter, as at every read and write. Programs set it; Python's own is 0.005."""

_one_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large")
"""One for all: a call into C holds the interpreter, so the loop would wait for as many as there are
threads."""


async def off_loop(work: Callable[[], T], *, tokens: int) -> T:
    """Do work on so many tokens: `in_thread` where they are many."""
    return work() if tokens < LARGE else await in_thread(work)


async def in_thread(work: Callable[[], T]) -> T:
    """Do work in the thread, one job after another, however small.

    It pays where the work lets go of the interpreter, as a tokenizer does while it encodes. Who is
    cancelled meanwhile waits for the end of it: what it works on may be used by others then.
    """
    working = asyncio.get_running_loop().run_in_executor(_one_thread, work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise
