"""The reward service on a Ray cluster that is there: `serve run ray_serve:app` in this folder.

Each replica runs the service on its own machine and hands requests on to it, so that
scores, refusals and their HTTP statuses are those of `reasoning-gym-environment rewards`. Streams
of problems, of which each replica would have its own, are refused: it has no folder for them.
"""

from contextlib import AsyncExitStack

import aiohttp
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.service.app import RewardService, ServiceSettings


@serve.deployment(
    ray_actor_options={"num_cpus": 2},  # a generator and a verifier host
    max_ongoing_requests=512,
    autoscaling_config={"min_replicas": 1, "max_replicas": 16, "target_ongoing_requests": 64},
    graceful_shutdown_timeout_s=180,  # the longest group may take 150 s
)
class Rewards:
    """One replica: a gym with one process of each kind, and the service before it."""

    async def __init__(self) -> None:
        self._parts = AsyncExitStack()
        self._gym = await self._parts.enter_async_context(AsyncReasoningGym(processes=1))
        settings = ServiceSettings(port=0, side_by_side=2)
        service = await self._parts.enter_async_context(RewardService(self._gym, settings))
        client = aiohttp.ClientSession(
            service.url,
            connector=aiohttp.TCPConnector(limit=0),  # the service has the bounds
            timeout=aiohttp.ClientTimeout(total=None),
        )
        self._client = await self._parts.enter_async_context(client)
        await self._gym.start()

    async def __call__(self, request: Request) -> Response:
        """Hand a request on, and give the service's reply as it is."""
        headers = {"Content-Type": request.headers.get("Content-Type", "")}
        async with self._client.request(
            request.method, request.url.path, data=await request.body(), headers=headers
        ) as reply:
            kept = {name: reply.headers[name] for name in ("Retry-After",) if name in reply.headers}
            return Response(await reply.read(), reply.status, kept, media_type=reply.content_type)

    async def check_health(self) -> None:
        """Have Ray replace this replica where its workers don't come up."""
        if not self._gym.ready:
            raise RuntimeError("no worker process is up")

    async def __del__(self) -> None:
        await self._parts.aclose()


app = Rewards.bind()
