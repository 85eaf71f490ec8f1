"""Where the clients send their requests, how often and how long, and what is said of failures."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from atroposlib.envs.server_handling.server_baseline import APIServer, APIServerConfig
from tenacity import stop_after_attempt

from reasoning_gym_environment.inference.errors import own_words, sentence
from reasoning_gym_environment.inference.servers import CLIENTS, ChatServer

pytestmark = pytest.mark.processes  # OpenAI's client asks for the system's name


ASK = {"messages": [{"role": "user", "content": "?"}], "n": 1, "max_tokens": 1}
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "vocabulary": 9, "stops": frozenset()}


def client(kind: str, base_url: str) -> Any:
    server = {"base_url": base_url, "model_name": "m", "api_key": "x"}
    return CLIENTS[kind](APIServerConfig(**server, timeout=1, health_check=False))


async def failure_of(kind: str, base_url: str) -> Exception:
    """What one request raises."""
    server = client(kind, base_url)
    if kind == "openai":
        request = server.chat_completion(**ASK)
    else:
        request = server.tokens_and_logprobs_completion(input_ids=[1], **ASK, **SAMPLING)
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
async def test_a_refused_connection_is_no_reason_to_ask_again(
    kind: str, bound: socket.socket
) -> None:
    error = await asyncio.wait_for(failure_of(kind, url_of(bound)), timeout=5)
    assert "connect" in sentence(error).lower()


@pytest.mark.parametrize("kind", ["openai", "vllm"])
async def test_a_silent_server_is_given_up_after_atroposs_timeout(
    kind: str, bound: socket.socket
) -> None:
    bound.listen()
    error = await asyncio.wait_for(failure_of(kind, url_of(bound)), timeout=10)
    assert sentence(error) == "no reply in time (10 s to connect, --openai.timeout for the whole)"


def test_atroposs_own_clients_keep_their_retries() -> None:
    for name in ("_chat_comp", "_tokens_and_logprobs_comp"):
        stop = getattr(APIServer, name).retry.stop
        assert isinstance(stop, stop_after_attempt)
        assert stop.max_attempt_number == 3
        assert getattr(ChatServer, name).retry.stop.max_attempt_number == 1


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
    ],
)
async def test_a_chat_endpoint_is_asked_where_openais_client_asks(base_url: str, chat: str) -> None:
    server = client("openai", base_url)
    assert isinstance(server, ChatServer)
    assert server.url("/v1/chat/completions") == chat
    await server.openai.close()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"error": {"message": "No such model.", "code": 404}}', "No such model."),
        ('{"object": "error", "message": "too long"}', "too long"),
        ('{"detail": "Not Found"}', "Not Found"),
        ("<h1>Bad\n  Gateway</h1>", "<h1>Bad Gateway</h1>"),
        ("[1]", "[1]"),
        ("", ""),
        ("x" * 400, "x" * 299 + "…"),
    ],
)
def test_a_refusal_is_repeated_in_one_short_line(body: str, words: str) -> None:
    assert own_words(body) == words
