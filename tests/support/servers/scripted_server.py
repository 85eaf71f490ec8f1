"""Servers that answer as they are told: inference servers, raw bytes, a proxy before the API."""

import asyncio
import json
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from email.utils import formatdate
from typing import Any

import aiohttp
from aiohttp import web

from reasoning_gym_environment.demo.policy import Policy
from reasoning_gym_environment.demo.server import (
    Generation,
    PolicyRequest,
    PolicyServer,
    is_probe,
)
from reasoning_gym_environment.demo.site import LocalSite
from reasoning_gym_environment.scoring.channels import split_thought

Change = Callable[[Sequence[Generation]], list[Generation]]
Refusal = Callable[[float], web.HTTPException]
"""What a request gets that comes so many seconds before the next window."""


def changed_last(change: Callable[[Generation], dict[str, Any]]) -> Change:
    """A lie about the last completion."""
    return lambda given: [*given[:-1], given[-1]._replace(**change(given[-1]))]


LIES: dict[str, Change] = {
    "nan": changed_last(lambda last: {"logprobs": [*last.logprobs[:-1], math.nan]}),
    "above 0": changed_last(lambda last: {"logprobs": [*last.logprobs[:-1], 1.0]}),
    "negative token": changed_last(lambda last: {"tokens": [*last.tokens[:-1], -1]}),
}
other_tokens = changed_last(lambda last: {"tokens": [7] * len(last.tokens)})
foreign_token = changed_last(lambda last: {"tokens": [*last.tokens[:-2], 10**6, 5]})
without_a_logprob = changed_last(lambda last: {"logprobs": last.logprobs[:-1]})


def one_fewer(given: Sequence[Generation]) -> list[Generation]:
    return [*given[1:]] if len(given) > 1 else [*given]


def one_more(given: Sequence[Generation]) -> list[Generation]:
    return [*given, given[0]]


def empty(given: Sequence[Generation]) -> list[Generation]:
    """All but the first have no token at all."""
    return [given[0], *(g._replace(text="", tokens=[], logprobs=[]) for g in given[1:])]


def seconds(left: float) -> web.HTTPException:
    return refusal(web.HTTPTooManyRequests, str(math.ceil(left)))


def date(left: float) -> web.HTTPException:
    """Dates are in whole seconds."""
    return refusal(
        web.HTTPTooManyRequests, formatdate(time.time() + left + 1, usegmt=True)
    )


def untold(left: float) -> web.HTTPException:
    return refusal(web.HTTPTooManyRequests)


def unavailable(left: float) -> web.HTTPException:
    return refusal(web.HTTPServiceUnavailable, str(math.ceil(left)))


def refusal(kind: type[web.HTTPException], retry_after: str = "") -> web.HTTPException:
    headers = {"Retry-After": retry_after} if retry_after else {}
    text = '{"error": {"message": "Rate limit reached for requests."}}'
    return kind(text=text, content_type="application/json", headers=headers)


class ScriptedServer(PolicyServer):
    """A policy server that behaves, unless these attributes, which are options too, say otherwise.

    Attributes:
        latency: seconds before each reply.
        failure_rate: share of requests answered with HTTP 500, in [0, 1].
        splits_reasoning: return the thought of chat completions in `reasoning_content`.
        ignores_n: return one completion per request, like some hosted endpoints.
        chat_tokens: return token ids and logprobs of chat completions on request, like vLLM.
        raw_logprobs: return logprobs before temperature, like vLLM by default.
        change: of the completions of each request.
        forgets: so many requests more get no reply.
        allowed: requests, those of the start included, before others get the `refusal`, for
            `window` seconds from the first refusal on; then as many again.
        awake: while it is cleared nothing gets a reply, health probes included.
        failures, refused: requests answered with HTTP 500, and refused, so far.
    """

    latency = failure_rate = 0.0
    splits_reasoning = ignores_n = chat_tokens = raw_logprobs = False
    change: Change | None = None
    forgets = failures = refused = 0
    allowed, window = math.inf, 0.5
    refusal: Refusal = staticmethod(seconds)

    def __init__(
        self, policy: Policy, tokenizer: Any, *, seed: int = 0, **options: Any
    ) -> None:
        super().__init__(policy, tokenizer)
        for name, value in options.items():
            assert hasattr(self, name), name
            setattr(self, name, value)
        self.awake = asyncio.Event()
        self.awake.set()
        self._rng = random.Random(seed)
        self._refuses_since, self._used = math.inf, 0

    async def _complete(self, request: PolicyRequest) -> list[Generation]:
        await self.awake.wait()
        now = time.monotonic()
        if now - self._refuses_since >= self.window:
            self._refuses_since, self._used = math.inf, 0
        if self._used >= self.allowed:
            self.refused += 1
            self._refuses_since = min(self._refuses_since, now)
            raise self.refusal(self._refuses_since + self.window - now)
        self._used += 1
        if self.ignores_n:
            request = request._replace(n=1)
        if self.raw_logprobs:
            request = request._replace(temperature=1.0)
        if is_probe(request):
            return await super()._complete(request)
        if self.forgets:
            self.forgets -= 1
            await asyncio.Event().wait()
        await asyncio.sleep(self.latency)
        if self._rng.random() < self.failure_rate:
            self.requests += 1
            self.failures += 1
            raise web.HTTPInternalServerError(text="a failure that was asked for")
        given = await super()._complete(request)
        return self.change(given) if self.change else given

    async def _health(self, request: web.Request) -> web.Response:
        await self.awake.wait()
        return await super()._health(request)

    def _chat_reply(
        self, body: dict[str, Any], generations: Sequence[Generation]
    ) -> dict[str, Any]:
        reply = super()._chat_reply(body, generations)
        for choice, generation in zip(reply["choices"], generations, strict=True):
            if self.splits_reasoning:
                thought, content = split_thought(generation.text)
                choice["message"] |= {"reasoning_content": thought, "content": content}
            if self.chat_tokens and body.get("return_token_ids"):
                entries = [
                    {"token": "", "logprob": logprob} for logprob in generation.logprobs
                ]
                content = [{**entry, "top_logprobs": [entry]} for entry in entries]
                choice |= {
                    "token_ids": generation.tokens,
                    "logprobs": {"content": content},
                }
                reply["prompt_token_ids"] = self._prompt_ids(body["messages"])
        return reply

    def _prompt_ids(self, messages: list[dict[str, str]]) -> list[int]:
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return list(self._tokenizer.encode(text))


class VllmServer(ScriptedServer):
    """Speaks vLLM's dialect alone."""

    async def _generate(self, request: web.Request) -> web.Response:
        raise web.HTTPNotFound


class SglangServer(ScriptedServer):
    """Speaks SGLang's dialect alone: its `/v1/completions` returns no token ids."""

    async def _completion(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"choices": [{"index": 0, "text": "ok", "finish_reason": "stop"}]}
        )

    async def _tokenize(self, request: web.Request) -> web.Response:
        raise web.HTTPNotFound


@asynccontextmanager
async def serving(routes: Iterable[web.RouteDef], **options: Any) -> AsyncIterator[str]:
    """The URL of an application on 127.0.0.1, without a trailing slash."""
    app = web.Application(**options)
    app.add_routes(routes)
    site = LocalSite(app)
    url = await site.start()
    try:
        yield url
    finally:
        await site.close()


@asynccontextmanager
async def answering(
    replies: Mapping[str, str],
) -> AsyncIterator[tuple[str, list[list[Any]]]]:
    """The URL of a chat endpoint with its version, and the messages of each request.

    Args:
        replies: by question, as the last message has it, whole or in parts.
    """
    asked: list[list[Any]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        asked.append(body["messages"])
        content, streams = body["messages"][-1]["content"], bool(body.get("stream"))
        whole = (
            content
            if isinstance(content, str)
            else "".join(part["text"] for part in content)
        )
        message = {"role": "assistant", "content": replies[whole]}
        part = "delta" if streams else "message"
        reply = {
            "id": f"reply-{len(asked)}",
            "object": "chat.completion" + ".chunk" * streams,
            "created": 0,
            "model": "simulated",
            "choices": [{"index": 0, part: message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
        if not streams:
            return web.json_response(reply)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in (json.dumps(reply), "[DONE]"):
            await response.write(f"data: {event}\n\n".encode())
        return response

    async with serving([web.post("/v1/chat/completions", answer)]) as url:
        yield f"{url}/v1", asked


class Between:
    """What a proxy before Atropos's API does.

    Attributes:
        url: without a trailing slash.
        status: what all requests are answered with; None lets them through.
        largest: bytes of a body; more are refused with 413, as nginx does.
        lies: what it replies in the API's place, by path.
        failures: how many requests were answered with `status`.
    """

    url = ""
    failures = 0
    status: int | None = None
    largest = math.inf

    def __init__(self) -> None:
        self.lies: dict[str, str] = {}


@asynccontextmanager
async def proxy(api_url: str) -> AsyncIterator[Between]:
    """A proxy on 127.0.0.1."""
    between = Between()

    async def pass_on(request: web.Request) -> web.Response:
        body = await request.read()
        if between.status:
            between.failures += 1
            return web.Response(
                status=between.status, text="<h1>no healthy upstream</h1>"
            )
        if request.path in between.lies:
            return web.Response(
                text=between.lies[request.path], content_type="application/json"
            )
        if request.path == "/scored_data" and len(body) > between.largest:
            return web.Response(
                status=413, text="<h1>413 Request Entity Too Large</h1>"
            )
        # aiohttp has undone a compression.
        headers = {"Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession(api_url) as session,
            session.request(
                request.method, request.path, data=body, headers=headers
            ) as response,
        ):
            text, kind = await response.text(), response.content_type
            return web.Response(status=response.status, text=text, content_type=kind)

    async with serving(
        [web.route("*", "/{path:.*}", pass_on)], client_max_size=2**30
    ) as url:
        between.url = url
        yield between


def http(
    body: bytes = b"{}",
    status: str = "200 OK",
    headers: str = "",
    *,
    length: bool = True,
) -> bytes:
    """A whole reply; without a length it ends with the connection."""
    known = f"Content-Length: {len(body)}\r\n" if length else ""
    return (
        f"HTTP/1.1 {status}\r\nConnection: close\r\n{known}{headers}\r\n".encode()
        + body
    )


@asynccontextmanager
async def replying(
    *chunks: bytes, endless: bool = False, pause: float = 0.0
) -> AsyncIterator[str]:
    """The URL of a server that replies with these bytes, whatever it is asked.

    Args:
        endless: repeat the last chunk, with pauses of so many seconds.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"".join(chunks))
            await writer.drain()
            while endless:
                writer.write(chunks[-1])
                await writer.drain()
                await asyncio.sleep(pause)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield "http://{}:{}".format(*server.sockets[0].getsockname()[:2])
