"""Bodies: what is refused before it costs anything."""

import asyncio
import gzip
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from hung_gym import Hung
from pydantic import ValidationError
from reward_requests import Post, raw_post
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from reasoning_gym_environment.service._limits import BodyLimiter
from reasoning_gym_environment.service._messages import (
    MAX_VALUES,
    OpenRlhfRequest,
    ProblemsRequest,
    ScoreRequest,
)
from reasoning_gym_environment.service.app import (
    RewardService,
    ServiceSettings,
    create_app,
)
from reasoning_gym_environment.service.server import HttpServer

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def hung() -> AsyncIterator[RewardService]:
    """A service that validates requests and never answers valid ones."""
    async with RewardService(Hung(), ServiceSettings(port=0, drain=0)) as service:
        yield service


TOKEN = "a-token-of-24-characters"


async def status_line(url: str, request: bytes) -> str:
    """Send a request on a connection of its own; return the first line of the reply."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", int(url.rpartition(":")[2])
    )
    writer.write(request)
    try:
        return (await reader.readline()).decode()
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/score%0A", "404"),
        ("/score%00", "404"),
        ("/health%0d", "404"),
        ("/nowhere", "413"),
        ("/seed_session", "413"),
        ("/score/", "413"),
    ],
)
async def test_no_path_gets_around_the_limits(
    hung: RewardService, path: str, expected: str
) -> None:
    headers = "Host: x\r\nContent-Type: application/json\r\n"
    head = f"POST {path} HTTP/1.1\r\n{headers}Content-Length: {2**30}\r\n\r\n{{"
    assert expected in await status_line(hung.url, head.encode())


async def test_a_body_without_a_length_has_the_limit_on_every_path(
    hung: RewardService,
) -> None:
    chunk = b"100000\r\n" + b" " * 2**20 + b"\r\n"
    head = b"POST /nowhere HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert "413" in await status_line(hung.url, head + 5 * chunk)


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_a_compressed_body_is_refused_before_it_is_read(
    token: str | None,
) -> None:
    packed = gzip.compress(b" " * 2**22)
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    headers["Authorization"] = f"Bearer {token}"
    async with (
        RewardService(Hung(), ServiceSettings(port=0, token=token)) as service,
        aiohttp.ClientSession(service.url, headers=headers) as session,
        session.post("/score", data=packed) as response,
    ):
        says = "send the body without Content-Encoding, got 'gzip'"
        assert (response.status, await response.json()) == (415, {"error": says})


async def test_limits_hold_under_a_prefix() -> None:
    app = Starlette()
    app.mount("/p", create_app(Hung(), ServiceSettings(token=TOKEN)))
    limits: Any = {
        "host": "127.0.0.1",
        "port": 0,
        "drain": 0,
        "lifespan": False,
        "health_path": "/health",
    }
    token = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        HttpServer(app, **limits) as server,
        aiohttp.ClientSession(server.url) as session,
    ):
        async with session.get("/p/health") as response:
            assert response.status == 503, "no token is needed"
        async with session.post("/p/score", data="{}", headers=token) as response:
            assert response.status == 415
        async with session.get("/p/metrics", headers=token) as response:
            assert 'code="415",route="/score"' in await response.text()


@pytest.mark.parametrize(
    ("route", "body", "says"),
    [
        (
            "/openrlhf",
            {"query": [], "labels": [], "prompts": [1] * 400_000},
            "prompts.0: Input should be a valid string, got 1",
        ),
        (
            "/score",
            {f"{n}": 0 for n in range(200_000)},
            "must have at most 1000 fields",
        ),
        (
            "/problems",
            {
                "stream": "a",
                "options": {"task_weights": {f"{n}": "x" for n in range(200_000)}},
            },
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
    reply = await post(route, body, url=hung.url)
    assert says in reply.body["error"]
    assert reply.status in (413, 422)
    of = {
        "/openrlhf": OpenRlhfRequest,
        "/score": ScoreRequest,
        "/problems": ProblemsRequest,
    }
    with pytest.raises(ValidationError) as found:
        of[route].model_validate(body)
    assert found.value.error_count() == 1, "every further error takes time"


@pytest.mark.filterwarnings("ignore:Sending a large body")  # of the client
async def test_the_characters_of_texts_are_no_values(
    post: Post, hung: RewardService
) -> None:
    body = {"completions": ['\\"[,{' * 2**16] * 4}
    reply = await post("/score", body, url=hung.url)
    assert (reply.status, reply.body["error"]) == (
        422,
        "give exactly one of recipe and entry",
    )
    reply = await post("/score", {**body, "recipe": f"[{'1,' * 2**19}1]"}, url=hung.url)
    assert (
        "recipe has 524289 commas and brackets, more than 524288" in reply.body["error"]
    )


async def test_a_body_that_does_not_arrive_gets_408_and_stops_nobody(
    post: Post, hung: RewardService
) -> None:
    async def unreached(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError

    app = BodyLimiter(
        unreached, admissions={"/score": None}, largest=4 * 2**20, seconds=0.1
    )
    limits = {
        "host": "127.0.0.1",
        "port": 0,
        "drain": 0,
        "lifespan": False,
        "health_path": "/health",
    }
    announced = raw_post("/score", "{", announced=4 * 2**20)
    async with HttpServer(app, **limits) as hurried:  # type: ignore[arg-type]  # of several types
        assert "408 Request Timeout" in await status_line(hurried.url, announced)
    waiting = [asyncio.create_task(status_line(hung.url, announced)) for _ in range(80)]
    assert (await post("/score", {}, url=hung.url)).status == 422
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_unfinished_bodies_share_a_limit_and_the_slowest_are_refused() -> None:
    async def accept(scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        await PlainTextResponse(f"{len(body)} bytes")(scope, receive, send)

    app = BodyLimiter(
        accept, admissions={"/score": None}, largest=10**6, unfinished=2 * 10**6
    )
    limits = {"host": "127.0.0.1", "port": 0, "drain": 0, "lifespan": False}
    async with HttpServer(app, **limits, health_path="/health") as server:  # type: ignore[arg-type]  # of several types
        place = "127.0.0.1", int(server.url.rpartition(":")[2])
        clients = [await asyncio.open_connection(*place) for _ in range(20)]
        for number, (_, writer) in enumerate(clients):
            writer.write(raw_post("/score", "x" * 300_000, announced=300_001))
            await writer.drain()
            if number % 4 == 3:
                whole = await status_line(server.url, raw_post("/score", "y" * 10**6))
                assert "200 OK" in whole
        statuses = Counter[str]()
        for reader, writer in clients:
            writer.write(b"x")
            statuses[(await reader.readline()).decode().split()[1]] += 1
            writer.close()
    assert statuses.keys() == {"200", "503"}
    assert statuses["200"] <= 6
