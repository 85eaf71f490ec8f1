"""A policy server that lies, loses requests or goes silent when a test says so."""

import asyncio
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from reasoning_gym_environment.demo.server import Generation, GenerationRequest, PolicyServer

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


class Misbehaving(PolicyServer):
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

    async def _complete(self, request: GenerationRequest) -> list[Generation]:
        await self.awake.wait()
        if request.max_tokens == 1:
            return await super()._complete(request)
        if self.forgets:
            self.forgets -= 1
            await asyncio.Event().wait()
        given = await super()._complete(request)
        return self.change(given) if self.change else given

    async def _health(self, request: web.Request) -> web.Response:
        await self.awake.wait()
        return await super()._health(request)
