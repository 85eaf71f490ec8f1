"""Policy servers with options, and one that lies, loses requests or goes silent on demand."""

import asyncio
import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from reasoning_gym_environment.demo.policy import Policy
from reasoning_gym_environment.demo.server import (
    Generation,
    PolicyRequest,
    PolicyServer,
    is_probe,
)
from reasoning_gym_environment.scoring.extraction import split_thought

Change = Callable[[Sequence[Generation]], list[Generation]]


def with_logprob(value: float) -> Change:
    """A lie: the last logprob of the last completion."""

    def change(given: Sequence[Generation]) -> list[Generation]:
        last = given[-1]
        return [*given[:-1], dataclasses.replace(last, logprobs=[*last.logprobs[:-1], value])]

    return change


def with_foreign_token(given: Sequence[Generation]) -> list[Generation]:
    last = given[-1]
    return [*given[:-1], dataclasses.replace(last, tokens=[*last.tokens[:-1], 10**6])]


def without_a_logprob(given: Sequence[Generation]) -> list[Generation]:
    last = given[-1]
    return [*given[:-1], dataclasses.replace(last, logprobs=last.logprobs[:-1])]


def one_fewer(given: Sequence[Generation]) -> list[Generation]:
    return [*given[1:]] if len(given) > 1 else [*given]


def one_more(given: Sequence[Generation]) -> list[Generation]:
    return [*given, given[0]]


def empty(given: Sequence[Generation]) -> list[Generation]:
    """All but the first have no token at all."""
    return [given[0], *(dataclasses.replace(g, text="", tokens=[], logprobs=[]) for g in given[1:])]


LIES: dict[str, Change] = {
    "nan": with_logprob(math.nan),
    "above 0": with_logprob(1.0),
    "foreign token": with_foreign_token,
}


class ConfigurableServer(PolicyServer):
    """A policy server with the habits of other endpoints.

    Args:
        latency: seconds before each reply.
        failure_rate: share of requests answered with HTTP 500, in [0, 1].
        seed: of the failures.
        splits_reasoning: return the thought of chat completions in `reasoning_content`.
        ignores_n: return one completion per request, like some hosted endpoints.
        chat_tokens: return token ids and logprobs of chat completions on request, like vLLM.
        raw_logprobs: return logprobs before temperature, like vLLM by default.

    Attributes:
        failures: requests answered with HTTP 500 so far.
    """

    def __init__(
        self,
        policy: Policy,
        tokenizer: Any,
        *,
        latency: float = 0.0,
        failure_rate: float = 0.0,
        seed: int = 0,
        splits_reasoning: bool = False,
        ignores_n: bool = False,
        chat_tokens: bool = False,
        raw_logprobs: bool = False,
    ) -> None:
        super().__init__(policy, tokenizer)
        self.failures = 0
        self._latency = latency
        self._failure_rate = failure_rate
        self._rng = random.Random(seed)
        self._splits_reasoning = splits_reasoning
        self._ignores_n = ignores_n
        self._chat_tokens = chat_tokens
        self._raw_logprobs = raw_logprobs

    async def _complete(self, request: PolicyRequest) -> list[Generation]:
        if self._ignores_n:
            request = request._replace(n=1)
        if self._raw_logprobs:
            request = request._replace(temperature=1.0)
        if not is_probe(request):
            await asyncio.sleep(self._latency)
            if self._rng.random() < self._failure_rate:
                self.requests += 1
                self.failures += 1
                raise web.HTTPInternalServerError(text="a failure that was asked for")
        return await super()._complete(request)

    def _chat_reply(
        self, body: dict[str, Any], generations: Sequence[Generation]
    ) -> dict[str, Any]:
        reply = super()._chat_reply(body, generations)
        for choice, generation in zip(reply["choices"], generations, strict=True):
            if self._splits_reasoning:
                thought, content = split_thought(generation.text)
                choice["message"] |= {"reasoning_content": thought, "content": content}
            if self._chat_tokens and body.get("return_token_ids"):
                choice["token_ids"] = generation.tokens
                choice["logprobs"] = {"content": [*map(_chat_logprob, generation.logprobs)]}
                reply["prompt_token_ids"] = self._prompt_ids(body["messages"])
        return reply

    def _prompt_ids(self, messages: list[dict[str, str]]) -> list[int]:
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return list(self._tokenizer.encode(text))


def _chat_logprob(logprob: float) -> dict[str, Any]:
    return {"token": "", "logprob": logprob, "top_logprobs": [{"token": "", "logprob": logprob}]}


class Misbehaving(ConfigurableServer):
    """Behaves as long as nothing else is set.

    Attributes:
        change: of the completions of each request.
        forgets: so many requests more get no reply.
        awake: while it is cleared nothing gets a reply, health probes included.
    """

    change: Change | None = None
    forgets = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.awake = asyncio.Event()
        self.awake.set()

    async def _complete(self, request: PolicyRequest) -> list[Generation]:
        await self.awake.wait()
        if is_probe(request):
            return await super()._complete(request)
        if self.forgets:
            self.forgets -= 1
            await asyncio.Event().wait()
        given = await super()._complete(request)
        return self.change(given) if self.change else given

    async def _health(self, request: web.Request) -> web.Response:
        await self.awake.wait()
        return await super()._health(request)
