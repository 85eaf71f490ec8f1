"""Bodies: what is refused before it costs anything, and the memory that requests share."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from fastapi import HTTPException
from hung_gym import Hung
from prometheus_client import CollectorRegistry
from reward_requests import Post, raw_post

from reasoning_gym_environment.service._limits import (
    MAX_VALUES,
    VALUE_BYTES,
    MemoryBudget,
    Reservation,
    memory_of,
)
from reasoning_gym_environment.service.app import RewardService, ServiceSettings

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def hung() -> AsyncIterator[RewardService]:
    """A service that validates requests and never answers valid ones."""
    async with RewardService(Hung(), ServiceSettings(port=0, drain=0)) as service:
        yield service


TOKEN = "a-token-of-24-characters"
RECIPE = {"task": "gcd", "seed": 12}


async def status_line(service: RewardService, request: bytes) -> str:
    """Send a request on a connection of its own; return the first line of the reply."""
    port = int(service.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return (await reader.readline()).decode()
    finally:
        writer.close()


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_a_compressed_body_is_refused_before_it_is_read(token: str | None) -> None:
    packed = gzip.compress(b" " * 2**22)
    headers = {
        "Content-Type": "application/json",
        "Content-Encoding": "gzip",
        "Authorization": f"Bearer {token}",
    }
    async with (
        RewardService(Hung(), ServiceSettings(port=0, token=token)) as service,
        aiohttp.ClientSession(service.url, headers=headers) as session,
        session.post("/score", data=packed) as response,
    ):
        assert (response.status, await response.json()) == (
            415,
            {"error": "send the body without Content-Encoding, got 'gzip'"},
        )


@pytest.mark.parametrize(
    ("route", "body", "says"),
    [
        (
            "/openrlhf",
            {"query": [], "labels": [], "prompts": [1] * 400_000},
            "prompts.0: Input should be a valid string, got 1",
        ),
        ("/score", {f"{n}": 0 for n in range(200_000)}, "must have at most 1000 fields"),
        (
            "/problems",
            {"stream": "a", "options": {"task_weights": {f"{n}": "x" for n in range(200_000)}}},
            "options: task_weights must have at most 10000 values, got 200000",
        ),
        (
            "/problems",
            {"stream": "a", "options": {"task_parameters": {"gcd": {"a": [1] * 9000}}}},
            "options: task_parameters of 'gcd' must have at most 4096 characters",
        ),
        (
            "/problems",
            {"stream": "a", "options": {"reserved": ["x"] * 10_001}},
            "options: reserved must have at most 10000 values, got 10001",
        ),
        (
            "/score",
            [1] * (MAX_VALUES + 1),
            "the body has 524289 commas and brackets, more than 524288: send fewer completions",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Sending a large body")  # of the client
async def test_validation_ends_at_the_first_error(
    post: Post, hung: RewardService, route: str, body: Any, says: str
) -> None:
    begin = time.process_time()
    reply = await post(route, body, url=hung.url)
    assert says in reply.body["error"]
    assert reply.status in (413, 422)
    assert time.process_time() - begin < 2, "every further error takes time"


async def test_announced_bodies_hold_no_memory(post: Post) -> None:
    settings = ServiceSettings(port=0, drain=0, body_timeout=5)
    async with RewardService(Hung(), settings) as service:
        empty = raw_post("/score", "", announced=4 * 2**20)
        waiting = [asyncio.create_task(status_line(service, empty)) for _ in range(80)]
        await asyncio.sleep(0.1)
        assert (await post("/score", {}, url=service.url)).status == 422
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_requests_share_memory(post: Post) -> None:
    gym = Hung()
    settings = ServiceSettings(port=0, drain=0, max_body=2**16, memory=1)
    async with RewardService(gym, settings) as service:  # as much as the largest request needs
        body = {"recipe": RECIPE, "completions": ["x" * 65_000]}
        first = [asyncio.create_task(post("/score", body, url=service.url)) for _ in range(18)]
        metric = "reasoning_gym_request_bytes"
        while service.app.state.registry.get_sample_value(metric) < 18 * 4 * 65_000:
            await asyncio.sleep(0.01)
        reply = await post("/score", body, url=service.url)
        assert (reply.status, reply.headers["Retry-After"]) == (429, "1")
        assert "bytes: try again later" in reply.body["error"]
        for each in first:
            each.cancel()
        await asyncio.gather(*first, return_exceptions=True)
        while service.app.state.registry.get_sample_value(metric):
            await asyncio.sleep(0.01)


async def test_a_reservation_grows_within_the_budget() -> None:
    budget = MemoryBudget(2000, largest=10, registry=CollectorRegistry())
    one, other = Reservation(budget), Reservation(budget)
    one.grow_to(1500)
    one.grow_to(1000)
    with pytest.raises(HTTPException, match="requests hold 1500 of 2000 bytes"):
        other.grow_to(501)
    other.grow_to(500)
    one.release()
    other.grow_to(2000)
    other.release()
    assert budget.reserved == 0


@pytest.mark.parametrize(
    ("body", "size"),
    [
        (b'{"a": 1}', 4 * 8 + VALUE_BYTES),
        (b"[[],[]]", 4 * 7 + 4 * VALUE_BYTES),
        ('["é"]'.encode(), 8 * 6 + VALUE_BYTES),
        (rb'["\u00e9"]', 8 * 10 + VALUE_BYTES),
    ],
)
async def test_the_memory_of_a_body_is_estimated(body: bytes, size: int) -> None:
    assert memory_of(body) == size
