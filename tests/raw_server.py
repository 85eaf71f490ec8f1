"""A server that replies with given bytes, whatever it is asked."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

Reply = Callable[[], AsyncIterator[bytes]]


def http(
    body: bytes = b"{}", status: str = "200 OK", headers: str = "", *, length: bool = True
) -> bytes:
    """A whole reply; without a length it ends with the connection."""
    known = f"Content-Length: {len(body)}\r\n" if length else ""
    return f"HTTP/1.1 {status}\r\nConnection: close\r\n{known}{headers}\r\n".encode() + body


def once(reply: bytes) -> Reply:
    async def chunks() -> AsyncIterator[bytes]:
        yield reply

    return chunks


def endless(head: bytes, chunk: bytes) -> Reply:
    async def chunks() -> AsyncIterator[bytes]:
        yield head
        while True:
            yield chunk

    return chunks


@asynccontextmanager
async def replying(reply: Reply) -> AsyncIterator[str]:
    """The URL of a server on 127.0.0.1."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            async for chunk in reply():
                writer.write(chunk)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield "http://{}:{}".format(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()
