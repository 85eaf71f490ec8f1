"""The reward service: listens, checks who asks, and ends without losing an answer."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from ..errors import FixableError, GenerationError, PoolClosedError
from ..gym.asynchronous import AsyncReasoningGym
from ..util.outages import is_loopback
from .bodies import Bodies
from .metrics import Metrics
from .refusals import NO_HEADERS, Refusal
from .routes import Routes
from .scorer import Scorer
from .scoring_queue import ScoringQueue
from .streams import NamedStreams

logger = logging.getLogger(__name__)

KEEP_SECONDS = 10.0
"""Between writes of streams' states."""

DRAIN_SECONDS = 150.0
"""At the end, for answers under way: more than one group may take, less than many that hang."""

LEFT = 499
"""Counted for a request whose client went away before the answer, as nginx does."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceSettings:
    """Where the service listens, and its bounds.

    Attributes:
        port: 0 takes a free one.
        token: what clients must bear; None asks for none.
        queue: answers that may wait or be scored at once.
        max_body: bytes of a request.
        body_timeout: seconds for them to arrive.
        streams: folder for the states of streams; None offers none.
        side_by_side: groups of answers that are scored at once.
        pauses: seconds before each further try of what is refused for now, for frameworks that
            would end the run.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = None
    queue: int = 4096
    max_body: int = 4 * 2**20
    body_timeout: float = 30.0
    streams: Path | None = None
    side_by_side: int = 4
    pauses: tuple[float, ...] = (1.0, 3.0, 9.0)


class RewardService:
    """Answers on its address while it is entered.

    At the end what is under way is answered, for 150 s at the most: a backlog of answers that hang
    may take longer, and connections that still wait then are closed.

    Args:
        gym: makes and scores problems; its owner closes it.

    Attributes:
        url: of the address, without a trailing slash.
        metrics: what it counts.

    Example:
        async with AsyncReasoningGym() as gym, RewardService(gym, ServiceSettings(port=0)) as it:
            print(it.url)
    """

    def __init__(self, gym: AsyncReasoningGym, settings: ServiceSettings) -> None:
        self._settings = settings
        self.metrics = Metrics()
        self._streams = NamedStreams(gym, settings.streams)
        queue = ScoringQueue(
            Scorer(gym).score, self.metrics, most=settings.queue, side_by_side=settings.side_by_side
        )
        app = web.Application(
            client_max_size=settings.max_body, middlewares=[self._answer, self._authorize]
        )
        bodies = Bodies(largest=settings.max_body, timeout=settings.body_timeout)
        routes = Routes(gym, queue, self._streams, self.metrics, bodies, pauses=settings.pauses)
        app.add_routes(routes.table())
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=DRAIN_SECONDS
        )

    async def __aenter__(self) -> RewardService:
        await self._runner.setup()
        host, port = self._settings.host, self._settings.port
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise FixableError(
                f"--host {host} --port {port}: can't listen there ({error.strerror or error})"
            ) from error
        self.url = f"http://{_in_url(host)}:{self._runner.addresses[0][1]}"
        self._keeping = asyncio.create_task(self._keep_streams())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._keeping.cancel()
        await self._runner.cleanup()
        await self._streams.close()

    async def _keep_streams(self) -> None:
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            await self._streams.keep()

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn what went wrong into a sentence, and count the request."""
        begin = time.monotonic()
        status = 500
        try:
            response = await self._refused(handler, request)
            status = response.status
            return response
        except asyncio.CancelledError:
            status = LEFT
            raise
        finally:
            resource = request.match_info.route.resource
            route = resource.canonical if resource else "none"
            self.metrics.request(route, status, time.monotonic() - begin)

    async def _refused(self, handler: Handler, request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except Refusal as refusal:
            return _error(refusal.status, str(refusal), refusal.headers)
        except GenerationError as error:
            return _error(422, str(error))
        except PoolClosedError:
            return _error(503, "this service ends: ask another", {"Retry-After": "1"})
        except web.HTTPRequestEntityTooLarge:
            most = self._settings.max_body
            return _error(413, f"the body is larger than the {most} bytes that --max-body allows")
        except web.HTTPException as error:
            allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else NO_HEADERS
            return _error(error.status, f"{request.method} {request.path}: {error.reason}", allow)

    @web.middleware
    async def _authorize(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in who bears the token; probes of /health need none."""
        token = self._settings.token
        if token is not None and request.path != "/health":
            given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
            if not hmac.compare_digest(given, f"Bearer {token}".encode()):
                raise Refusal(
                    401,
                    "the header Authorization: Bearer TOKEN is missing, or has another token",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        return await handler(request)


def _error(status: int, message: str, headers: Mapping[str, str] = NO_HEADERS) -> web.Response:
    return web.json_response({"error": message}, status=status, headers=headers)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def serve(gym: AsyncReasoningGym, settings: ServiceSettings) -> None:
    """Run the service until SIGTERM or SIGINT, then answer what is under way, for 150 s at most.

    Raises:
        FixableError: it can't listen there, or workers don't come up.
    """
    if settings.token is None and not is_loopback(settings.host):
        logger.warning(
            "Anybody who reaches %s may ask for scores: give --token-file, or listen on 127.0.0.1",
            settings.host,
        )
    async with gym, _until_signal() as ended, RewardService(gym, settings) as service:
        logger.info("Listening on %s", service.url)
        await gym.start()
        logger.info("Ready")
        await ended.wait()
        logger.info("Ending: what is under way is answered; a second signal ends at once")


@contextlib.asynccontextmanager
async def _until_signal() -> AsyncIterator[asyncio.Event]:
    """Give the event that the first signal sets; a second one has its usual effect."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    handled = (signal.SIGTERM, signal.SIGINT)

    def leave_alone() -> None:
        for number in handled:
            loop.remove_signal_handler(number)

    def end() -> None:
        leave_alone()
        ended.set()

    for number in handled:
        loop.add_signal_handler(number, end)
    try:
        yield ended
    finally:
        leave_alone()
