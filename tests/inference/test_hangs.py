"""A silent server is distinguished from a busy one, and no request waits forever."""

import asyncio
import logging
import re
from types import SimpleNamespace

import pytest
from clock import Clock

from reasoning_gym_environment.inference.errors import HangingError, RequestTimeoutError
from reasoning_gym_environment.inference.failover import HangDetector
from reasoning_gym_environment.util.log_throttle import THROTTLE


class Server:
    """A server that is there or not."""

    config = SimpleNamespace(base_url="http://here/v1", timeout=400.0)

    def __init__(self, *, there: bool) -> None:
        self.there = there
        self.asked = 0

    async def is_alive(self) -> bool:
        self.asked += 1
        return self.there


class Hasty(HangDetector):
    """Checks all the time."""

    check_seconds = 0.001


async def waited(
    detector: HangDetector, clock: Clock, seconds: int
) -> asyncio.Task[str]:
    """A request that has waited for so long; a check every second makes the time go by."""
    never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    enough, end = asyncio.Event(), clock.now + seconds

    def tick() -> None:
        clock.now += 1.0
        if clock.now >= end:
            enough.set()

    waiting = asyncio.create_task(detector.reply(never, tick))
    done = asyncio.create_task(enough.wait())
    await asyncio.wait({waiting, done}, return_when=asyncio.FIRST_COMPLETED)
    done.cancel()
    return waiting


async def cancel(waiting: asyncio.Task[str]) -> None:
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def seconds_allowed(
    detector: HangDetector, clock: Clock, said: str = "no reply"
) -> float:
    """Return after how long a request without a reply is abandoned."""
    begun = clock.now
    with pytest.raises(HangingError, match=said):
        await (await waited(detector, clock, 1000))
    return clock.now - begun


async def test_a_silent_server_is_logged_within_ten_seconds_and_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, clock = Server(there=False), Clock()
    THROTTLE.reset(clock)
    detector = Hasty(server, clock)
    detector.silence_timeout = 1000.0
    waiting = await waited(detector, clock, 10)
    assert caplog.messages == [
        "The inference server at http://here/v1 doesn't answer for 4 s: 1 requests in flight, no "
        "data for 4 s"
    ]
    await cancel(waiting)
    waiting = await waited(detector, clock, 130)
    assert len(caplog.messages) == 3
    server.there = True
    await cancel(waiting)
    await answered(detector, 1)
    assert caplog.messages[-1].startswith(
        "The inference server at http://here/v1 is back after 1"
    )
    assert caplog.messages[-1].endswith(" s, 0 requests given up")


async def test_requests_to_a_silent_server_are_abandoned() -> None:
    detector = Hasty(Server(there=False), clock := Clock())
    with pytest.raises(HangingError) as raised:
        await (await waited(detector, clock, 100))
    assert (
        str(raised.value)
        == "the inference server at http://here/v1 was silent for 60 s"
    )


async def test_a_slow_live_server_is_waited_for_silently(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, clock = Server(there=True), Clock()
    waiting = await waited(Hasty(server, clock), clock, 50)
    assert not waiting.done()
    assert 5 < server.asked < 15
    assert caplog.messages == []
    await cancel(waiting)


async def answered(detector: HangDetector, times: int) -> None:
    """Receive that many replies at once."""
    for _ in range(times):
        reply: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        reply.set_result("here")
        assert await detector.reply(reply, lambda: None) == "here"


@pytest.mark.parametrize("replies", [0, 1, 300])
async def test_a_live_server_has_its_whole_timeout(replies: int) -> None:
    """How long other requests took does not matter."""
    detector = Hasty(Server(there=True), clock := Clock())
    await answered(detector, replies)
    for _ in range(3):
        said = "no reply from http://here/v1 after 400 s, its --openai.timeout"
        assert await seconds_allowed(detector, clock, said) == 400


async def test_long_requests_of_a_live_server_are_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    detector = Hasty(Server(there=True), clock := Clock())
    THROTTLE.reset(clock)
    waiting = [await waited(detector, clock, 10), await waited(detector, clock, 50)]
    assert caplog.messages == []
    waiting.append(await waited(detector, clock, 70))
    # Three requests move the clock, each by a second at a time.
    assert len(caplog.messages) in (1, 2)
    assert re.fullmatch(
        r"\d of 3 requests to http://here/v1 wait for more than a minute: [\d, ]+ s; each ends "
        r"at --openai.timeout, 400 s",
        caplog.messages[0],
    )
    for task in waiting:
        await cancel(task)


async def test_forgotten_requests_do_not_extend_the_silence_timeout() -> None:
    server = Server(there=True)
    detector = Hasty(server, clock := Clock())
    waiting = [await waited(detector, clock, 1) for _ in range(3)]
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(end) for end in ended} == {RequestTimeoutError}
    server.there = False
    assert await seconds_allowed(detector, clock, "was silent for 60 s") == 60
