"""The endpoints of the reward service: what each request does."""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import to_json

from ..errors import ConfigurationError
from ..gym.containment import ContainedFunction, encode_data
from ..records import Score
from ..scoring.channels import opened_thought
from ..util.concurrency import gather_or_cancel, run_in_thread
from ..util.retries import Retry, RetryPolicy
from . import _messages as messages
from . import _targets as targets
from ._nemo_metrics import aggregate_metrics
from ._queue import ScoringQueue
from ._scoring import Scorer
from ._streams import NamedStreams
from .client import ProblemsReply, StreamedProblem

RETRIES = RetryPolicy(seconds=13.0, first_pause=1.0, growth=3.0)
"""Of what fails for now: frameworks would end their run, or train on a 0 in the group's mean. After
1, 3 and 9 s; a try that took longer than all of them is the last one."""

ONCE = RetryPolicy()

FAILURE_KIND = "verifier_error"
"""Of an unscored response, a word of NeMo Gym's vocabulary."""


Responses = dict[int | str, dict[str, Any]]


ERROR_RESPONSES: Responses = {
    status: {"model": messages.ErrorReply, "description": description}
    for status, description in {
        400: "The body is not valid JSON.",
        401: "The bearer token is missing or wrong.",
        404: "The stream does not exist or does not wait for this result.",
        408: "The body did not arrive in time.",
        409: "Streams are disabled, all are in use, or this one has other options.",
        413: "The body is too large.",
        415: "The body is not application/json.",
        422: "A field is invalid, or the problem cannot be scored.",
        429: "Too many completions are pending: see Retry-After.",
        503: "The service cannot score now: see Retry-After.",
    }.items()
}


class _JSONRequest(Request):
    """A request whose body is JSON within bounds."""

    _value: Any = None

    async def json(self) -> Any:
        """Return the body's value, parsed once; HTTPException if it is out of bounds."""
        if self._value is None:
            self._value = targets.read_json(await self.body(), "the body")
        return self._value


class _JSONRoute(APIRoute):
    """A route whose body is JSON within bounds."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            if self.body_field:
                request = _JSONRequest(request.scope, request.receive)
                await request.json()  # FastAPI takes an empty body for none
            return await handle(request)

        return handle_json


class Endpoints:
    """Handlers of the routes that read a body."""

    def __init__(
        self, scorer: Scorer, queue: ScoringQueue, streams: NamedStreams
    ) -> None:
        self._scorer = scorer
        self._queue = queue
        self._streams = streams

    def add_to(
        self, app: FastAPI, functions: Mapping[str, ContainedFunction]
    ) -> Mapping[str, Callable[[], None] | None]:
        """Add the routes; return, by path, what each requires before it reads a body."""
        app.router.route_class = _JSONRoute
        post = partial(app.post, responses=ERROR_RESPONSES)
        post("/score", response_model=messages.ScoreReply)(self.score)
        post("/verify", response_model=messages.NemoReply)(self.verify)
        post("/seed_session")(self.seed_session)
        post("/close_session")(self.close_session)
        post("/aggregate_metrics")(self.aggregate_metrics)
        post("/openrlhf")(self.openrlhf)
        post("/slime")(self.slime)
        post("/problems")(self.problems)
        post("/observe")(self.observe)
        contained = {f"/contain/{name}": each for name, each in functions.items()}
        for path, function in contained.items():
            without_answer = {"scores": {"__all__": {"answer"}}}
            post(path, response_model_exclude=without_answer)(
                self._contain(path, function)
            )
        return {
            **dict.fromkeys(
                ("/score", "/verify", *contained), self._queue.require_room
            ),
            **dict.fromkeys(("/seed_session", "/close_session", "/aggregate_metrics")),
            **dict.fromkeys(("/openrlhf", "/slime", "/problems", "/observe")),
        }

    async def score(self, request: messages.ScoreRequest, http: Request) -> Response:
        """Score completions of one problem."""
        if (request.recipe is None) == (request.entry is None):
            raise HTTPException(422, "give exactly one of recipe and entry")
        target = (
            targets.recipe_target(request.recipe)
            if request.entry is None
            else targets.entry_target(request.entry)
        )
        key = request.idempotency_key
        scores = await self._score(
            target, request.completions, request.stream, http, key
        )
        reply = messages.ScoreReply(scores=scores)
        # FastAPI would validate a model that it returns a second time.
        return Response(reply.model_dump_json(), media_type="application/json")

    async def _score(
        self,
        target: targets.Target,
        completions: Sequence[str],
        stream: str | None,
        http: Request,
        key: str | None = None,
        *,
        retries: RetryPolicy = ONCE,
    ) -> list[Score]:
        """Score completions, and tell the scores to the stream that asked.

        Args:
            retries: of completions that are unscored.
        """
        if stream is not None:
            if target.entry is not None:
                raise HTTPException(
                    422, "stream: its problems have recipes, got an entry"
                )
            self._streams.require(stream)
        address = http.client.host if http.client else ""
        client = http.scope.get("token", address)
        score = partial(self._scorer.score, target)
        retry = Retry(retries)
        while True:
            scores = await self._queue.score(
                score,
                completions,
                key=target.key,
                client=client,
            )
            is_whole = all(score.score is not None for score in scores)
            if is_whole or not await retry.wait():
                break
        if stream is not None:
            self._streams.report_scores(stream, target.recipe, scores, key=key)
        return scores

    async def verify(self, request: messages.NemoRequest, http: Request) -> Response:
        """Score the response to a NeMo Gym row."""
        target = targets.nemo_target(request)
        text = targets.nemo_text(request.response.output)
        [score] = await self._score(
            target, [text], request.stream, http, retries=RETRIES
        )
        reward = score.score or 0.0
        is_unscored = score.score is None
        reply = {
            **await http.json(),
            "reward": reward,
            "score": reward,
            "status": score.status.value,
            "detail": score.detail,
            "mask_sample": is_unscored,
            "instance_config": {
                **(request.instance_config or {}),
                "mask_sample": is_unscored,
            },
            "failure_kind": FAILURE_KIND if is_unscored else None,
            "failure_reason": score.detail if is_unscored else None,
            "extracted_answer": score.answer,
            "task_name": target.recipe.task,
        }
        return Response(to_json(reply), media_type="application/json")

    async def seed_session(
        self, request: messages.NemoSession, response: Response
    ) -> dict[str, str]:
        """Reply to NeMo Gym before a rollout; there is nothing to prepare."""
        if request.resources_session_id is not None:
            # its environment servers refuse a reply without a cookie
            response.set_cookie("session", "none")
        return _session(request)

    async def close_session(self, request: messages.NemoSession) -> dict[str, str]:
        """Reply to NeMo Gym after a rollout; nothing was kept."""
        return _session(request)

    async def aggregate_metrics(
        self, request: messages.NemoMetricsRequest
    ) -> messages.NemoMetricsReply:
        """Return the statistics of a run, which NeMo Gym's agents ask for at its end."""
        metrics = await run_in_thread(
            partial(aggregate_metrics, request.verify_responses)
        )
        return messages.NemoMetricsReply(**metrics)

    async def openrlhf(
        self, request: messages.OpenRlhfRequest, http: Request
    ) -> messages.OpenRlhfReply:
        """Return the rewards of OpenRLHF's queries."""
        pairs = targets.openrlhf_pairs(request)
        return messages.OpenRlhfReply(
            rewards=await gather_or_cancel(self._reward(*pair, http) for pair in pairs)
        )

    async def slime(
        self, request: messages.SlimeRequest, http: Request
    ) -> messages.RewardValue:
        """Return the reward of one slime sample, as a number."""
        target = targets.label_target(request.label, "label")
        opened = (
            opened_thought(request.prompt) if isinstance(request.prompt, str) else ""
        )
        return await self._reward(target, opened + request.response, http)

    async def _reward(
        self, target: targets.Target, completion: str, http: Request
    ) -> float:
        """Return a reward for a client that cannot read an unscored one; retry instead."""
        retry = Retry(RETRIES)
        while True:
            try:
                [score] = await self._score(target, [completion], None, http)
                return reward_of(score)
            except HTTPException as error:
                if error.status_code not in (429, 503) or not await retry.wait():
                    raise

    def _contain(
        self, path: str, function: ContainedFunction
    ) -> Callable[..., Awaitable[messages.ScoreReply]]:
        async def contain(request: messages.ContainRequest) -> messages.ScoreReply:
            """Score completions with a contained function."""
            try:
                data = await run_in_thread(partial(encode_data, request.data))
            except ConfigurationError as error:
                raise HTTPException(413, str(error)) from None
            count = len(request.completions)
            max_characters = 2**26
            if len(data) * count > max_characters:
                raise HTTPException(
                    413,
                    f"data has {len(data)} characters as JSON, with {count} completions more than "
                    f"{max_characters} in all: send fewer completions in one request",
                )

            async def score(completions: Sequence[str]) -> list[Score]:
                distinct = list(dict.fromkeys(completions))
                verdicts = await function.score_encoded(distinct, data)
                scores = dict(zip(distinct, map(Score.of, verdicts), strict=True))
                return [scores[completion] for completion in completions]

            key = targets.digest(data)
            scores = await self._queue.score(
                score,
                request.completions,
                key=key,
                client=path,
            )
            return messages.ScoreReply(scores=scores)

        return contain

    async def problems(self, request: messages.ProblemsRequest) -> ProblemsReply:
        """Return the next problems of a stream."""
        problems, sampling, note = await self._streams.next(
            request.stream, request.count, request.options
        )
        streamed = [
            StreamedProblem(
                problem.recipe.to_json(), problem.question, problem.replayed
            )
            for problem in problems
        ]
        modules = await self._scorer.gym.modules()
        return ProblemsReply(streamed, sampling, modules, note)

    async def observe(self, request: messages.ObserveRequest) -> messages.ObserveReply:
        """Tell a stream the results of its problems."""
        await self._streams.observe(request.stream, request.results)
        return messages.ObserveReply(observed=len(request.results))


def _session(request: messages.NemoSession) -> dict[str, str]:
    """Return the id of a session, if the request names one."""
    session_id = request.resources_session_id
    return {} if session_id is None else {"resources_session_id": session_id}


def reward_of(score: Score) -> float:
    """Return a score's number; HTTPException 503 if it is unscored, which is not worth 0."""
    if score.score is None:
        raise messages.retry_later(
            503, f"cannot score a completion now: {score.detail}"
        )
    return score.score
