"""A silent server is told from one that is busy, and no request is waited for in vain."""

import asyncio
from types import SimpleNamespace

import pytest
from clock import Clock

from reasoning_gym_environment.inference.failover import HangingError, Watch


class Server:
    """Says whether it is there."""

    config = SimpleNamespace(base_url="http://here/v1")

    def __init__(self, *, there: bool) -> None:
        self.there = there
        self.asked = 0

    async def is_there(self) -> bool:
        self.asked += 1
        return self.there


class Hasty(Watch):
    """Looks at the clock all the time."""

    check_seconds = 0.001


async def waited(watch: Watch, clock: Clock, seconds: int) -> asyncio.Task[str]:
    """A request that has waited for so long; a check every second makes the time go by."""
    never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    enough, end = asyncio.Event(), clock.now + seconds

    def tick() -> None:
        clock.now += 1.0
        if clock.now >= end:
            enough.set()

    waiting = asyncio.create_task(watch.reply(never, tick))
    done = asyncio.create_task(enough.wait())
    await asyncio.wait({waiting, done}, return_when=asyncio.FIRST_COMPLETED)
    done.cancel()
    return waiting


async def test_a_silent_server_is_said_within_ten_seconds_and_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, clock = Server(there=False), Clock()
    watch = Hasty(server, clock)
    watch.bears = 1000.0
    waiting = await waited(watch, clock, 10)
    assert caplog.messages == [
        "The inference server at http://here/v1 doesn't answer for 4 s: 1 requests are under way, "
        "nothing has come for 4 s"
    ]
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    waiting = await waited(watch, clock, 130)
    assert len(caplog.messages) == 3
    server.there = True
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    reply: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    reply.set_result("here")
    assert await watch.reply(reply, lambda: None) == "here"
    assert caplog.messages[-1].startswith("The inference server at http://here/v1 is back after 1")
    assert caplog.messages[-1].endswith(" s, 0 requests given up")


async def test_requests_to_a_silent_server_are_given_up() -> None:
    watch = Hasty(Server(there=False), clock := Clock())
    with pytest.raises(HangingError) as raised:
        await (await waited(watch, clock, 100))
    assert str(raised.value) == "the inference server at http://here/v1 was silent for 60 s"


async def test_a_server_that_is_there_may_take_its_time_and_nothing_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, clock = Server(there=True), Clock()
    waiting = await waited(Hasty(server, clock), clock, 50)
    assert not waiting.done()
    assert 5 < server.asked < 15
    assert caplog.messages == []
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def answered(watch: Watch, times: int) -> None:
    """So many replies that come at once."""
    for _ in range(times):
        reply: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        reply.set_result("here")
        await watch.reply(reply, lambda: None)


@pytest.mark.parametrize(
    ("replies", "limits"), [(0, (600, 1200)), (31, (600,)), (32, (60, 120, 240))]
)
async def test_a_request_that_a_server_has_forgotten_is_given_up_and_the_next_has_longer(
    replies: int, limits: tuple[int, ...]
) -> None:
    watch = Hasty(Server(there=True), clock := Clock())
    await answered(watch, replies)
    for seconds in limits:
        begun = clock.now
        with pytest.raises(HangingError, match=r"the longest before took 0\.0 s"):
            await (await waited(watch, clock, 2000))
        assert clock.now - begun == seconds


async def test_requests_that_are_forgotten_together_leave_patience_with_silence_as_it_is() -> None:
    server = Server(there=True)
    watch = Hasty(server, clock := Clock())
    waiting = [await waited(watch, clock, 1) for _ in range(3)]
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(end) for end in ended} == {HangingError}
    server.there = False
    begun = clock.now
    with pytest.raises(HangingError, match="was silent for 60 s"):
        await (await waited(watch, clock, 1000))
    assert clock.now - begun == 60


async def test_who_has_seen_long_completions_waits_for_them() -> None:
    watch = Hasty(Server(there=True), clock := Clock())
    reply: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(watch.reply(reply, lambda: None))
    await asyncio.sleep(0)
    clock.now += 30.0
    reply.set_result("long")
    assert await waiting == "long"
    waiting = await waited(watch, clock, 299)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
