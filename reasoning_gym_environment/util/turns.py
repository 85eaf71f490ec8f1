"""Bounds what is in memory at a time, without anybody waiting for what hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class Turns:
    """Lets a few go ahead at a time, in the order they came; all, while none of those comes back.

    Args:
        most: so many at a time.
        patience: seconds after which those that went ahead hang.
        clock: gives the time in seconds.
    """

    def __init__(
        self, most: int, *, patience: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._places = asyncio.Semaphore(most)
        self._patience = patience
        self._clock = clock
        self._moved_at = clock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a place, and have it while the context is open."""
        if not await self._has_place():
            yield
            return
        self._moved_at = self._clock()
        try:
            yield
        finally:
            self._moved_at = self._clock()
            self._places.release()

    async def _has_place(self) -> bool:
        """Wait for a place; no where those who have one hang."""
        if not self._places.locked():
            return await self._places.acquire()
        waiting = asyncio.create_task(self._places.acquire())
        try:
            while not waiting.done() and (left := self._left()) > 0:
                await asyncio.wait({waiting}, timeout=left)
        except asyncio.CancelledError:
            if not waiting.cancel():  # it has come meanwhile
                self._places.release()
            raise
        return not waiting.cancel()

    def _left(self) -> float:
        return self._moved_at + self._patience - self._clock()
