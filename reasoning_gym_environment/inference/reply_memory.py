"""The bytes of replies that are in memory: bounded over all of them, in buffers that are reused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

SMALL_REPLY = 2**20
"""Bytes up to which a reply waits for no other. 512 at a time, the most by default, hold 0.5 GB."""

LARGE_BYTES = 2**28
"""Bytes that all larger replies hold together. Beyond it, they wait in their connections."""

SPARE_BUFFERS = 4
SPARE_BYTES = 2**26
"""Buffers that are kept for later replies, and how large each may be. To allocate 10 MB for a long
group's reply takes as long as to read it."""


class Reply:
    """The bytes of one reply so far.

    Attributes:
        size: the number of bytes.
    """

    def __init__(self, memory: ReplyMemory) -> None:
        self.size = 0
        self._memory = memory
        self._buffer = bytearray()

    @property
    def is_large(self) -> bool:
        """Whether the reply has more bytes than a small one."""
        return self.size > SMALL_REPLY

    async def append(self, chunk: bytes) -> None:
        """Add bytes; those of a large reply wait until there is room for them."""
        size = self.size + len(chunk)
        if size > SMALL_REPLY:
            await self._memory.wait_for_room(self, len(chunk))
            if not self.is_large:
                self._move_to(self._memory.spare_buffer())
        self._buffer[self.size : size] = chunk
        self.size = size

    def _move_to(self, buffer: bytearray) -> None:
        buffer[: self.size] = self._buffer
        self._buffer = buffer

    @contextmanager
    def view(self) -> Iterator[memoryview]:
        """Yield the bytes, without a copy."""
        with memoryview(self._buffer) as whole, whole[: self.size] as body:
            yield body

    def take_buffer(self) -> bytearray:
        """Return the buffer, which the reply no longer needs."""
        buffer, self._buffer = self._buffer, bytearray()
        return buffer


class ReplyMemory:
    """The replies in memory.

    A small reply waits for nobody. Large ones share LARGE_BYTES; the oldest of them may go beyond,
    so that one always ends.
    """

    def __init__(self) -> None:
        self._large: dict[Reply, None] = {}  # in the order in which they became large
        self._spare: list[bytearray] = []
        self._room = asyncio.Event()

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[Reply]:
        """Yield an empty reply, whose bytes are held until the end of the block."""
        reply = Reply(self)
        try:
            yield reply
        finally:
            if reply in self._large:
                del self._large[reply]
                self._keep(reply.take_buffer())
                self._room.set()

    async def wait_for_room(self, reply: Reply, count: int) -> None:
        """Return when a large reply may grow by `count` bytes."""
        self._large.setdefault(reply)
        while not self._may_grow(reply, count):
            self._room.clear()
            await self._room.wait()

    def _may_grow(self, reply: Reply, count: int) -> bool:
        if reply is next(iter(self._large)):
            return True
        return sum(large.size for large in self._large) + count <= LARGE_BYTES

    def spare_buffer(self) -> bytearray:
        """Return a buffer of an earlier large reply, or a new one."""
        return self._spare.pop() if self._spare else bytearray()

    def _keep(self, buffer: bytearray) -> None:
        if len(self._spare) < SPARE_BUFFERS and len(buffer) <= SPARE_BYTES:
            self._spare.append(buffer)
