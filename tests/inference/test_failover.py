"""Failover between inference servers: order, cooldown, retries."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from clock import Clock

from reasoning_gym_environment.inference.failover import THREE_ROUNDS, Failover
from reasoning_gym_environment.inference.rate_limit import RateLimit
from reasoning_gym_environment.util.log_throttle import THROTTLE


class Server:
    """A server with a name, up or down."""

    def __init__(self, name: str, down: set[str]) -> None:
        self.config = SimpleNamespace(base_url=name, timeout=600.0)
        self.rate_limit = RateLimit(name)
        self.places = asyncio.Semaphore(8)
        self._down = down

    def admit(self, split: str) -> asyncio.Semaphore:
        return self.places

    async def is_alive(self) -> bool:
        return self.config.base_url not in self._down


class Servers:
    """Several servers, some of them down, with a failover between them."""

    def __init__(
        self, *names: str, down: str = "", clock: Callable[[], float] = time.monotonic
    ):
        self.down = set(down.split())
        self.failover = Failover([Server(name, self.down) for name in names], clock)
        self.asked: Counter[str] = Counter()

    async def request(self, server: Any) -> str:
        name = server.config.base_url
        self.asked[name] += 1
        await asyncio.sleep(0.01)
        if name in self.down:
            raise ConnectionError(f"{name} is down")
        return str(name)

    async def answers(self, times: int) -> list[str]:
        """What so many requests at once get."""
        return await asyncio.gather(
            *(self.failover.send(self.request) for _ in range(times))
        )


async def test_requests_are_spread_over_the_servers() -> None:
    answers = await Servers("a", "b", "c").answers(9)
    assert Counter(answers) == {"a": 3, "b": 3, "c": 3}


async def test_a_server_tells_how_it_answers() -> None:
    servers = Servers("a")
    await servers.answers(3)
    [state] = [backend.state() for backend in servers.failover.backends]
    assert state["seconds"] >= 0.01
    del state["seconds"]
    assert state == {
        "url": "a",
        "in_flight": 0,
        "waiting": 0,
        "replies": 3,
        "is_available": True,
    }


async def test_a_failed_request_goes_to_the_next_server() -> None:
    assert await Servers("a", "b", down="a").answers(4) == ["b"] * 4


async def test_a_failed_server_gets_no_requests_for_a_while() -> None:
    servers = Servers("a", "b", down="a")
    for _ in range(10):
        assert await servers.answers(1) == ["b"]
    assert servers.asked == {"a": 1, "b": 10}


async def test_one_request_tries_a_failed_server_again_after_the_cooldown() -> None:
    servers = Servers("a", "b", down="a", clock=(clock := Clock()))
    await servers.answers(1)
    servers.asked.clear()
    clock.now += 31.0
    await servers.answers(4)
    assert servers.asked["a"] == 1
    servers.down.clear()
    clock.now += 31.0
    await servers.answers(1)
    assert Counter(await servers.answers(4)) == {"a": 2, "b": 2}


async def test_the_failure_is_raised_if_all_servers_fail() -> None:
    with pytest.raises(ConnectionError, match="b is down"):
        await Servers("a", "b", down="a b").answers(1)


async def test_a_servers_failure_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = Servers("a", "b", "c", down="a b", clock=(clock := Clock()))
    THROTTLE.reset(clock)
    for _ in range(3):
        await servers.answers(1)
        clock.now += 31.0
    said = (
        "The inference server at {0} fails, trying others: ConnectionError: {0} is down"
    )
    assert caplog.messages == [said.format(name) for name in "abab"]


async def test_a_single_servers_failure_is_logged_without_mention_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = Servers("a", down="a")
    with pytest.raises(ConnectionError):
        await servers.answers(1)
    assert caplog.messages == [
        "The inference server at a fails: ConnectionError: a is down"
    ]
    assert servers.asked["a"] == 3


async def test_requests_are_retried_for_the_seconds_of_the_policy() -> None:
    servers = Servers("a", down="a")
    rounds = replace(THREE_ROUNDS, seconds=60.0)
    sent = servers.failover.send(servers.request, rounds=rounds)
    persistent = asyncio.create_task(sent)
    while servers.asked["a"] < 4:
        await asyncio.sleep(0.01)
    servers.down.clear()
    assert await asyncio.wait_for(persistent, timeout=30) == "a"


async def test_without_seconds_a_request_is_tried_three_times() -> None:
    servers = Servers("a", down="a")
    sent = servers.failover.send(servers.request)
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(sent, timeout=60)
    assert servers.asked["a"] == 3


async def test_after_a_long_outage_a_request_fails_at_the_third_attempt() -> None:
    servers = Servers("a", down="a", clock=(clock := Clock()))
    with pytest.raises(ConnectionError):
        await servers.answers(1)
    clock.now += 60.0
    with pytest.raises(ConnectionError):
        await servers.failover.send(
            servers.request, rounds=replace(THREE_ROUNDS, seconds=60.0)
        )
    assert servers.asked["a"] == 6


class SilentServers(Servers):
    """Two servers; those that are silent keep requests without an answer."""

    def __init__(self, *names: str) -> None:
        self.clock = Clock()
        super().__init__(*names, clock=self.clock)
        self.silent: set[str] = set()
        self.lost = 0
        for backend in self.failover.backends:
            backend.liveness.check_seconds = 0.001

    async def request(self, server: Any) -> str:
        name = server.config.base_url
        self.asked[name] += 1
        if name in self.silent:
            self.lost += 1
            await asyncio.Event().wait()
        return str(name)

    def silence(self, *names: str) -> None:
        self.silent = set(names)
        self.down.clear()
        self.down.update(names)  # no reply of /health either

    async def go_by(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.now += 1.0
            await asyncio.sleep(0.003)

    def send(self) -> asyncio.Task[str]:
        return asyncio.create_task(self.failover.send(self.request))


async def test_a_request_to_a_silent_server_is_asked_beside_at_another() -> None:
    servers = SilentServers("a", "b")
    servers.silence("a")
    first = servers.send()
    await servers.go_by(59)
    assert not first.done()
    assert servers.asked == {"a": 1}
    await servers.go_by(4)
    assert await first == "b"
    assert servers.asked == {"a": 1, "b": 1}


async def test_a_silent_server_gets_no_new_requests_while_another_answers() -> None:
    servers = SilentServers("a", "b")
    servers.silence("a")
    first = servers.send()
    await servers.go_by(12)
    for _ in range(20):
        assert await servers.failover.send(servers.request) == "b"
    await servers.go_by(50)
    assert await first == "b"
    # nor when none of its requests is left
    assert [await servers.failover.send(servers.request) for _ in range(3)] == ["b"] * 3
    assert servers.asked["a"] == 1


async def test_swallowed_requests_are_asked_once_more_when_their_server_is_back() -> (
    None
):
    """They hold all of its places."""
    servers = SilentServers("a")
    servers.silence("a")
    swallowed = [servers.send() for _ in range(8)]
    await servers.go_by(80)
    assert servers.asked == {"a": 8}
    servers.silence()
    await servers.go_by(5)
    assert servers.asked == {"a": 8}
    await servers.go_by(15)
    assert await asyncio.gather(*swallowed) == ["a"] * 8
    assert servers.asked == {"a": 16}


async def test_with_no_server_that_answers_a_request_waits_and_the_page_says_so() -> (
    None
):
    servers = SilentServers("a", "b")
    servers.silence("a", "b")
    requests = [servers.send(), servers.send()]
    await servers.go_by(300)
    assert not any(request.done() for request in requests)
    assert servers.asked == {"a": 1, "b": 1}
    assert "a has been silent for" in servers.failover.waiting
    assert "b has been silent for" in servers.failover.waiting
    assert servers.failover.unavailable == ["a", "b"]
    states = [backend.state() for backend in servers.failover.backends]
    assert [(each["in_flight"], each["is_available"]) for each in states] == [
        (1, False),
        (1, False),
    ]
    for request in requests:
        request.cancel()
    await asyncio.gather(*requests, return_exceptions=True)


async def test_the_first_of_both_replies_counts_and_the_other_request_is_cancelled() -> (
    None
):
    servers = SilentServers("a", "b")
    servers.silence("a")
    cancelled = asyncio.Event()

    async def request(server: Any) -> str:
        try:
            return await servers.request(server)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    sent = asyncio.create_task(servers.failover.send(request))
    await servers.go_by(64)
    assert await sent == "b"
    await asyncio.wait_for(cancelled.wait(), timeout=60)
    assert [backend.in_flight for backend in servers.failover.backends] == [0, 0]


async def test_a_second_request_that_fails_does_not_end_the_first() -> None:
    servers = SilentServers("a", "b")
    servers.silence("a")
    replies = {"a": asyncio.Event()}

    async def request(server: Any) -> str:
        name = server.config.base_url
        servers.asked[name] += 1
        if name == "b":
            raise ConnectionError("b resets")
        await replies[name].wait()
        return str(name)

    sent = asyncio.create_task(servers.failover.send(request))
    await servers.go_by(64)
    assert servers.asked == {"a": 1, "b": 1}
    assert not sent.done()
    replies["a"].set()
    assert await asyncio.wait_for(sent, timeout=60) == "a"
