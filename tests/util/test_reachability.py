"""Waiting until a server is reachable."""

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.util.log_throttle import LogPauses
from reasoning_gym_environment.util.outages import UnreachableError, require_reachable

pytestmark = pytest.mark.usefixtures("logs_information")


async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest_asyncio.fixture
async def listening() -> AsyncIterator[str]:
    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


@pytest.fixture
def logs_information(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="reasoning_gym_environment")


@pytest.fixture
def deaf() -> str:
    return f"http://127.0.0.1:{unused_port()}/v1"


async def require(*urls: str, seconds: float = 0.0) -> None:
    said = {"what": "the server", "hint": "start it"}
    await require_reachable(
        urls, **said, seconds=seconds, pauses=LogPauses(first=0.02, longest=0.02)
    )


async def test_a_server_that_listens_is_reachable_and_one_of_several_is_enough(
    deaf: str, listening: str, caplog: pytest.LogCaptureFixture
) -> None:
    await require(listening)
    assert caplog.text == ""
    await require(deaf, listening)


async def test_servers_that_do_not_listen_are_named_with_a_hint(deaf: str) -> None:
    other = f"http://127.0.0.1:{unused_port()}"
    for urls in ([deaf], [deaf, other]):
        with pytest.raises(UnreachableError) as caught:
            await require(*urls)
        message = str(caught.value)
        assert message.startswith("the server can't be reached at")
        assert all(url in message for url in urls)
        assert message.endswith("start it")
        assert isinstance(caught.value, FixableError)


async def test_every_failed_attempt_is_logged(
    deaf: str, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = asyncio.create_task(require(deaf, seconds=60.0))
    while "attempt 2: start it" not in caplog.text:
        await asyncio.sleep(0.01)
    assert "attempt 1: start it" in caplog.text
    waiting.cancel()


async def test_waiting_is_logged_at_once_as_information_and_then_more_rarely(
    deaf: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UnreachableError):
        await require_reachable([deaf], what="the server", hint="start it", seconds=1.5)
    [record] = caplog.records
    assert record.levelname == "INFO"
    assert re.search(r"attempt 1: start it; [012] s left$", record.getMessage())


async def test_the_wait_ends_when_the_server_starts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = unused_port()
    waiting = asyncio.create_task(require(f"http://127.0.0.1:{port}", seconds=60.0))
    while "attempt 1" not in caplog.text:
        await asyncio.sleep(0.01)
    async with await asyncio.start_server(greet, "127.0.0.1", port):
        await waiting


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8000",
        "http://",
        "http://127.0.0.1:99999",
        "http://host:port",
        "http://[::1",
    ],
)
async def test_a_malformed_url_is_named_at_once(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a valid URL") as caught:
        await require(url, seconds=60.0)
    assert repr(url) in str(caught.value)
