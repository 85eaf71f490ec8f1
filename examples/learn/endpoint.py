"""The weights under training behind HTTP, as stock vLLM serves a model."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web
from model import Policy, Sample

WAIT_SECONDS = 0.02
"""Time that the first request of a batch waits for others."""

AT_ONCE = 128
"""Most completions sampled together."""


class Request(NamedTuple):
    """A client's request, and the future of its completions."""

    prompt: list[int]
    n: int
    max_tokens: int
    temperature: float
    top_p: float
    done: asyncio.Future[list[Sample]]


class Endpoint:
    """Answers `/v1/completions`, `/v1/models`, `/tokenize` and `/health`.

    Attributes:
        url: without a trailing slash; set once it serves.
        sampled: number of completions so far.
    """

    def __init__(self, policy: Policy) -> None:
        self.url = ""
        self.sampled = 0
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
        return web.json_response(
            {"data": [{"id": "learner", "max_model_len": self.policy.context}]}
        )

    async def tokenize(self, request: web.Request) -> web.Response:
        text = (await request.json())["prompt"]
        ids = self.policy.tokenizer.encode(text, add_special_tokens=False)
        return web.json_response({"tokens": ids})

    async def completions(self, request: web.Request) -> web.Response:
        body = await request.json()
        prompt = body["prompt"]
        choices = [
            {
                "index": index,
                "prompt_token_ids": prompt,
                **choice(sample, self.policy.tokenizer),
            }
            for index, sample in enumerate(await self.samples(prompt, body))
        ]
        return web.json_response({"model": body["model"], "choices": choices})

    async def samples(self, prompt: list[int], body: Mapping[str, Any]) -> list[Sample]:
        """Return the completions that a request asks for."""
        done: asyncio.Future[list[Sample]] = asyncio.get_running_loop().create_future()
        asked = Request(
            prompt=prompt,
            n=body["n"],
            max_tokens=min(body["max_tokens"], self.policy.context - len(prompt)),
            temperature=body["temperature"],
            top_p=body.get("top_p", 1.0),
            done=done,
        )
        await self.queue.put(asked)
        return await done

    async def work(self) -> None:
        """Sample for all requests in batches, forever."""
        while True:
            asked = [await self.queue.get()]
            await asyncio.sleep(WAIT_SECONDS)
            while not self.queue.empty() and sum(r.n for r in asked) < AT_ONCE:
                asked.append(self.queue.get_nowait())
            by_distribution = defaultdict(list)
            for each in asked:
                by_distribution[each.temperature, each.top_p].append(each)
            for alike in by_distribution.values():
                await self.sample(alike)

    async def sample(self, requests: list[Request]) -> None:
        """Answer requests of one temperature and top_p; on a failure, clients get status 500."""
        try:
            samples = await asyncio.to_thread(
                self.policy.sample,
                [request.prompt for request in requests for _ in range(request.n)],
                max_tokens=max(request.max_tokens for request in requests),
                temperature=requests[0].temperature,
                top_p=requests[0].top_p,
            )
        except Exception as error:  # noqa: BLE001 - clients get it, and say it
            for request in requests:
                if not request.done.done():
                    request.done.set_exception(error)
            return
        for request in requests:
            own, samples = samples[: request.n], samples[request.n :]
            self.sampled += request.n
            if not request.done.done():  # nobody waits where a client gave up
                request.done.set_result(
                    [cut(sample, request.max_tokens) for sample in own]
                )


def cut(sample: Sample, most: int) -> Sample:
    """Truncate a completion to `most` tokens."""
    return Sample(sample.tokens[:most], sample.logprobs[:most], sample.best[:most])


def choice(sample: Sample, tokenizer: Any) -> dict[str, Any]:
    """Return a completion as vLLM does for `return_token_ids` and `logprobs`."""
    ended = sample.tokens[-1:] == [tokenizer.eos_token_id]
    return {
        "text": tokenizer.decode(sample.tokens, skip_special_tokens=True),
        "finish_reason": "stop" if ended else "length",
        "token_ids": sample.tokens,
        "logprobs": {
            "token_logprobs": sample.logprobs,
            "top_logprobs": [{"": best} for best in sample.best],
        },
    }


@asynccontextmanager
async def served(
    policy: Policy, make: Callable[[Policy], Endpoint] = Endpoint
) -> AsyncIterator[Endpoint]:
    """Serve the policy during the block, by an endpoint of this kind."""
    endpoint = make(policy)
    runner = web.AppRunner(endpoint.app(), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    endpoint.url = "http://{}:{}".format(*runner.addresses[0])
    work = asyncio.create_task(endpoint.work())
    try:
        yield endpoint
    finally:
        work.cancel()
        await asyncio.wait([work])
        await runner.cleanup()
