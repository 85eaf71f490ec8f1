"""Failover between inference servers: order, cooldown, retries."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from reasoning_gym_environment.inference.client import Failover
from reasoning_gym_environment.inference.servers import RateLimit
from reasoning_gym_environment.util.outages import UnreachableError


class Server:
    """A server with a name, up or down."""

    def __init__(self, name: str, down: set[str]) -> None:
        self.config = SimpleNamespace(base_url=name, timeout=600.0)
        self.rate_limit = RateLimit(name)
        self._down = down

    async def is_alive(self) -> bool:
        return self.config.base_url not in self._down


class Servers:
    """Several servers, some of them down."""

    def __init__(self, *names: str, down: str = "") -> None:
        self.down = set(down.split())
        self.all = [Server(name, self.down) for name in names]
        self.asked: Counter[str] = Counter()

    async def request(self, server: Any) -> str:
        name = server.config.base_url
        self.asked[name] += 1
        await asyncio.sleep(0.01)
        if name in self.down:
            raise ConnectionError(f"{name} is down")
        return str(name)


async def test_requests_are_spread_over_the_servers() -> None:
    servers = Servers("a", "b", "c")
    asking = Failover(servers.all)
    answers = await asyncio.gather(*(asking.send(servers.request) for _ in range(9)))
    assert Counter(answers) == {"a": 3, "b": 3, "c": 3}


async def test_a_failed_request_goes_to_the_next_server() -> None:
    servers = Servers("a", "b", down="a")
    asking = Failover(servers.all)
    answers = await asyncio.gather(*(asking.send(servers.request) for _ in range(4)))
    assert answers == ["b"] * 4


async def test_a_failed_server_gets_no_requests_for_a_while() -> None:
    servers = Servers("a", "b", down="a")
    asking = Failover(servers.all)
    for _ in range(10):
        assert await asking.send(servers.request) == "b"
    assert servers.asked == {"a": 1, "b": 10}


async def test_one_request_tries_a_failed_server_again_after_the_cooldown() -> None:
    servers, now = Servers("a", "b", down="a"), 1000.0
    asking = Failover(servers.all, lambda: now)
    await asking.send(servers.request)
    servers.asked.clear()
    now += 31.0
    await asyncio.gather(*(asking.send(servers.request) for _ in range(4)))
    assert servers.asked["a"] == 1
    servers.down.clear()
    now += 31.0
    await asking.send(servers.request)
    answers = await asyncio.gather(*(asking.send(servers.request) for _ in range(4)))
    assert Counter(answers) == {"a": 2, "b": 2}


async def test_the_failure_is_raised_if_all_servers_fail() -> None:
    servers = Servers("a", "b", down="a b")
    asking = Failover(servers.all)
    with pytest.raises(ConnectionError, match="b is down"):
        await asking.send(servers.request)


class Hurried:
    """A clock that advances by a second at each call."""

    now = 1000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


async def failed_once(servers: Servers, patience: float) -> Failover:
    asking = Failover(servers.all, Hurried())
    with pytest.raises(ConnectionError):
        await asking.send(servers.request)
    asking.outage_timeout = patience
    return asking


async def test_an_outage_timeout_ends_requests_to_a_silent_server() -> None:
    asking = await failed_once(Servers("a", down="a"), patience=5.0)

    async def hangs(_: Any) -> None:
        await asyncio.sleep(60)

    with pytest.raises(UnreachableError, match=r"for 5 s: ConnectionError: a is down"):
        await asyncio.wait_for(asking.send(hangs), timeout=60)


async def test_an_outage_timeout_spares_requests_to_a_live_server() -> None:
    servers = Servers("a", down="a")
    asking = await failed_once(servers, patience=5.0)
    servers.down.clear()

    async def generates(_: Any) -> str:
        await asyncio.sleep(2.5)
        return "long"

    assert await asking.send(generates) == "long"


async def test_each_servers_failure_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers, now = Servers("a", "b", "c", down="a b"), 1000.0
    asking = Failover(servers.all, lambda: now)
    for _ in range(3):
        await asking.send(servers.request)
        now += 31.0
    said = "The inference server at {0} fails, trying others: ConnectionError: {0} is down"
    assert caplog.messages == [said.format(name) for name in "abab"]


async def test_a_single_servers_failure_is_logged_without_mention_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = Servers("a", down="a")
    with pytest.raises(ConnectionError):
        await Failover(servers.all).send(servers.request)
    assert caplog.messages == ["The inference server at a fails: ConnectionError: a is down"]
    assert servers.asked["a"] == 3


async def test_requests_are_retried_for_retry_seconds() -> None:
    servers = Servers("a", down="a")
    asking = Failover(servers.all)
    persistent = asyncio.create_task(asking.send(servers.request, retry_seconds=60.0))
    while servers.asked["a"] < 4:
        await asyncio.sleep(0.01)
    servers.down.clear()
    assert await asyncio.wait_for(persistent, timeout=30) == "a"


async def test_after_the_outage_timeout_a_request_is_tried_three_times() -> None:
    servers = Servers("a", down="a")
    asking = Failover(servers.all)
    asking.outage_timeout = 0.0
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(asking.send(servers.request, retry_seconds=600.0), timeout=60)
    assert servers.asked["a"] == 3


async def test_after_a_long_outage_a_request_fails_at_the_third_attempt() -> None:
    servers, now = Servers("a", down="a"), 1000.0
    asking = Failover(servers.all, lambda: now)
    with pytest.raises(ConnectionError):
        await asking.send(servers.request)
    now += 60.0
    with pytest.raises(ConnectionError):
        await asking.send(servers.request, retry_seconds=60.0)
    assert servers.asked["a"] == 6
