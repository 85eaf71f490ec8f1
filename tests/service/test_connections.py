"""Connections: their number, and deadlines for heads and for replies that are not read."""

import asyncio
import json
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest
from hung_gym import Hung
from reward_requests import Post, raw_post, row

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.records import Problem
from reasoning_gym_environment.service import connections
from reasoning_gym_environment.service.app import RewardService, ServiceSettings

pytestmark = pytest.mark.asyncio(loop_scope="session")

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


async def connect(service: RewardService, sent: bytes = b"") -> Connection:
    port = int(service.url.rpartition(":")[2])
    connection = await asyncio.open_connection("127.0.0.1", port)
    connection[1].write(sent)
    return connection


async def is_closed(connection: Connection, within: float = 2.0) -> bool:
    """Return whether the service ends a connection, whatever it sends before."""
    reader, writer = connection
    try:
        await asyncio.wait_for(reader.read(), within)
    except ConnectionError:
        return True
    except asyncio.TimeoutError:
        return False
    finally:
        writer.close()
    return True


def closed(service: RewardService, reason: str) -> float:
    name = "reasoning_gym_closed_connections_total"
    return service.app.state.registry.get_sample_value(name, {"reason": reason}) or 0.0


@asynccontextmanager
async def serving(gym: AsyncReasoningGym, **settings: float) -> AsyncIterator[RewardService]:
    async with RewardService(gym, ServiceSettings(port=0, drain=0, **settings)) as service:  # type: ignore[arg-type]  # some are integers
        yield service


@pytest.mark.parametrize("sent", [b"", b"POST /score HTTP/1.1\r\nHost: x"])
async def test_a_head_that_does_not_arrive_ends_its_connection(sent: bytes) -> None:
    async with serving(Hung(), head_timeout=0.1) as service:
        assert await is_closed(await connect(service, sent))
        assert closed(service, "head") == 1


async def test_bytes_after_a_reply_do_not_keep_a_connection() -> None:
    async with serving(Hung(), head_timeout=0.1) as service:
        reader, writer = await connect(
            service, b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
        )
        assert (await reader.readline()).startswith(b"HTTP/1.1 404 ")
        ending = asyncio.create_task(is_closed((reader, writer)))
        while not ending.done():
            writer.write(b"x")
            await asyncio.sleep(0.02)
        assert await ending


async def test_a_connection_stays_open_between_requests() -> None:
    async with serving(Hung(), head_timeout=0.1) as service:
        reader, writer = await connect(service)
        for _ in range(2):
            writer.write(HEALTH)
            assert b'"starting"' in await reader.readuntil(b"}")
            await asyncio.sleep(0.2)
        writer.close()
        assert closed(service, "head") == 0


async def test_one_connection_more_closes_the_one_that_is_idle_longest() -> None:
    async with serving(Hung(), connections=2) as service:
        oldest, other, newest = [await connect(service) for _ in range(3)]
        assert await is_closed(oldest)
        for reader, writer in (other, newest):
            writer.write(HEALTH)
            assert b'"starting"' in await reader.readuntil(b"}")
            writer.close()
        assert closed(service, "evicted") == 1


async def test_a_connection_is_refused_while_all_are_busy(post: Post) -> None:
    gym = Hung()
    async with serving(gym, connections=1) as service:
        body = {"recipe": {"task": "gcd", "seed": 12}, "completions": ["4"]}
        busy = asyncio.create_task(post("/score", body, url=service.url))
        await gym.asked.wait()
        reader, writer = await connect(service)
        reply = (await reader.read()).decode()
        assert reply.startswith("HTTP/1.1 503 ")
        assert "\r\nRetry-After: 1\r\n" in reply
        head, _, body_text = reply.partition("\r\n\r\n")
        assert f"Content-Length: {len(body_text)}\r\n" in f"{head}\r\n"
        writer.close()
        assert closed(service, "refused") == 1
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)


@asynccontextmanager
async def unread(service: RewardService, asked: dict[str, Any]) -> AsyncIterator[None]:
    """A client that asks for a long reply and does not read it."""
    port = int(service.url.rpartition(":")[2])
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", port))
        await loop.sock_sendall(client, raw_post("/verify", json.dumps(asked)))
        await loop.sock_recv(client, 1)
        yield


@pytest.fixture
def long_row(problem: Problem) -> dict[str, Any]:
    """A NeMo Gym row, which the reply repeats."""
    recipe = problem.recipe.to_json()
    return row("?", "four", recipe=recipe, padding="x" * 900_000)


async def test_a_reply_that_is_not_read_ends_its_connection_and_frees_its_memory(
    gym: AsyncReasoningGym, long_row: dict[str, Any], post: Post
) -> None:
    async with serving(gym, reply_timeout=0.2) as service:
        held = partial(service.app.state.registry.get_sample_value, "reasoning_gym_request_bytes")
        async with unread(service, long_row):
            assert held() > 4 * 900_000
            while not closed(service, "reply"):
                await asyncio.sleep(0.02)
        for _ in range(500):  # the request ends a moment after its connection
            if held() == 0:
                break
            await asyncio.sleep(0.02)
        assert held() == 0
        reply = await post("/verify", long_row, url=service.url)
        assert (reply.status, reply.body["padding"]) == (200, long_row["padding"])


async def test_a_reply_that_is_not_read_does_not_delay_the_end(
    gym: AsyncReasoningGym, long_row: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncExitStack() as client:
        async with serving(gym) as service:
            await client.enter_async_context(unread(service, long_row))
        assert "Traceback" not in caplog.text


@pytest.fixture
def few_files() -> Iterator[None]:
    """The soft limit of open files that most shells have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
async def test_fewer_connections_than_wanted_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert connections.possible_connections(3000) == 256
    assert caplog.messages == [
        "At most 256 connections instead of 3000: this process may open 1024 files; allow more "
        "with ulimit -Hn or LimitNOFILE"
    ]


@pytest.mark.usefixtures("few_files")
async def test_the_limit_of_open_files_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    connections.raise_file_limit()
    assert connections.possible_connections(3000) == 3000
    assert caplog.text == ""
