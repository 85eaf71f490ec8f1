"""A policy behind the HTTP endpoints that Atropos's inference clients expect."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aiohttp import web

from . import wire
from .policy import Policy, ScriptedPolicy
from .wire import Generation, generate

_PROBE = ScriptedPolicy(["ok"])
"""Answers the clients' health probes, which ask for one token every second."""

_SHUTDOWN_SECONDS = 0.5
"""How long requests that are under way may take to finish when the server closes."""

T = TypeVar("T")


class PolicyServer:
    """Serves a policy on 127.0.0.1 while it is entered (`async with`), or from `start` to `close`.

    It speaks OpenAI (`/v1/chat/completions`, `/v1/completions`), vLLM and SGLang (`/generate`)
    and TRL (`/generate/`). Clients' health probes, which ask for a single token, never fail,
    never reach the policy and are not counted.

    Args:
        tokenizer: of transformers, with a ChatML template.
        port: 0 takes a free one.
        latency: seconds before each reply.
        failure_rate: share of requests answered with HTTP 500, in [0, 1].
        seed: decides which ones.
        splits_reasoning: chat completions carry the thought in `reasoning_content`.
        ignores_n: every request gets one completion, as some hosted endpoints do.

    Attributes:
        url: without a trailing slash; set once it serves.
        requests: how many came, failures included.
        failures: how many were answered with HTTP 500.
    """

    def __init__(
        self,
        policy: Policy,
        tokenizer: Any,
        *,
        port: int = 0,
        latency: float = 0.0,
        failure_rate: float = 0.0,
        seed: int = 0,
        splits_reasoning: bool = False,
        ignores_n: bool = False,
    ) -> None:
        self.url = ""
        self.requests = 0
        self.failures = 0
        self._policy = policy
        self._tokenizer = tokenizer
        self._port = port
        self._latency = latency
        self._failure_rate = failure_rate
        self._rng = random.Random(seed)
        self._splits_reasoning = splits_reasoning
        self._ignores_n = ignores_n

    async def start(self) -> PolicyServer:
        """For callers that can't use `async with`, a notebook say; they `close` it later."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/health", self._health),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completion),
                web.post("/generate", self._generate),
                web.post("/generate/", self._trl_generate),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self.url = "http://{}:{}".format(*self._runner.addresses[0])
        return self

    async def close(self) -> None:
        await self._runner.cleanup()

    async def __aenter__(self) -> PolicyServer:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def _fulfil(self, order: wire.Order) -> list[Generation]:
        """The completions of all questions in turn; raises HTTP 500 for the share that fails."""
        policy, n = self._policy, 1 if self._ignores_n else order.n
        if order.max_tokens == 1:
            policy = _PROBE
        else:
            self.requests += 1
            await asyncio.sleep(self._latency)
            if self._rng.random() < self._failure_rate:
                self.failures += 1
                raise web.HTTPInternalServerError(text="a failure that was asked for")
        return [
            generation
            for question in order.questions
            for generation in generate(
                policy, self._tokenizer, question, n=n, max_tokens=order.max_tokens
            )
        ]

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        generations = await self._fulfil(wire.chat_order(body))
        reply = wire.chat_reply(generations, body["model"], splits_reasoning=self._splits_reasoning)
        return web.json_response(reply)

    async def _completion(self, request: web.Request) -> web.Response:
        body = await request.json()
        generations = await self._fulfil(wire.completion_order(body))
        return web.json_response(wire.completion_reply(generations, body["model"]))

    async def _generate(self, request: web.Request) -> web.Response:
        """vLLM and SGLang share the path; their requests differ."""
        body = await request.json()
        if "input_ids" in body:
            generations = await self._fulfil(wire.sglang_order(body, self._tokenizer))
            return web.json_response(wire.sglang_reply(generations))
        generations = await self._fulfil(wire.vllm_order(body, self._tokenizer))
        return web.json_response(wire.vllm_reply(generations))

    async def _trl_generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        generations = await self._fulfil(wire.trl_order(body))
        prompt_ids = [self._tokenizer.encode(prompt) for prompt in body["prompts"]]
        return web.json_response(wire.trl_reply(generations, prompt_ids))


@contextmanager
def serve_in_thread(server: PolicyServer) -> Iterator[PolicyServer]:
    """Serve from an event loop on a thread, for callers that have none running."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="policy-server")
    thread.start()

    def wait_for(coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    try:
        wait_for(server.start())
        try:
            yield server
        finally:
            wait_for(server.close())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
