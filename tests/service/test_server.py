"""Connections: deadlines for heads and for replies that are not read, and the limit of files."""

import asyncio
import json
import re
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from reward_requests import raw_post, row
from served_rewards import served_rewards
from starlette.types import Receive, Scope, Send

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.records import Problem
from reasoning_gym_environment.service.app import RewardService, ServiceSettings
from reasoning_gym_environment.service.server import (
    HttpServer,
    divide_files,
    raise_file_limit,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

HEALTH = "/0"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Served:
    """An application whose reply is as long as its path says, and on its address."""

    def __init__(self) -> None:
        self.url = ""
        self.disconnected = asyncio.Event()
        self.connections: list[Connection] = []

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
        self.connections.append(connection)
        return connection


@asynccontextmanager
async def serving(patience: float = 60) -> AsyncIterator[Served]:
    served = Served()
    async with HttpServer(
        served,
        host="127.0.0.1",
        port=0,
        drain=0,
        lifespan=False,
        health_path=HEALTH,
        head_seconds=patience,
        reply_seconds=patience,
    ) as server:
        served.url = server.url
        yield served
        for _, writer in served.connections:
            writer.close()


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


@pytest.mark.usefixtures("file_limits")
async def test_connections_leave_files_for_the_rest_of_the_process() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for limit, least in ((256, 64), (512, 256), (1024, 512)):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        connections, backlog = divide_files()
        assert least < connections < limit - backlog - 64
    raise_file_limit()
    assert divide_files().connections > 1100


@pytest.fixture
def file_limits() -> Iterator[None]:
    """Restore the limits of open files."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def allow(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers have so many connections, whatever the limit of open files is."""
    monkeypatch.setattr(f"{HttpServer.__module__}.divide_files", lambda: (most, 16))


async def answered(connection: Connection, path: str) -> bytes:
    """Ask on a connection, and read the reply; return its head."""
    reader, writer = connection
    writer.write(get(path))
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readuntil(b".")
    return head


async def test_who_waits_for_longest_goes_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allow(4, monkeypatch)
    async with serving() as served:
        without_head = await served.connect(b"GET /9")
        idle, busy, at_work = [await served.connect() for _ in range(3)]
        for connection in (idle, at_work):
            await answered(connection, "/9")
        busy[1].write(get(f"/{10**8}"))
        await busy[0].read(1)
        await answered(at_work, "/9")
        for expected in (without_head, idle):
            asked = await served.connect()
            await until_closed(expected)
            await answered(asked, "/9")
            await answered(at_work, "/9")
        assert not served.disconnected.is_set()
        busy[1].close()
        await served.disconnected.wait()


async def test_its_health_is_told_where_all_connections_have_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allow(1, monkeypatch)
    async with serving() as served:
        reader, writer = await served.connect(get(f"/{10**8}"))
        await reader.read(1)
        for _ in range(100):  # more than there is room for
            await served.connect(b"POST /9 HTTP/1.1\r\nHost: x\r\n")
        asked = await served.connect()
        assert b"HTTP/1.1 200" in await answered(asked, HEALTH)
        refused, _ = await served.connect(get("/9"))
        reply = (await refused.read()).decode()
        assert "HTTP/1.1 503" in reply
        assert "Retry-After: 1" in reply.title()
        assert "all 1 connections are in use" in reply
        await reader.read(1)
        assert not served.disconnected.is_set()
        writer.close()
        await served.disconnected.wait()


async def test_only_so_many_connections_are_kept_after_their_replies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allow(4, monkeypatch)  # half of them may be idle
    async with serving() as served:
        connections = [await served.connect() for _ in range(3)]
        for connection in connections:
            await answered(connection, "/9")
        await until_closed(connections[0])
        for connection in connections[1:]:
            await answered(connection, "/9")


@pytest.mark.processes
@pytest.mark.nightly
@pytest.mark.usefixtures("file_limits")
async def test_idle_connections_keep_nobody_from_a_service_with_few_files(
    tmp_path: Path,
) -> None:
    raise_file_limit()  # of this process, the client
    with served_rewards(tmp_path, open_files=512) as url:
        log = (tmp_path / "rewards.log").read_text()
        (connections,) = re.findall(r"leaves (\d+) connections", log)
        place = "127.0.0.1", int(url.rpartition(":")[2])
        idle = []
        async with aiohttp.ClientSession(url) as session:
            for number in range(1000):
                reader, writer = await asyncio.open_connection(*place)
                if number % 3 == 1:
                    writer.write(b"POST /score HTTP/1.1\r\nHost: x\r\n")
                if number % 3 == 2:
                    writer.write(get("/nowhere"))
                idle.append((reader, writer))
                if number % 50 == 49:
                    async with session.get("/health") as response:
                        assert response.status == 200
        for _, writer in idle:
            writer.close()
    assert 128 < int(connections) < 512
