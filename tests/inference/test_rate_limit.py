"""Refusals because of a rate limit: what they ask for, who waits how long, and who goes on."""

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from asked_completions import REQUEST
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from clock import Clock
from multidict import CIMultiDict, CIMultiDictProxy
from scripted_server import (
    Refusal,
    ScriptedServer,
    date,
    seconds,
    serving,
    unavailable,
    untold,
)
from yarl import URL

from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.inference.client import InferenceClient
from reasoning_gym_environment.inference.dialects import SamplingParams
from reasoning_gym_environment.inference.failover import Failover
from reasoning_gym_environment.inference.rate_limit import (
    RECENT_REQUESTS,
    RUN_LENGTH,
    RateLimit,
    is_rate_limited,
    retry_after,
)
from reasoning_gym_environment.inference.servers import ServerClient
from reasoning_gym_environment.util.outages import UnreachableError

POLICY = ScriptedPolicy(["<answer>1</answer>"])
NOON = "Mon, 23 Nov 2026 12:00:00 GMT"


def refusal(status: int = 429, **headers: str) -> aiohttp.ClientResponseError:
    """What a client raises for a reply with these headers, named as arguments."""
    named = CIMultiDict(
        {name.replace("_", "-"): value for name, value in headers.items()}
    )
    url = URL("http://h/v1/chat/completions")
    asked = aiohttp.RequestInfo(url, "POST", CIMultiDictProxy(CIMultiDict()), url)
    return aiohttp.ClientResponseError(
        asked, (), status=status, message="too fast", headers=CIMultiDictProxy(named)
    )


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Retry_After": "60"}, 60.0),
        ({"retry_after": " 1.5 "}, 1.5),
        ({"Retry_After": "9" * 400}, float("inf")),
        ({"Retry_After": "Mon, 23 Nov 2026 12:01:00 GMT", "Date": NOON}, 60.0),
        ({"Retry_After": "Mon, 23 Nov 2026 11:00:00 GMT", "Date": NOON}, 0.0),
        ({"Retry_After": "Mon, 23 Nov 2026 12:01:00 -0000", "Date": NOON}, 60.0),
        ({}, None),
        ({"Retry_After": ""}, None),
        ({"Retry_After": "-5"}, None),
        ({"Retry_After": "nan"}, None),
        ({"Retry_After": "inf"}, None),
        ({"Retry_After": "soon"}, None),
        ({"Retry_After": "Mon, 99 Nov 99999 99:01:00 GMT"}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(
    headers: dict[str, str], expected: float | None
) -> None:
    assert retry_after(refusal(**headers)) == expected


def test_a_date_without_the_replys_own_counts_from_now() -> None:
    asked = retry_after(refusal(Retry_After=formatdate(time.time() + 60, usegmt=True)))
    assert 55 < (asked or 0.0) <= 60


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (refusal(429), True),
        (refusal(503, Retry_After="1"), True),
        (refusal(503), False),
        (refusal(500, Retry_After="1"), False),
        (refusal(401, Retry_After="1"), False),
        (ConnectionError("gone"), False),
    ],
)
def test_a_rate_limit_is_told_from_other_failures(
    error: Exception, expected: bool
) -> None:
    assert is_rate_limited(error) is expected


async def refuse(limit: RateLimit, error: aiohttp.ClientResponseError) -> None:
    with pytest.raises(aiohttp.ClientResponseError):
        async with limit.turn():
            raise error


async def accept(limit: RateLimit) -> None:
    async with limit.turn():
        pass


async def test_an_absurd_pause_is_bounded_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limit = RateLimit("http://h/v1", clock=Clock())
    await refuse(limit, refusal(Retry_After="86400000"))
    assert 600 <= limit.pause <= 660
    assert caplog.messages[0].startswith(
        "Rate limit: 429 Too Many Requests from http://h/v1/chat/completions: too fast; it asks "
        "for 8.64e+07 s; pausing for 6"
    )
    assert caplog.messages[0].endswith(" s")


async def test_a_pause_that_nobody_names_doubles_until_a_success() -> None:
    limit, pauses = RateLimit("http://h/v1", clock=(clock := Clock())), []
    for _ in range(3):
        await refuse(limit, refusal())
        pauses.append(limit.pause)
        clock.now += limit.pause
    await accept(limit)
    for _ in range(RUN_LENGTH):
        await refuse(limit, refusal())
    pauses.append(limit.pause)
    for pause, least in zip(pauses, (1, 2, 4, 1), strict=True):
        assert least <= pause <= 1.1 * least


async def test_refusals_of_a_round_halve_concurrency_once_and_success_raises_it() -> (
    None
):
    limit = RateLimit("http://h/v1", clock=(clock := Clock()))
    all_sent, most, now = asyncio.Event(), 0, 0

    async def refused() -> None:
        async with limit.turn():
            await all_sent.wait()
            raise refusal()

    async def answered() -> None:
        nonlocal most, now
        async with limit.turn():
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.01)
            now -= 1

    round_of_requests = [asyncio.create_task(refused()) for _ in range(16)]
    await asyncio.sleep(0)
    clock.now += 1.0
    all_sent.set()
    await asyncio.gather(*round_of_requests, return_exceptions=True)
    clock.now += limit.pause
    await asyncio.gather(*(answered() for _ in range(8)))
    assert most == 6
    await asyncio.gather(*(answered() for _ in range(RECENT_REQUESTS)))
    assert most == 6
    await asyncio.gather(*(answered() for _ in range(50)))
    assert 8 <= most <= 12


async def test_requests_fail_when_all_are_refused_for_too_long() -> None:
    limit = RateLimit(
        "http://h/v1", first_pause=0.01, patience=0.1, clock=Clock(look=0.001)
    )
    refusals = 0

    async def request() -> None:
        nonlocal refusals
        refusals += 1
        raise refusal()

    requests = (limit.until_answered(request) for _ in range(5))
    ended = asyncio.gather(*requests, return_exceptions=True)
    ends = await asyncio.wait_for(ended, timeout=60)
    assert {type(end) for end in ends} == {UnreachableError}
    assert str(ends[0]).startswith(
        "the inference server at http://h/v1 has refused all requests"
    )
    assert 2 < refusals < 15
    while limit.pause:
        await asyncio.sleep(0.01)
    await accept(limit)  # after the pause the server is asked again
    await refuse(limit, refusal())


async def test_time_without_requests_is_not_a_time_of_refusals() -> None:
    limit = RateLimit(
        "http://h/v1", first_pause=0.01, patience=120.0, clock=(clock := Clock())
    )
    await refuse(limit, refusal())
    clock.now += 121.0
    await refuse(limit, refusal())
    waiting = asyncio.create_task(accept(limit))
    await asyncio.sleep(0)
    clock.now += limit.pause
    await asyncio.wait_for(waiting, timeout=60)


async def test_a_cancelled_request_gives_up_its_place() -> None:
    limit = RateLimit("http://h/v1", first_pause=0.05)
    await refuse(limit, refusal())
    waiting = [asyncio.create_task(accept(limit)) for _ in range(3)]
    await asyncio.sleep(0.01)
    for task in waiting[:2]:
        task.cancel()
    await asyncio.wait_for(waiting[2], timeout=60)


async def test_a_refusal_after_a_success_pauses_only_its_request() -> None:
    limit = RateLimit("http://h/v1", clock=Clock())
    await accept(limit)
    await refuse(limit, refusal(Retry_After="30"))
    assert limit.pause == 0.0
    assert 30 <= limit.own_pause(refusal(Retry_After="30")) <= 33


class Endpoint:
    """A chat endpoint that refuses what it is told to, and counts.

    Args:
        refuses: whether the request with this number is refused, with so many in flight.

    Attributes:
        in_flight: for each request, how many there are with it.
    """

    def __init__(self, refuses: Callable[[int, int], bool]) -> None:
        self.in_flight: list[int] = []
        self.refused: list[int] = []
        self._refuses = refuses
        self._now = 0

    async def answer(self, request: web.Request) -> web.Response:
        await request.read()
        number = len(self.in_flight)
        self.in_flight.append(self._now + 1)
        if self._refuses(number, self._now):
            self.refused.append(number)
            raise untold(0.0)
        self._now += 1
        await asyncio.sleep(0.02)
        self._now -= 1
        return web.json_response({"choices": [{"message": {"content": "1"}}]})


async def ask(endpoint: Endpoint, times: int) -> RateLimit:
    """Send so many requests, 16 at once, and return what held them back."""
    async with serving([web.post("/v1/chat/completions", endpoint.answer)]) as url:
        asked = client(url, num_requests_for_eval=16)
        await send(Failover([asked]), times)
        await asked.close()
    return asked.rate_limit


async def test_refusals_at_random_hold_no_other_requests_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rng = random.Random(0)
    endpoint = Endpoint(lambda number, now: number > 16 and rng.random() < 0.15)
    limit = await ask(endpoint, 400)
    assert len(endpoint.refused) > 40
    assert statistics.mean(endpoint.in_flight) > 6
    assert limit.pause == 0.0
    assert "pausing" not in caplog.text


@pytest.mark.parametrize("most", [1, 4, 10])
async def test_a_limit_of_requests_in_flight_is_found_and_kept(most: int) -> None:
    endpoint = Endpoint(lambda number, now: now >= most)
    await ask(endpoint, 200)
    at_start = 24  # 16 come at once, and half as many after a pause
    late = [number for number in endpoint.refused if number > at_start]
    assert len(endpoint.refused) < 60
    assert len(late) < 0.15 * 200


async def test_a_used_up_period_costs_few_refusals() -> None:
    begin = 0.0

    def refuses(number: int, now: int) -> bool:
        nonlocal begin
        if number == 50:
            begin = time.monotonic()
        return number >= 50 and time.monotonic() < begin + 1.0

    endpoint = Endpoint(refuses)
    await ask(endpoint, 100)
    assert RUN_LENGTH <= len(endpoint.refused) < 50


def client(url: str, **settings: int) -> ServerClient:
    config = APIServerConfig(
        server_type="openai", base_url=f"{url}/v1", model_name="m", **settings
    )
    made = ServerClient(config)
    made.rate_limit = RateLimit(url, first_pause=0.05)
    return made


async def send(failover: Failover, times: int) -> list[Any]:
    sent = (
        failover.send(lambda server: server.sample(REQUEST), "eval")
        for _ in range(times)
    )
    return await asyncio.wait_for(asyncio.gather(*sent), timeout=120)


@pytest.mark.parametrize("kind", [seconds, date, untold, unavailable])
async def test_all_requests_are_answered_and_few_are_refused(
    kind: Refusal, tokenizer: Any
) -> None:
    async with ScriptedServer(POLICY, tokenizer, allowed=20, refusal=kind) as server:
        asked = client(server.url)
        answers = await send(Failover([asked]), 60)
        await asked.close()
    assert len(answers) == server.requests == 60
    assert 0 < server.refused < 100  # 40 of the first 60, which come at once


async def test_a_group_beyond_the_limit_is_completed_where_n_is_ignored(
    tokenizer: Any,
) -> None:
    limits = {"allowed": 3, "window": 0.2, "refusal": untold}
    async with ScriptedServer(POLICY, tokenizer, ignores_n=True, **limits) as server:
        asked = client(server.url)
        inference = InferenceClient([asked], None, system_prompt="")
        sampling = SamplingParams(temperature=1.0, top_p=1.0, split="eval")
        for _ in range(2):
            group = inference.sample("?", n=8, length_limit=50, sampling=sampling)
            assert len(await asyncio.wait_for(group, timeout=30)) == 8
        await inference.close()
    assert server.requests == 16


async def test_a_limited_server_leaves_requests_to_the_others(tokenizer: Any) -> None:
    async with (
        ScriptedServer(POLICY, tokenizer, allowed=2, window=60) as limited,
        PolicyServer(POLICY, tokenizer) as free,
    ):
        both = [client(limited.url), client(free.url)]
        failover = Failover(both)
        await send(failover, 20)
        assert failover.waiting == ""
        await asyncio.gather(*(each.close() for each in both))
    assert Counter(limited=limited.requests, free=free.requests) == {
        "limited": 2,
        "free": 18,
    }


async def test_small_requests_of_the_start_wait_too(tokenizer: Any) -> None:
    async with ScriptedServer(POLICY, tokenizer, allowed=1, window=0.3) as server:
        asked = client(server.url)
        probes = (asked.probe(asked.dialect, REQUEST) for _ in range(3))
        await asyncio.wait_for(asyncio.gather(*probes), timeout=60)
        await asked.close()
    assert server.requests == 3
    assert server.refused >= 2


async def test_the_start_goes_on_without_a_limited_server_if_another_works(
    tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        ScriptedServer(POLICY, tokenizer, allowed=0, window=60) as limited,
        PolicyServer(POLICY, tokenizer) as free,
    ):
        both = [client(limited.url), client(free.url)]
        inference = InferenceClient(both, None, system_prompt="")
        sampling = SamplingParams(temperature=1.0, top_p=1.0, split="train")
        begun = inference.require_servers(0.0, length_limit=50, sampling=sampling)
        await asyncio.wait_for(begun, timeout=60)
        await inference.close()
    assert (
        "Starting without some servers: no answer from the inference server at"
        in caplog.text
    )
    assert "because of its rate limit: 429 Too Many Requests" in caplog.text


async def test_a_pause_is_described_with_its_end(tokenizer: Any) -> None:
    async with ScriptedServer(POLICY, tokenizer, allowed=0, window=60) as server:
        asked = client(server.url)
        failover = Failover([asked])
        waiting = asyncio.create_task(send(failover, 1))
        while not failover.waiting:
            await asyncio.sleep(0.01)
        until = time.strftime(
            "%H:%M:%S", time.localtime(time.time() + asked.rate_limit.pause)
        )
        assert (
            failover.waiting
            == f"waiting until {until} for the rate limit of {server.url}"
        )
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asked.close()
