"""What replies are read into, again and again: fresh memory takes as long as reading does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..util.concurrency import StallTolerantSemaphore

AT_ONCE = 4
"""Replies of a server in memory: a long group's takes 10 MB. The others wait in its connections."""

_KEPT_BYTES = 2**26
"""A buffer that grew beyond it is given up."""


class Buffers:
    """Reads the bodies of a few replies at a time, each into a buffer that was another's before."""

    def __init__(self) -> None:
        self._slots = StallTolerantSemaphore(AT_ONCE)
        self._free: list[bytearray] = []

    @asynccontextmanager
    async def filled(self, parts: AsyncIterator[bytes]) -> AsyncIterator[memoryview]:
        """A body, of which these are all parts; the bytes are another's when the context closes."""
        async with self._slots.slot():
            buffer = self._free.pop() if self._free else bytearray()
            size = 0
            async for part in parts:
                buffer[size : size + len(part)] = part
                size += len(part)
            with memoryview(buffer) as whole, whole[:size] as body:
                yield body
            if len(self._free) < AT_ONCE and len(buffer) <= _KEPT_BYTES:
                self._free.append(buffer)
