"""Bounds what is in memory at a time, without anybody waiting for what hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Lets a few go ahead at a time, in the order they came, and whoever has waited for long.

    Args:
        most: so many at a time, unless some take longer than the patience of others.
        patience: seconds.
    """

    def __init__(self, most: int, *, patience: float = 10.0) -> None:
        self._places = asyncio.Semaphore(most)
        self._patience = patience

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a place, and have it while the context is open."""
        if not await self._has_place():
            yield
            return
        try:
            yield
        finally:
            self._places.release()

    async def _has_place(self) -> bool:
        """Wait for a place; no where that took too long."""
        if not self._places.locked():
            return await self._places.acquire()
        waiting = asyncio.create_task(self._places.acquire())
        try:
            await asyncio.wait({waiting}, timeout=self._patience)
        except asyncio.CancelledError:
            if not waiting.cancel():  # it has come meanwhile
                self._places.release()
            raise
        return not waiting.cancel()
