"""The routes: each reads its message, asks scorer or streams, and writes its reply."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel

from ..gym.asynchronous import AsyncReasoningGym, Score
from .bodies import Bodies
from .dialects import openrlhf_pairs, response_text, reward_of, verify_item, verify_reply
from .documents import read_message
from .items import Item, entry_item, label_item, recipe_item
from .messages import (
    ObserveReply,
    ObserveRequest,
    OpenRlhfReply,
    OpenRlhfRequest,
    ProblemsReply,
    ProblemsRequest,
    ScoredCompletion,
    ScoreReply,
    ScoreRequest,
    SlimeRequest,
    StreamedProblem,
    VerifyRequest,
)
from .metrics import CONTENT_TYPE, Metrics
from .openapi import description
from .patience import patiently
from .refusals import Refusal
from .scoring_queue import ScoringQueue
from .streams import NamedStreams

Asked = TypeVar("Asked", bound=BaseModel)
Handler = Callable[[web.Request], Awaitable[web.Response]]
Admit = Callable[[web.Request], Awaitable[int]]
"""Gives the bytes that were reserved for a request's body."""


class Routes:
    """Answers requests.

    Args:
        gym: whose readiness and counts are told.
        pauses: seconds between tries for frameworks that give up soon.
    """

    def __init__(
        self,
        gym: AsyncReasoningGym,
        queue: ScoringQueue,
        streams: NamedStreams,
        metrics: Metrics,
        bodies: Bodies,
        *,
        pauses: Sequence[float],
    ) -> None:
        self._gym = gym
        self._queue = queue
        self._streams = streams
        self._metrics = metrics
        self._bodies = bodies
        self._pauses = pauses

    def table(self) -> list[web.RouteDef]:
        """List all routes."""
        return [
            web.post("/score", self._of(ScoreRequest, self.score, self._admit_answers)),
            web.post("/verify", self._of(VerifyRequest, self.verify, self._admit_answers)),
            web.post("/seed_session", self.seed_session),
            web.post("/openrlhf", self._of(OpenRlhfRequest, self.openrlhf, self._admit_patiently)),
            web.post("/slime", self._of(SlimeRequest, self.slime, self._admit_patiently)),
            web.post("/problems", self._of(ProblemsRequest, self.problems, self._admit)),
            web.post("/observe", self._of(ObserveRequest, self.observe, self._admit)),
            web.get("/health", self.health),
            web.get("/metrics", self.metrics),
            web.get("/openapi.json", self.openapi),
        ]

    def _of(
        self, model: type[Asked], answer: Callable[[Asked], Awaitable[Any]], admit: Admit
    ) -> Handler:
        """Make the handler that admits and reads a message, and writes a reply as JSON."""

        async def handle(request: web.Request) -> web.Response:
            size = await admit(request)
            try:
                reply = await answer(read_message(model, await self._bodies.read(request)))
                if isinstance(reply, BaseModel):
                    return web.json_response(text=reply.model_dump_json())
                return web.json_response(reply)
            finally:
                self._bodies.release(size)

        return handle

    async def _admit(self, request: web.Request) -> int:
        """Reserve a body's bytes, or refuse it before it is read."""
        return self._bodies.reserve(request)

    async def _admit_answers(self, request: web.Request) -> int:
        """Refuse it as well where no completion has a place."""
        self._queue.require_room()
        return self._bodies.reserve(request)

    async def _admit_patiently(self, request: web.Request) -> int:
        """Let a client wait that doesn't come back."""
        return await patiently(partial(self._admit_answers, request), self._pauses)

    async def _scored(self, item: Item, completions: Sequence[str]) -> list[Score]:
        scores = await self._queue.score(item, completions)
        self._metrics.answers.update(score.status for score in scores)
        return scores

    async def score(self, asked: ScoreRequest) -> ScoreReply:
        """Score completions of one problem."""
        if (asked.recipe is None) == (asked.entry is None):
            raise Refusal(422, "give one of recipe and entry")
        item = recipe_item(asked.recipe) if asked.entry is None else entry_item(asked.entry)
        scores = await self._scored(item, asked.completions)
        return ScoreReply(scores=[ScoredCompletion(**score.to_json()) for score in scores])

    async def verify(self, asked: VerifyRequest) -> dict[str, Any]:
        """Score the response to a NeMo Gym row."""
        item = verify_item(asked)
        [score] = await self._scored(item, [response_text(asked.response.output)])
        return verify_reply(asked.model_dump(exclude_unset=True), item, score)

    async def seed_session(self, _: web.Request) -> web.Response:
        """Answer what NeMo Gym's clients ask before a rollout; there is nothing to prepare."""
        return web.json_response({})

    async def openrlhf(self, asked: OpenRlhfRequest) -> OpenRlhfReply:
        """Score OpenRLHF's queries."""
        pairs = openrlhf_pairs(asked)
        tasks = [asyncio.create_task(self._reward(item, text)) for item, text in pairs]
        try:
            return OpenRlhfReply(rewards=await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()  # where one is refused, nobody waits for the others

    async def slime(self, asked: SlimeRequest) -> float:
        """Score one sample of slime's."""
        return await self._reward(label_item(asked.label, "label"), asked.response)

    async def _reward(self, item: Item, completion: str) -> float:
        """Score a completion; one that is unscored or has no place is tried again."""

        async def attempt() -> float:
            [score] = await self._scored(item, [completion])
            return reward_of(score)

        return await patiently(attempt, self._pauses)

    async def problems(self, asked: ProblemsRequest) -> ProblemsReply:
        """Hand out the next problems of a stream."""
        problems = await self._streams.next(asked.stream, asked.count, asked.options)
        return ProblemsReply(
            problems=[
                StreamedProblem(recipe=problem.recipe.to_json(), question=problem.question)
                for problem in problems
            ]
        )

    async def observe(self, asked: ObserveRequest) -> ObserveReply:
        """Let a stream learn from results."""
        await self._streams.observe(asked.stream, asked.results)
        return ObserveReply(observed=len(asked.results))

    async def health(self, _: web.Request) -> web.Response:
        """Say whether worker processes are up: 200, or 503 while they are not."""
        ready = self._gym.ready
        return web.json_response(
            {"status": "ready" if ready else "starting"}, status=200 if ready else 503
        )

    async def metrics(self, _: web.Request) -> web.Response:
        """Write what was counted, for Prometheus."""
        text = self._metrics.text(
            queued=self._queue.held, ready=self._gym.ready, counts=self._gym.counts
        )
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    async def openapi(self, _: web.Request) -> web.Response:
        """Describe the service."""
        return web.Response(text=json.dumps(description()), content_type="application/json")
