"""Bodies of requests: read in time, and never too many bytes of them at once."""

from __future__ import annotations

import asyncio

from aiohttp import web

from .refusals import Refusal, busy

MOST_BYTES = 256 * 2**20
"""Of all bodies that are read or answered at once; one that is larger still has a place alone."""


class Bodies:
    """Reads bodies that are JSON, and counts their bytes until the reply is made.

    Args:
        largest: bytes of one body.
        timeout: seconds for it to arrive.
    """

    def __init__(self, *, largest: int, timeout: float) -> None:
        self._largest = largest
        self._timeout = timeout
        self._most = max(MOST_BYTES, largest)
        self._reserved = 0

    def reserve(self, request: web.Request) -> int:
        """Give a body its place before it is read; `release` takes the bytes back.

        Where a request doesn't say how long its body is once it is unpacked, it gets the largest.

        Raises:
            Refusal: other bodies have all the place.
        """
        said = None if "Content-Encoding" in request.headers else request.content_length
        size = self._largest if said is None else min(said, self._largest)
        if self._reserved + size > self._most:
            raise busy(
                429,
                f"bodies of {self._reserved} bytes are under way, and {self._most} may be: try "
                "again later",
            )
        self._reserved += size
        return size

    def release(self, size: int) -> None:
        """Give back what `reserve` gave."""
        self._reserved -= size

    async def read(self, request: web.Request) -> bytes:
        """Read a body; a client that stalls holds up no end."""
        kind = request.content_type
        if kind != "application/json":
            raise Refusal(415, f"Content-Type is {kind}; it must be application/json")
        try:
            return await asyncio.wait_for(request.read(), self._timeout)
        except asyncio.TimeoutError:
            raise Refusal(408, f"the body has not arrived within {self._timeout:g} s") from None
