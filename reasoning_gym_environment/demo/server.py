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
"""Answers requests for one token: clients' health probes every second, and those of a start."""

_SHUTDOWN_SECONDS = 0.5
"""How long requests that are under way may take to finish when the server closes."""

T = TypeVar("T")


class PolicyServer:
    """Serves a policy on 127.0.0.1 while it is entered (`async with`), or from `start` to `close`.

    It speaks OpenAI (`/v1/chat/completions`), stock vLLM (`/v1/completions`, `/tokenize`), SGLang
    and atroposlib's vLLM (`/generate`), and TRL before 1.11 (`/generate/`). Requests for a single
    token, health probes and those of a start, never fail, never reach the policy and are not
    counted.

    Args:
        tokenizer: of transformers, with a ChatML template.
        port: 0 takes a free one.
        latency: seconds before each reply.
        failure_rate: share of requests answered with HTTP 500, in [0, 1].
        seed: decides which ones.
        splits_reasoning: chat completions carry the thought in `reasoning_content`.
        ignores_n: every request gets one completion, as some hosted endpoints do.
        chat_tokens: chat completions carry token ids and logprobs on request, as vLLM's do.
        stock_vllm: it has the paths of `vllm serve`; without, those of atroposlib's vLLM alone.
        raw_logprobs: logprobs are those before temperature, as vLLM's are by default.

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
        chat_tokens: bool = False,
        stock_vllm: bool = True,
        raw_logprobs: bool = False,
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
        self._chat_tokens = chat_tokens
        self._stock_vllm = stock_vllm
        self._raw_logprobs = raw_logprobs

    async def start(self) -> PolicyServer:
        """For callers that can't use `async with`, a notebook say; they `close` it later."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/health", self._health),
                web.post("/v1/chat/completions", self._chat),
                *(self._stock_routes() if self._stock_vllm else []),
                web.post("/generate", self._generate),
                web.post("/generate/", self._trl_generate),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self.url = "http://{}:{}".format(*self._runner.addresses[0])
        return self

    def _stock_routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/completions", self._completion),
            web.post("/tokenize", self._tokenize),
        ]

    async def close(self) -> None:
        await self._runner.cleanup()

    async def __aenter__(self) -> PolicyServer:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def _fulfil(self, order: wire.Order) -> list[Generation]:
        """The completions of all questions in turn; raises HTTP 500 for the share that fails."""
        policy = self._policy
        if order.max_tokens == 1:
            policy = _PROBE
        else:
            self.requests += 1
            await asyncio.sleep(self._latency)
            if self._rng.random() < self._failure_rate:
                self.failures += 1
                raise web.HTTPInternalServerError(text="a failure that was asked for")
        if self._ignores_n:
            order = order._replace(n=1)
        return generate(policy, self._tokenizer, order, raw_logprobs=self._raw_logprobs)

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        generations = await self._fulfil(wire.chat_order(body))
        reply = wire.chat_reply(generations, body["model"], splits_reasoning=self._splits_reasoning)
        if self._chat_tokens and body.get("return_token_ids"):
            reply = wire.with_chat_tokens(reply, generations, self._prompt_ids(body["messages"]))
        return web.json_response(reply)

    def _prompt_ids(self, messages: list[dict[str, str]]) -> list[int]:
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return list(self._tokenizer.encode(text))

    async def _completion(self, request: web.Request) -> web.Response:
        body = await request.json()
        generations = await self._fulfil(wire.completion_order(body, self._tokenizer))
        reply = wire.completion_reply(generations, body["model"])
        if body.get("return_token_ids"):
            reply = wire.with_completion_tokens(reply, generations, self._ids(body["prompt"]))
        return web.json_response(reply)

    def _ids(self, prompt: str | list[int]) -> list[int]:
        return self._tokenizer.encode(prompt) if isinstance(prompt, str) else prompt

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response({"tokens": self._ids(body["prompt"])})

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
        generations = await self._fulfil(wire.trl_order(body, self._tokenizer))
        prompt_ids = [self._ids(prompt) for prompt in body["prompts"]]
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
