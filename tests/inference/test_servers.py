"""Where a client sends its requests, over how many connections, and how long it waits."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from aiohttp import web
from asked_completions import REQUEST
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from clock import Clock
from scripted_server import answering, serving

from reasoning_gym_environment.inference.client import InferenceClient
from reasoning_gym_environment.inference.errors import RequestTimeoutError, describe
from reasoning_gym_environment.inference.failover import Failover
from reasoning_gym_environment.inference.servers import ServerClient


def client(kind: str, base_url: str | None, **settings: Any) -> ServerClient:
    server = {
        "server_type": kind,
        "base_url": base_url,
        "model_name": "m",
        "api_key": "x",
    }
    return ServerClient(APIServerConfig(**{**server, "timeout": 1, **settings}))


async def failure_of(kind: str, base_url: str) -> BaseException:
    """What one request raises."""
    asking = client(kind, base_url)
    request = asking.sample(replace(REQUEST, n=1))
    [error] = await asyncio.gather(request, return_exceptions=True)
    await asking.close()
    assert isinstance(error, Exception)
    return error


@pytest.fixture
def bound() -> Iterator[socket.socket]:
    """Of a port where connections are refused until it listens."""
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        yield port


def url_of(port: socket.socket) -> str:
    return "http://{}:{}/v1".format(*port.getsockname())


@pytest.mark.parametrize("kind", ["openai", "vllm"])
async def test_a_refused_connection_fails_at_once(
    kind: str, bound: socket.socket
) -> None:
    error = await asyncio.wait_for(failure_of(kind, url_of(bound)), timeout=30)
    assert "connect" in describe(error).lower()


@pytest.mark.parametrize("kind", ["openai", "vllm"])
async def test_a_silent_server_fails_after_its_timeout(
    kind: str, bound: socket.socket
) -> None:
    bound.listen()
    error = await asyncio.wait_for(failure_of(kind, url_of(bound)), timeout=60)
    assert (
        describe(error)
        == "no reply in time (10 s to connect, --openai.timeout in total)"
    )


@pytest.mark.parametrize("kind", ["vllm", "sglang", "trl"])
@pytest.mark.parametrize(
    "base_url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"]
)
def test_the_base_url_may_end_with_v1_or_not(kind: str, base_url: str) -> None:
    assert client(kind, base_url).url("/v1/completions") == "http://h:1/v1/completions"
    assert client(kind, base_url).url("/health") == "http://h:1/health"


@pytest.mark.parametrize(
    ("base_url", "chat"),
    [
        ("http://h:1/v1", "http://h:1/v1/chat/completions"),
        ("https://h/v1beta/openai/", "https://h/v1beta/openai/chat/completions"),
        ("https://h", "https://h/chat/completions"),
        (None, "https://api.openai.com/v1/chat/completions"),
    ],
)
def test_a_chat_endpoints_url_is_that_of_openais_own_client(
    base_url: str | None, chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert client("openai", base_url).url("/v1/chat/completions") == chat


class Counted(NamedTuple):
    """The connections of the chats so far, and a client that sends them."""

    connections: list[asyncio.BaseTransport | None]
    chats: ServerClient


@asynccontextmanager
async def counted(expected: int, **settings: int) -> AsyncIterator[Counted]:
    """A server that replies to chats once `expected` of them have arrived."""
    connections: list[asyncio.BaseTransport | None] = []
    all_arrived = asyncio.Event()

    async def reply(request: web.Request) -> web.Response:
        connections.append(request.transport)
        if len(connections) >= expected:
            all_arrived.set()
        await all_arrived.wait()
        choice = {"message": {"content": "4"}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice, choice]})

    async with serving([web.post("/v1/chat/completions", reply)]) as url:
        chats = client("openai", f"{url}/v1", **settings)
        try:
            yield Counted(connections, chats)
        finally:
            await chats.close()


async def test_requests_reuse_a_connection_until_the_client_is_closed() -> None:
    async with counted(expected=1) as (connections, chats):
        for _ in range(3):
            await chats.sample(REQUEST)
        [connection] = set(connections)
        assert connection is not None
        assert not connection.is_closing()
        await chats.close()
        while not connection.is_closing():  # once the server notices
            await asyncio.sleep(0.01)


async def test_only_admission_limits_the_number_of_connections() -> None:
    async with counted(expected=150, timeout=30) as (connections, chats):
        await asyncio.gather(*(chats.sample(REQUEST) for _ in range(150)))
    assert len(set(connections)) == 150


async def test_waiting_for_admission_is_not_waiting_for_the_server() -> None:
    clock = Clock()

    async def reply(_: web.Request) -> web.Response:
        clock.now += 400.0  # of the 600 that a request may take
        await asyncio.sleep(0.6)  # the second is checked 1 s after it began to wait
        choice = {"message": {"content": "4"}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice, choice]})

    async with serving([web.post("/v1/chat/completions", reply)]) as url:
        chats = client("openai", f"{url}/v1", num_max_requests_at_once=1, timeout=600)
        failover = Failover([chats], clock)
        sent = (
            failover.send(lambda server: server.sample(REQUEST), "train")
            for _ in range(2)
        )
        assert len(await asyncio.gather(*sent)) == 2
        await chats.close()


async def test_a_request_that_a_live_server_forgets_ends_at_the_timeout_alone() -> None:
    """The server answers others, so nobody can tell that it doesn't work at this one."""
    seconds = 4
    arrived = 0

    async def reply(_: web.Request) -> web.Response:
        nonlocal arrived
        arrived += 1
        if arrived == 1:
            await asyncio.Event().wait()
        choice = {"message": {"content": "4"}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice, choice]})

    async with serving([web.post("/v1/chat/completions", reply)]) as url:
        asking = client("openai", f"{url}/v1", timeout=seconds)
        failover = Failover([asking])

        async def send() -> object:
            return await failover.send(lambda server: server.sample(REQUEST))

        began = time.monotonic()
        forgotten = asyncio.create_task(send())
        while not arrived:
            await asyncio.sleep(0.01)
        others = 0
        while not forgotten.done():
            assert await send()
            others += 1
            await asyncio.sleep(0.1)
        with pytest.raises(RequestTimeoutError, match=r"--openai\.timeout"):
            forgotten.result()
        assert time.monotonic() - began >= seconds
        assert arrived == 1 + others
        await asking.close()


async def test_a_reply_put_together_of_several_has_the_usage_of_all() -> None:
    async with answering({"?": "4"}) as (url, asked):
        inference = InferenceClient([client("openai", url)], None, system_prompt="")
        body = {"messages": [{"role": "user", "content": "?"}], "n": 3}
        reply = await inference.reply("/v1/chat/completions", body, "train")
        await inference.close()
    assert len(asked) == len(reply["choices"]) == 3
    assert reply["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 3,
        "total_tokens": 6,
    }


async def test_an_unknown_type_of_part_is_logged_once_with_its_servers_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    message = {"content": [{"type": "answer", "text": "4"}]}

    async def reply(_: web.Request) -> web.Response:
        choice = {"message": message, "finish_reason": "stop"}
        return web.json_response({"choices": [choice, choice]})

    async with serving([web.post("/v1/chat/completions", reply)]) as url:
        asking = client("openai", f"{url}/v1", timeout=60)
        for _ in range(2):
            samples = await asking.sample(REQUEST)
            assert [sample.content for sample in samples] == ["4", "4"]
        await asking.close()
    [said] = caplog.messages
    assert url in said
    assert "'answer'" in said


async def test_replies_that_stall_after_their_headers_delay_no_others() -> None:
    """As those of a server that sends blank lines at once, and computes meanwhile."""
    stalled, release = 0, asyncio.Event()
    choice = {"message": {"content": "4"}, "finish_reason": "stop"}

    async def reply(request: web.Request) -> web.StreamResponse:
        nonlocal stalled
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b"\n\n")
        if stalled < 4:
            stalled += 1
            await release.wait()
        await response.write(json.dumps({"choices": [choice]}).encode())
        return response

    async with serving([web.post("/v1/chat/completions", reply)]) as url:
        asking = client("openai", f"{url}/v1", timeout=60)
        one = replace(REQUEST, n=1)
        slow = [asyncio.create_task(asking.sample(one)) for _ in range(4)]
        while stalled < 4:
            await asyncio.sleep(0.01)
        others = asyncio.gather(*(asking.sample(one) for _ in range(12)))
        assert len(await asyncio.wait_for(others, timeout=30)) == 12
        assert not any(task.done() for task in slow)
        release.set()
        assert len(await asyncio.gather(*slow)) == 4
        await asking.close()
