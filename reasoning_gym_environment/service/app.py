"""The reward service: its ASGI application, and the server that runs it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import (
    AsyncIterator,
    Iterator,
    Mapping,
)
from importlib.metadata import version
from typing import Any, Literal

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
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
from starlette.exceptions import HTTPException as RoutingError
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from ..errors import ConfigurationError, FixableError, GenerationError, PoolClosedError
from ..gym.asynchronous import AsyncReasoningGym
from ..gym.containment import ContainedFunction
from ..util.outages import is_loopback, limit_loop_errors
from ..util.values import shorten
from . import ServiceSettings
from . import _messages as messages
from ._docs_page import CONTENT_SECURITY_POLICY, docs_page
from ._limits import BearerToken, BodyLimiter, RequestMetrics, error_response
from ._queue import ScoringQueue
from ._scoring import Scorer
from ._streams import NamedStreams
from .client import STREAM_NAME
from .endpoints import ERROR_RESPONSES, Endpoints, Responses
from .server import HttpServer, first_signal, raise_file_limit

__all__ = ["BearerToken", "RewardService", "ServiceSettings", "create_app", "serve"]


logger = logging.getLogger(__name__)


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
        description=f"A body is JSON without NaN, of at most {settings.max_body:,} bytes and "
        f"{messages.MAX_VALUES:,} values, nested at most 200 levels deep.",
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
            except (FixableError, RuntimeError):
                # Workers that are lost, or do not start.
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
    starting: Responses = {
        503: {"model": messages.HealthReply, "description": "They are starting."}
    }
    unauthorized: Responses = {401: ERROR_RESPONSES[401]}
    text: Responses = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @app.head("/", include_in_schema=False)
    @app.get("/", responses=unauthorized)
    async def describe() -> messages.ServiceReply:
        """Return what this service is, its version and its routes."""
        routes: dict[str, str] = {}
        for route in app.routes:
            if isinstance(route, APIRoute) and route.include_in_schema:
                for method in sorted(route.methods or ()):
                    about = route.description.partition("\n")[0]
                    routes[f"{method} {route.path}"] = about
        return messages.ServiceReply(
            service=app.title, version=app.version, routes=routes
        )

    @app.get("/reverify_mode", responses=unauthorized)
    async def reverify_mode() -> Literal["stateless"]:
        """Tell NeMo Gym that stored responses may be verified again."""
        return "stateless"

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
    # A `response_class` with a media type would give it to the error as well, which is JSON.
    @app.get("/metrics", response_class=Response, responses=unauthorized | text)
    async def metrics() -> Response:
        """Return metrics for Prometheus."""
        text = generate_latest(app.state.registry)
        return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @app.head("/docs", include_in_schema=False)
    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        """Return the document as a page: FastAPI's own would load scripts from elsewhere."""
        policy = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
        return HTMLResponse(docs_page(app.openapi()), headers=policy)

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
        connections: at once, as this process's limit of open files allows.

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
            health_path="/health",
        )
        self.connections = self._server.connections

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
        logger.info(
            "The limit of open files (ulimit -n) leaves %d connections at once",
            service.connections,
        )
        await service.app.state.scorers.start()
        logger.info("Ready")
        await received.wait()
        logger.info("Draining in-flight requests; a second signal exits immediately")
