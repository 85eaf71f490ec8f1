"""Where the clients send their requests, and what they repeat of a refusal."""

from typing import Any

import pytest
from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from reasoning_gym_environment.atropos.servers import CLIENTS, ChatServer, own_words

pytestmark = pytest.mark.processes  # OpenAI's client asks for the system's name


def client(kind: str, base_url: str) -> Any:
    return CLIENTS[kind](APIServerConfig(base_url=base_url, model_name="m", api_key="x"))


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
