"""A server's silence is seen and said, and ends no request before its timeout."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from clock import Clock

from reasoning_gym_environment.inference.errors import RequestTimeoutError
from reasoning_gym_environment.inference.liveness import Liveness
from reasoning_gym_environment.util.log_throttle import THROTTLE


class Server:
    """A server that answers `/health` or not, by the time that each look at it moves on."""

    config = SimpleNamespace(base_url="http://here/v1", timeout=400.0)

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers
        self.asked = 0

    async def is_alive(self) -> bool:
        self.asked += 1
        return self.answers


class Eager(Liveness):
    """Checks all the time."""

    check_seconds = 0.001


class Waits:
    """Requests to one server, with a clock."""

    def __init__(self, *, answers: bool) -> None:
        self.server = Server(answers=answers)
        self.clock = Clock()
        THROTTLE.reset(self.clock)
        self.liveness = Eager(self.server, self.clock)

    @asynccontextmanager
    async def request(self) -> AsyncIterator[asyncio.Task[str]]:
        """A request that gets no reply."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self.liveness.reply(never))
        await asyncio.sleep(0)
        yield task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def go_by(self, seconds: int) -> None:
        """Let seconds go by, with a check or more in each."""
        for _ in range(seconds):
            self.clock.now += 1.0
            await asyncio.sleep(3 * Eager.check_seconds)

    async def get_reply(self) -> None:
        reply: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        reply.set_result("here")
        assert await self.liveness.reply(reply) == "here"


async def test_silence_is_said_after_a_minute_and_then_less_and_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waits = Waits(answers=False)
    async with waits.request() as task:
        await waits.go_by(59)
        assert caplog.messages == [] == [*filter(None, [waits.liveness.waiting])]
        await waits.go_by(300)
        assert len(caplog.messages) == 3  # after one minute, two and four
        assert not task.done()
        assert "http://here/v1" in waits.liveness.waiting
        assert "1 request waits" in waits.liveness.waiting
        assert "restart it" in waits.liveness.waiting
        waits.server.answers = True
        await waits.go_by(5)
        assert waits.liveness.waiting == ""
    assert re.search(r"http://here/v1 answers again, after 3[56]\d s", caplog.text)


async def test_a_silence_lasts_until_the_server_answers_whatever_becomes_of_requests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They are given up, since another server has replied or their connection has ended."""
    waits = Waits(answers=False)
    for _ in range(2):
        async with waits.request():
            await waits.go_by(65)
            silence = waits.liveness.waiting
        waits.clock.now += 35.0
    assert re.search(r"silent for 16\d s", silence)
    waits.server.answers = True
    async with waits.request():
        await waits.go_by(6)
    assert re.search(r"answers again, after 20\d s", caplog.messages[-1])
    waits.server.answers = False
    async with waits.request():
        await waits.go_by(65)
    assert re.search(r"silent for 6\d s", caplog.messages[-1])


async def test_a_request_ends_at_the_timeout_of_a_silent_server_and_not_before() -> (
    None
):
    waits = Waits(answers=False)
    async with waits.request() as task:
        await waits.go_by(398)
        assert not task.done()
        await waits.go_by(4)
        with pytest.raises(RequestTimeoutError, match=r"here/v1 .*--openai\.timeout"):
            task.result()


@pytest.mark.parametrize("replies", [0, 1, 300])
async def test_a_live_server_has_its_whole_timeout(replies: int) -> None:
    """How long other requests took does not matter."""
    waits = Waits(answers=True)
    for _ in range(replies):
        await waits.get_reply()
    async with waits.request() as task:
        await waits.go_by(398)
        assert not task.done()
        await waits.go_by(4)
        assert isinstance(task.exception(), RequestTimeoutError)


async def test_a_slow_live_server_is_waited_for_silently(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waits = Waits(answers=True)
    async with waits.request() as task:
        await waits.go_by(50)
        assert not task.done()
    assert 5 < waits.server.asked < 15
    assert caplog.messages == []


async def test_a_server_that_answered_a_moment_ago_is_not_steady() -> None:
    """One that blocks while it generates answers between two generations alone."""
    waits = Waits(answers=False)
    async with waits.request():
        await waits.go_by(20)
        assert waits.liveness.is_silent
        waits.server.answers = True
        await waits.go_by(5)
        assert not waits.liveness.is_silent
        assert not waits.liveness.is_steady
        await waits.go_by(12)
        assert waits.liveness.is_steady


async def test_only_requests_that_waited_through_a_long_silence_may_be_lost() -> None:
    waits = Waits(answers=False)
    began = waits.clock.now
    async with waits.request():
        await waits.go_by(59)
        assert not waits.liveness.may_have_lost(began)
        await waits.go_by(10)
        assert waits.liveness.may_have_lost(began)
        waits.server.answers = True
        await waits.go_by(10)
        assert waits.liveness.may_have_lost(began)
        assert not waits.liveness.may_have_lost(waits.clock.now)


async def test_long_requests_of_a_live_server_are_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    waits = Waits(answers=True)
    async with waits.request():
        await waits.go_by(10)
        async with waits.request():
            await waits.go_by(45)
            assert caplog.messages == []
            await waits.go_by(70)
    assert len(caplog.messages) == 2
    assert re.match(r"1 of 2 requests to http://here/v1 .*: 6\d s", caplog.messages[0])
    assert "--openai.timeout, 400 s" in caplog.messages[0]
