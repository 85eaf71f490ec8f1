"""The reward service: its routes, its ASGI application, and the server that runs it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, RedirectResponse
from fastapi.routing import APIRoute
from prometheus_client import (
    CollectorRegistry,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from pydantic_core import to_json
from starlette.exceptions import HTTPException as RoutingError
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from ..errors import ConfigurationError, FixableError, GenerationError, PoolClosedError
from ..gym.asynchronous import AsyncReasoningGym
from ..gym.containment import ContainedFunction, encode_data
from ..records import Score
from ..scoring.extraction import opened_thought
from ..util.concurrency import gather_or_cancel, run_in_thread
from ..util.outages import Retry, is_loopback, limit_loop_errors
from ..util.values import shorten
from . import ServiceSettings
from . import _messages as messages
from ._limits import BearerToken, BodyLimiter, RequestMetrics, error_response
from ._scoring import Scorer, ScoringQueue
from ._streams import NamedStreams
from .client import STREAM_NAME, ProblemsReply, StreamedProblem
from .server import HttpServer, first_signal, raise_file_limit

__all__ = ["BearerToken", "RewardService", "ServiceSettings", "create_app", "serve"]

logger = logging.getLogger(__name__)

RETRY_PAUSES = (1.0, 3.0, 9.0)
"""Seconds before each retry of what fails for now, for frameworks whose run would end otherwise."""

_Responses = dict[int | str, dict[str, Any]]

_ERRORS: _Responses = {
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


class _JSONRoute(APIRoute):
    """A route whose body is JSON within bounds."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            if self.body_field:  # where `Request.json` keeps what it has parsed
                request._json = messages.read_json(await request.body(), "the body")
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
        post = partial(app.post, responses=_ERRORS)
        post("/score", response_model=messages.ScoreReply)(self.score)
        post("/verify", response_model=messages.NemoReply)(self.verify)
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
            **dict.fromkeys(("/openrlhf", "/slime", "/problems", "/observe")),
        }

    async def score(self, request: messages.ScoreRequest, http: Request) -> Response:
        """Score completions of one problem."""
        if (request.recipe is None) == (request.entry is None):
            raise HTTPException(422, "give exactly one of recipe and entry")
        target = (
            messages.recipe_target(request.recipe)
            if request.entry is None
            else messages.entry_target(request.entry)
        )
        key = request.idempotency_key
        scores = await self._score(
            target, request.completions, request.stream, http, key
        )
        reply = messages.ScoreReply(scores=scores)
        # Validates once.
        return Response(reply.model_dump_json(), media_type="application/json")

    async def _score(
        self,
        target: messages.Target,
        completions: Sequence[str],
        stream: str | None,
        http: Request,
        key: str | None = None,
    ) -> list[Score]:
        """Score completions, and tell the scores to the stream that asked."""
        if stream is not None:
            if target.entry is not None:
                raise HTTPException(
                    422, "stream: its problems have recipes, got an entry"
                )
            self._streams.require(stream)
        address = http.client.host if http.client else ""
        client = http.scope.get("token", address)
        score = partial(self._scorer.score, target)
        scores = await self._queue.score(
            score,
            completions,
            key=target.key,
            client=client,
        )
        if stream is not None:
            self._streams.report_scores(stream, target.recipe, scores, key=key)
        return scores

    async def verify(self, request: messages.NemoRequest, http: Request) -> Response:
        """Score the response to a NeMo Gym row."""
        target = messages.nemo_target(request)
        text = messages.nemo_text(request.response.output)
        [score] = await self._score(target, [text], request.stream, http)
        reward = score.score or 0.0
        reply = {
            **await http.json(),
            "reward": reward,
            "score": reward,
            "status": score.status.value,
            "detail": score.detail,
            "mask_sample": score.score is None,
            "extracted_answer": score.answer,
            "task_name": target.recipe.task,
        }
        return Response(to_json(reply), media_type="application/json")

    async def openrlhf(
        self, request: messages.OpenRlhfRequest, http: Request
    ) -> messages.OpenRlhfReply:
        """Return the rewards of OpenRLHF's queries."""
        pairs = messages.openrlhf_pairs(request)
        return messages.OpenRlhfReply(
            rewards=await gather_or_cancel(self._reward(*pair, http) for pair in pairs)
        )

    async def slime(
        self, request: messages.SlimeRequest, http: Request
    ) -> messages.Share:
        """Return the reward of one slime sample, as a number."""
        target = messages.label_target(request.label, "label")
        opened = (
            opened_thought(request.prompt) if isinstance(request.prompt, str) else ""
        )
        return await self._reward(target, opened + request.response, http)

    async def _reward(
        self, target: messages.Target, completion: str, http: Request
    ) -> float:
        """Return a reward for a client that cannot read an unscored one; retry instead."""
        retry = Retry(pauses=RETRY_PAUSES)
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
            most = 2**26
            if len(data) * count > most:
                raise HTTPException(
                    413,
                    f"data has {len(data)} characters as JSON, with {count} completions more than "
                    f"{most} in all: send fewer completions in one request",
                )

            async def score(completions: Sequence[str]) -> list[Score]:
                distinct = list(dict.fromkeys(completions))
                verdicts = await function.score_encoded(distinct, data)
                scores = dict(zip(distinct, map(Score.of, verdicts), strict=True))
                return [scores[completion] for completion in completions]

            key = messages.digest(data)
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


def reward_of(score: Score) -> float:
    """Return a score's number; HTTPException 503 if it is unscored, which is not worth 0."""
    if score.score is None:
        raise messages.retry_later(
            503, f"cannot score a completion now: {score.detail}"
        )
    return score.score


class _Scorers(Collector):
    """What scores in worker processes, a gym and contained functions by name, and its metrics."""

    def __init__(
        self, gym: AsyncReasoningGym, functions: Mapping[str, ContainedFunction]
    ) -> None:
        self.gym = gym
        self.functions = functions

    @property
    def ready(self) -> bool:
        return self.gym.ready and all(
            function.ready for function in self.functions.values()
        )

    @property
    def missing_protections(self) -> list[str]:
        functions = (
            f"{name}: {gap}"
            for name, function in self.functions.items()
            for gap in function.missing_protections
        )
        return [*self.gym.missing_protections, *functions]

    async def start(self) -> None:
        """Start all worker processes; raise WorkerStartError if one fails to start."""
        await self.gym.start()
        for function in self.functions.values():
            await function.start_async()

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "reasoning_gym_ready", "1 while worker processes are up.", value=self.ready
        )
        yield GaugeMetricFamily(
            "reasoning_gym_sandbox_gaps",
            "What this system does not contain; /health has the sentences.",
            value=len(self.missing_protections),
        )
        counts = [
            self.gym.counts,
            *(function.counts for function in self.functions.values()),
        ]
        yield CounterMetricFamily(
            "reasoning_gym_worker_restarts",
            "Worker processes that were lost and replaced.",
            value=sum(each.get("sandbox/restarts", 0) for each in counts),
        )


def create_app(
    gym: AsyncReasoningGym,
    settings: ServiceSettings,
    *,
    owns_gym: bool = False,
    contained: Mapping[str, ContainedFunction] | None = None,
) -> FastAPI:
    """Return the ASGI application, for any ASGI server.

    Args:
        settings: the server, not the application, takes their host and port.
        owns_gym: whether the application starts and closes the gym.
        contained: functions that score at `/contain/NAME`; their owner closes them.

    Example:
        app = create_app(AsyncReasoningGym(), ServiceSettings(), owns_gym=True)
    """
    for name in contained or {}:
        if not re.fullmatch(STREAM_NAME, name):  # others need escapes
            raise ConfigurationError(
                f"the name of a contained function must be letters, digits, '.', '_' and '-', and "
                f"begin with a letter or digit, got {shorten(name)}"
            )
    handled = (RequestValidationError, RoutingError, PoolClosedError, GenerationError)
    registry = CollectorRegistry()
    scorers = _Scorers(gym, contained or {})
    registry.register(scorers)
    streams = NamedStreams(gym, settings.streams)
    own_workers = {f"/contain/{name}" for name in scorers.functions}
    queue = ScoringQueue(
        registry,
        most=settings.queue,
        slots=settings.side_by_side,
        own_workers=own_workers,
    )
    app = FastAPI(
        title="reasoning-gym rewards",
        version=version("reasoning-gym-environment"),
        openapi_url=None,  # described below, as every other route
        redirect_slashes=False,
        lifespan=lambda _: _lifespan(streams, scorers if owns_gym else None),
        exception_handlers=dict.fromkeys(handled, _reply_to_error),
    )
    app.state.scorers = scorers
    app.state.registry = registry
    app.state.streams = streams
    tokens = None if settings.token is None else settings.token.splitlines()
    endpoints = Endpoints(Scorer(gym), queue, streams)
    admissions = endpoints.add_to(app, scorers.functions)
    _add_information_routes(app)
    app.add_middleware(BodyLimiter, admissions=admissions, largest=settings.max_body)
    if tokens is not None:
        app.add_middleware(BearerToken, tokens=tokens)
    paths = {route.path for route in app.routes if isinstance(route, Route)}
    app.add_middleware(RequestMetrics, registry=registry, paths=paths)  # the outermost
    document = app.openapi()
    document["security"] = [{}, {"bearer": []}]
    document["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"}
    }
    return app


@contextlib.asynccontextmanager
async def _lifespan(
    streams: NamedStreams, owned: _Scorers | None, *, pause: float = 10.0
) -> AsyncIterator[None]:
    """Save streams while the application runs, and at its end."""

    async def save_forever() -> None:
        while True:
            await asyncio.sleep(pause)
            try:
                await streams.save()
            except (
                FixableError,
                RuntimeError,
            ):  # workers that are lost, or do not start
                logger.exception("Cannot save streams, will retry")

    async with owned.gym if owned else contextlib.nullcontext():
        if owned is not None:
            await owned.start()
        saving = asyncio.create_task(save_forever())
        try:
            yield
        finally:
            saving.cancel()
            await streams.close()


def _add_information_routes(app: FastAPI) -> None:
    """Add the routes that read no body."""
    starting: _Responses = {
        503: {"model": messages.HealthReply, "description": "They are starting."}
    }
    unauthorized: _Responses = {401: _ERRORS[401]}

    @app.head("/", include_in_schema=False)
    @app.get("/", responses=unauthorized)
    async def describe() -> messages.ServiceReply:
        """Return what this service is, its version and its routes."""
        routes = {
            f"{method} {route.path}": route.description.partition("\n")[0]
            for route in app.routes
            if isinstance(route, APIRoute) and route.include_in_schema
            for method in sorted(route.methods or ())
        }
        return messages.ServiceReply(
            service=app.title, version=app.version, routes=routes
        )

    @app.post("/seed_session", responses=unauthorized)
    async def seed_session() -> dict[str, Any]:
        """Reply to NeMo Gym's clients before a rollout; there is nothing to prepare."""
        return {}

    @app.head("/health", include_in_schema=False)
    @app.get("/health", responses=starting)
    async def health(response: Response) -> messages.HealthReply:
        """Report whether worker processes are up."""
        scorers: _Scorers = app.state.scorers
        ready = scorers.ready
        response.status_code = 200 if ready else 503
        return messages.HealthReply(
            status="ready" if ready else "starting",
            sandbox_gaps=scorers.missing_protections,
            modules=await scorers.gym.modules() if ready else {},
        )

    @app.head("/metrics", include_in_schema=False)
    @app.get("/metrics", response_class=PlainTextResponse, responses=unauthorized)
    async def metrics() -> Response:
        """Return metrics for Prometheus."""
        text = generate_latest(app.state.registry)
        return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @app.head("/docs", include_in_schema=False)
    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        """Point to the document: FastAPI's own page would load scripts from elsewhere."""
        return RedirectResponse("openapi.json")

    @app.head("/openapi.json", include_in_schema=False)
    @app.get("/openapi.json", responses=unauthorized)
    async def openapi() -> dict[str, Any]:
        """Return this document."""
        return app.openapi()


async def _reply_to_error(request: Request, error: Exception) -> Response:
    """Return the JSON error of an exception."""
    match error:
        case RequestValidationError():
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"][1:])) or "the body"
            message = first["msg"].removeprefix("Value error, ")
            reply = HTTPException(
                422, f"{field}: {message}, got {shorten(first['input'])}"
            )
        case HTTPException():
            reply = error
        case RoutingError():
            message = f"{request.method} {request.scope['path']}: {error.detail}"
            reply = HTTPException(error.status_code, message, headers=error.headers)
        case PoolClosedError():
            reply = _shutting_down()
        case _:
            reply = HTTPException(422, str(error))
    return error_response(reply)


def _shutting_down() -> HTTPException:
    return messages.retry_later(503, "this service is shutting down: ask another one")


class RewardService:
    """The application on its address, while entered.

    At the end streams are saved and in-flight requests finished, for `drain` seconds at most; the
    others get status 503.

    Args:
        gym: makes and scores problems; its owner closes it.
        contained: as of `create_app`.

    Attributes:
        url: of the address, without a trailing slash.
        app: the ASGI application.

    Example:
        async with AsyncReasoningGym() as gym, RewardService(gym, ServiceSettings(port=0)) as it:
            print(it.url)
    """

    def __init__(
        self,
        gym: AsyncReasoningGym,
        settings: ServiceSettings,
        *,
        contained: Mapping[str, ContainedFunction] | None = None,
    ) -> None:
        self.app = create_app(gym, settings, contained=contained)
        self._server = HttpServer(
            self._run,
            host=settings.host,
            port=settings.port,
            drain=settings.drain,
            lifespan=True,
        )

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application; requests that draining cancels get 503, not uvicorn's 500."""
        started = False

        async def send_tracked(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, send_tracked)
        except asyncio.CancelledError:
            if scope["type"] != "http":
                raise
            if not started:  # else its client has not read the reply
                await error_response(_shutting_down())(scope, receive, send)

    async def __aenter__(self) -> RewardService:
        await self._server.__aenter__()
        self.url = self._server.url
        return self

    async def __aexit__(self, *_: object) -> None:
        saving = asyncio.create_task(self.app.state.streams.save())
        await self._server.__aexit__()
        saving.cancel()


async def serve(
    gym: AsyncReasoningGym,
    settings: ServiceSettings,
    *,
    contained: Mapping[str, ContainedFunction] | None = None,
) -> None:
    """Run the service until SIGTERM or SIGINT, then drain in-flight requests.

    Raises:
        FixableError: it cannot listen on the address, or workers do not start.
    """
    if settings.token is None and not is_loopback(settings.host):
        message = "The service is unauthenticated and listens on %s: set a token, or host 127.0.0.1"
        logger.warning(message, settings.host)
    raise_file_limit()
    limit_loop_errors(asyncio.get_running_loop())
    received = first_signal()
    disable_created_metrics()  # type: ignore[no-untyped-call]  # has no annotations
    async with gym, RewardService(gym, settings, contained=contained) as service:
        logger.info("Listening on %s", service.url)
        await service.app.state.scorers.start()
        logger.info("Ready")
        await received.wait()
        logger.info("Draining in-flight requests; a second signal exits immediately")
