"""What rate limits and random refusals of a real HTTP server cost.

    python benchmarks/rate_limits.py [--requests 720] [--concurrency 16] [--seconds 0.2]

Sends requests to servers that refuse some: at random, those beyond so many in flight, or those
beyond so many in a period, each with and without Retry-After. Prints seconds, refusals, and the
requests at once at the end of each; `free` is the same without a refusal.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import random
import time
from collections.abc import Callable
from types import SimpleNamespace

from aiohttp import web

from reasoning_gym_environment.demo.site import LocalSite
from reasoning_gym_environment.inference.dialects import GenerationRequest
from reasoning_gym_environment.inference.failover import Failover
from reasoning_gym_environment.inference.servers import ServerClient

REQUEST = GenerationRequest(
    model="m",
    prompt=(),
    messages=[{"role": "user", "content": "?"}],
    n=1,
    max_tokens=16,
    temperature=1.0,
    top_p=1.0,
    vocabulary=0,
)
REPLY = {
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "1"},
        }
    ]
}


class Server:
    """A chat endpoint that answers after some seconds, or refuses with 429.

    Args:
        refuses: returns the Retry-After of a refusal in seconds, 0 for one without, or None.
    """

    def __init__(
        self, seconds: float, refuses: Callable[[Server], float | None]
    ) -> None:
        self.in_flight = self.most_in_flight = self.answered = self.refused = 0
        self._seconds = seconds
        self._refuses = refuses

    async def start(self) -> LocalSite:
        app = web.Application()
        app.add_routes([web.post("/v1/chat/completions", self._answer)])
        return LocalSite(app)

    async def _answer(self, request: web.Request) -> web.Response:
        await request.read()
        retry_after = self._refuses(self)
        if retry_after is not None:
            self.refused += 1
            headers = (
                {"Retry-After": str(math.ceil(retry_after))} if retry_after else {}
            )
            return web.Response(status=429, text="too fast", headers=headers)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self._seconds)
        finally:
            self.in_flight -= 1
        self.answered += 1
        return web.json_response(REPLY)


def at_random(share: float, retry_after: float) -> Callable[[Server], float | None]:
    rng = random.Random(0)
    return lambda server: retry_after if rng.random() < share else None


def in_flight(most: int, retry_after: float) -> Callable[[Server], float | None]:
    return lambda server: retry_after if server.in_flight >= most else None


def in_a_period(
    most: int, period: float, *, says_when: bool
) -> Callable[[Server], float | None]:
    """Refuse what comes after `most` requests until the period is over."""
    begin, count = -math.inf, 0

    def refuses(server: Server) -> float | None:
        nonlocal begin, count
        now = time.monotonic()
        if now >= begin + period:
            begin, count = now, 0
        count += 1
        if count <= most:
            return None
        return begin + period - now if says_when else 0.0

    return refuses


async def measure(
    name: str,
    refuses: Callable[[Server], float | None],
    *,
    requests: int,
    concurrency: int,
    seconds: float,
) -> None:
    server = Server(seconds, refuses)
    site = await server.start()
    url = await site.start()
    config = SimpleNamespace(
        server_type="openai",
        base_url=f"{url}/v1",
        model_name="m",
        api_key="x",
        timeout=600.0,
        num_max_requests_at_once=concurrency,
        num_requests_for_eval=concurrency,
        n_kwarg_is_ignored=False,
    )
    client = ServerClient(config)
    failover = Failover([client])
    begin = time.monotonic()
    await asyncio.gather(
        *(failover.send(lambda one: one.sample(REQUEST)) for _ in range(requests))
    )
    wall = time.monotonic() - begin
    await client.close()
    await site.close()
    assert server.answered == requests
    print(
        f"| {name} | {wall:.1f} | {server.refused} | {server.refused / requests:.1%} | "
        f"{server.most_in_flight} |",
        flush=True,
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=720)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--only", default="", help="names that contain this text")
    options = parser.parse_args()
    logging.getLogger("reasoning_gym_environment").addHandler(logging.NullHandler())
    servers = {
        "free": lambda server: None,
        "15 % at random": at_random(0.15, 0.0),
        "15 % at random, Retry-After: 1": at_random(0.15, 1.0),
        "30 % at random": at_random(0.3, 0.0),
        "10 in flight": in_flight(10, 0.0),
        "10 in flight, Retry-After: 1": in_flight(10, 1.0),
        "4 in flight": in_flight(4, 0.0),
        "1 in flight": in_flight(1, 0.0),
        "120 in 6 s": in_a_period(120, 6.0, says_when=False),
        "120 in 6 s, Retry-After": in_a_period(120, 6.0, says_when=True),
    }
    print("| server | seconds | refused | share | most in flight |\n|" + " --- |" * 5)
    for name, refuses in servers.items():
        if options.only in name:
            await measure(
                name,
                refuses,
                requests=options.requests,
                concurrency=options.concurrency,
                seconds=options.seconds,
            )


if __name__ == "__main__":
    asyncio.run(main())
