"""The weights under training behind HTTP, as stock vLLM serves a model."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web
from model import CONTEXT, Policy, Sample

WAIT_SECONDS = 0.02
"""How long the first of a batch waits for others."""

AT_ONCE = 128
"""So many completions are sampled together."""


class Request(NamedTuple):
    """What one client asks for, and where it waits for the completions."""

    prompt: list[int]
    n: int
    max_tokens: int
    temperature: float
    done: asyncio.Future[list[Sample]]


class Endpoint:
    """Answers `/v1/completions`, `/v1/models`, `/tokenize` and `/health`."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.queue: asyncio.Queue[Request] = asyncio.Queue()

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/health", self.health),
                web.get("/v1/models", self.models),
                web.post("/tokenize", self.tokenize),
                web.post("/v1/completions", self.completions),
            ]
        )
        return app

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "learner", "max_model_len": CONTEXT}]})

    async def tokenize(self, request: web.Request) -> web.Response:
        text = (await request.json())["prompt"]
        ids = self.policy.tokenizer.encode(text, add_special_tokens=False)
        return web.json_response({"tokens": ids})

    async def completions(self, request: web.Request) -> web.Response:
        body = await request.json()
        done: asyncio.Future[list[Sample]] = asyncio.get_running_loop().create_future()
        prompt = body["prompt"]
        max_tokens = min(body["max_tokens"], CONTEXT - len(prompt))
        await self.queue.put(Request(prompt, body["n"], max_tokens, body["temperature"], done))
        end = self.policy.tokenizer.eos_token_id
        choices = [choice(index, s, prompt, end) for index, s in enumerate(await done)]
        return web.json_response({"model": body["model"], "choices": choices})

    async def work(self) -> None:
        """Sample what was asked for, many requests at once, for ever."""
        while True:
            asked = [await self.queue.get()]
            await asyncio.sleep(WAIT_SECONDS)
            while not self.queue.empty() and sum(r.n for r in asked) < AT_ONCE:
                asked.append(self.queue.get_nowait())
            by_temperature = defaultdict(list)
            for each in asked:
                by_temperature[each.temperature].append(each)
            for alike in by_temperature.values():
                await self.sample(alike)

    async def sample(self, requests: list[Request]) -> None:
        samples = iter(
            await asyncio.to_thread(
                self.policy.sample,
                [request.prompt for request in requests for _ in range(request.n)],
                max_tokens=max(request.max_tokens for request in requests),
                temperature=requests[0].temperature,
            )
        )
        for request in requests:
            own = [cut(next(samples), request.max_tokens) for _ in range(request.n)]
            if not request.done.done():  # a client that gave up
                request.done.set_result(own)


def cut(sample: Sample, most: int) -> Sample:
    """Leave at most so many tokens."""
    return Sample(*(part[:most] for part in sample))


def choice(index: int, sample: Sample, prompt: list[int], end: int) -> dict[str, Any]:
    """Write a completion as vLLM does on `return_token_ids` and `logprobs`."""
    return {
        "index": index,
        "text": "",
        "finish_reason": "stop" if sample.tokens[-1:] == [end] else "length",
        "token_ids": sample.tokens,
        "prompt_token_ids": prompt,
        "logprobs": {
            "token_logprobs": sample.logprobs,
            "top_logprobs": [{"": best} for best in sample.best],
        },
    }


@asynccontextmanager
async def served(policy: Policy) -> AsyncIterator[str]:
    """Serve the policy while the block runs; gives the URL."""
    endpoint = Endpoint(policy)
    runner = web.AppRunner(endpoint.app(), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    work = asyncio.create_task(endpoint.work())
    try:
        yield "http://{}:{}".format(*runner.addresses[0])
    finally:
        work.cancel()
        await asyncio.wait([work])
        await runner.cleanup()
