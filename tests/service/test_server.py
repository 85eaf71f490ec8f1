"""Connections: deadlines for heads and for replies that are not read, and the limit of files."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
from reward_requests import raw_post, row
from starlette.types import Receive, Scope, Send

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.records import Problem
from reasoning_gym_environment.service.app import RewardService, ServiceSettings
from reasoning_gym_environment.service.server import (
    HttpServer,
    possible_connections,
    raise_file_limit,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Served:
    """An application whose reply is as long as its path says, and on its address."""

    def __init__(self) -> None:
        self.url = ""
        self.disconnected = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b"x" * int(scope["path"].strip("/")) + b"."
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        if len(body) > 10**6:
            while (await receive())["type"] != "http.disconnect":
                pass
            self.disconnected.set()
        await send({"type": "http.response.body"})

    async def connect(self, sent: bytes = b"") -> Connection:
        connection = await asyncio.open_connection(
            "127.0.0.1", int(self.url.rpartition(":")[2])
        )
        connection[1].write(sent)
        return connection


@asynccontextmanager
async def serving(patience: float) -> AsyncIterator[Served]:
    served = Served()
    limits = {"drain": 0, "patience": patience}
    async with HttpServer(
        served, host="127.0.0.1", port=0, lifespan=False, **limits
    ) as server:
        served.url = server.url
        yield served


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


async def until_closed(connection: Connection) -> None:
    """Wait until the server ends a connection."""
    reader, writer = connection
    with suppress(ConnectionError):
        await reader.read()
    writer.close()


async def test_a_connection_ends_without_its_head_or_with_an_unread_reply() -> None:
    async with serving(patience=0.1) as served:
        for sent in (b"", b"POST /score HTTP/1.1\r\nHost: x"):
            await until_closed(await served.connect(sent))
        _, writer = await served.connect(get(f"/{10**8}"))
        writer.transport.pause_reading()
        await served.disconnected.wait()
        writer.close()


async def test_bytes_after_a_reply_do_not_keep_a_connection() -> None:
    async with serving(patience=0.1) as served:
        reader, writer = await served.connect(get("/9", "Content-Length: 1000"))
        await reader.readuntil(b".")
        ending = asyncio.create_task(until_closed((reader, writer)))
        while not ending.done():
            writer.write(b"x")
            await asyncio.sleep(0.02)


async def test_a_connection_stays_open_between_requests() -> None:
    async with serving(patience=0.1) as served:
        reader, writer = await served.connect()
        for _ in range(2):
            writer.write(get("/9"))
            await reader.readuntil(b"xxxxxxxxx.")
            await asyncio.sleep(0.2)  # longer than a head may take
        writer.close()


async def test_a_reply_that_is_not_read_does_not_delay_the_end(
    gym: AsyncReasoningGym, problem: Problem, caplog: pytest.LogCaptureFixture
) -> None:
    asked = row("?", "four", recipe=problem.recipe.to_json(), padding="x" * 4_000_000)
    async with RewardService(gym, ServiceSettings(port=0, drain=0)) as service:
        place = "127.0.0.1", int(service.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection(*place, limit=1)
        writer.write(raw_post("/verify", json.dumps(asked)))
        await reader.read(1)
    writer.close()
    assert "Traceback" not in caplog.text


@pytest.fixture
def few_files() -> Iterator[None]:
    """The soft limit of open files that most shells have."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("few_files")
async def test_connections_leave_files_for_the_rest_of_the_process() -> None:
    assert possible_connections() == 256
    raise_file_limit()
    assert possible_connections() > 1100


async def test_a_connection_too_many_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{HttpServer.__module__}.possible_connections", lambda: 1)
    async with serving(patience=60) as served:
        reader, writer = await served.connect(get("/9"))
        await reader.readuntil(b".")
        await until_closed(await served.connect())
        writer.write(get("/9"))
        await reader.readuntil(b".")
        writer.close()
