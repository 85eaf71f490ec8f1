"""Where a client sends its requests, and how long it waits for a connection and a reply."""

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
from asked_completions import REQUEST
from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from reasoning_gym_environment.inference.errors import describe
from reasoning_gym_environment.inference.servers import ServerClient


def client(kind: str, base_url: str | None) -> ServerClient:
    server = {"server_type": kind, "base_url": base_url, "model_name": "m", "api_key": "x"}
    return ServerClient(APIServerConfig(**server, timeout=1))


async def failure_of(kind: str, base_url: str) -> BaseException:
    """What one request raises."""
    request = client(kind, base_url).sample(replace(REQUEST, n=1), "train")
    [error] = await asyncio.gather(request, return_exceptions=True)
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
async def test_a_refused_connection_fails_at_once(kind: str, bound: socket.socket) -> None:
    error = await asyncio.wait_for(failure_of(kind, url_of(bound)), timeout=5)
    assert "connect" in describe(error).lower()


@pytest.mark.parametrize("kind", ["openai", "vllm"])
async def test_a_silent_server_fails_after_the_configured_timeout(
    kind: str, bound: socket.socket
) -> None:
    bound.listen()
    error = await asyncio.wait_for(failure_of(kind, url_of(bound)), timeout=10)
    assert describe(error) == "no reply in time (10 s to connect, --openai.timeout in total)"


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
def test_a_chat_endpoint_is_asked_where_openais_own_client_asks(
    base_url: str | None, chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert client("openai", base_url).url("/v1/chat/completions") == chat
