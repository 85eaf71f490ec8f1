"""Failover between inference servers: order, cooldown, retries."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from clock import Clock

from reasoning_gym_environment.inference.errors import HangingError
from reasoning_gym_environment.inference.failover import Failover, FailoverPolicy
from reasoning_gym_environment.inference.rate_limit import RateLimit
from reasoning_gym_environment.util.log_throttle import THROTTLE
from reasoning_gym_environment.util.outages import UnreachableError


class Server:
    """A server with a name, up or down."""

    def __init__(self, name: str, down: set[str]) -> None:
        self.config = SimpleNamespace(base_url=name, timeout=600.0)
        self.rate_limit = RateLimit(name)
        self._down = down

    def admit(self, split: str) -> nullcontext[None]:
        return nullcontext()

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


async def failed_once() -> Servers:
    """One server that was down once, with a clock that advances by a second at each look."""
    servers = Servers("a", down="a", clock=Clock(look=1.0))
    with pytest.raises(ConnectionError):
        await servers.answers(1)
    return servers


FIVE_SECONDS = FailoverPolicy.retrying_for(5.0, outage_timeout=5.0)


async def test_an_outage_timeout_ends_requests_to_a_silent_server() -> None:
    servers = await failed_once()

    async def hangs(_: Any) -> None:
        await asyncio.sleep(60)

    with pytest.raises(UnreachableError, match=r"for 5 s: ConnectionError: a is down"):
        await asyncio.wait_for(
            servers.failover.send(hangs, policy=FIVE_SECONDS), timeout=60
        )


async def test_an_outage_timeout_spares_requests_to_a_live_server() -> None:
    servers = await failed_once()
    servers.down.clear()

    async def generates(_: Any) -> str:
        await asyncio.sleep(2.5)
        return "long"

    assert await servers.failover.send(generates, policy=FIVE_SECONDS) == "long"


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
    policy = FailoverPolicy.retrying_for(60.0)
    sent = servers.failover.send(servers.request, policy=policy)
    persistent = asyncio.create_task(sent)
    while servers.asked["a"] < 4:
        await asyncio.sleep(0.01)
    servers.down.clear()
    assert await asyncio.wait_for(persistent, timeout=30) == "a"


async def test_without_seconds_a_request_is_tried_three_times() -> None:
    servers = Servers("a", down="a")
    policy = FailoverPolicy.retrying_for(0.0, outage_timeout=0.0)
    sent = servers.failover.send(servers.request, policy=policy)
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
            servers.request, policy=FailoverPolicy.retrying_for(60.0)
        )
    assert servers.asked["a"] == 6


async def fails_after_hanging(policy: FailoverPolicy) -> int:
    """How often a request is sent to a silent server, until it is given up."""
    servers = Servers("a", down="a", clock=Clock(look=10.0))
    sent = 0

    async def hangs(_: Any) -> None:
        nonlocal sent
        sent += 1
        await asyncio.sleep(60)

    with pytest.raises(HangingError, match="a was silent for 60 s"):
        await asyncio.wait_for(servers.failover.send(hangs, policy=policy), timeout=60)
    return sent


async def test_a_request_that_hung_for_a_minute_is_not_tried_three_times() -> None:
    assert await fails_after_hanging(FailoverPolicy()) == 1


async def test_a_request_that_hangs_is_sent_again_until_the_deadline() -> None:
    assert await fails_after_hanging(FailoverPolicy.retrying_for(200.0)) > 1
