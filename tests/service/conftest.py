"""One running service on a real socket, with real workers, for all tests here."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from reward_requests import Post, Reply
from worker_stock import WorkerStock

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.records import Problem
from reasoning_gym_environment.service.app import RewardService, ServiceSettings


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def gym(stock: WorkerStock) -> AsyncIterator[AsyncReasoningGym]:
    async with AsyncReasoningGym(processes=2, start_worker=stock.lend) as gym:
        await gym.start()
        yield gym


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def service(
    gym: AsyncReasoningGym, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RewardService]:
    settings = ServiceSettings(
        port=0, streams=tmp_path_factory.mktemp("streams"), max_body=2**19
    )
    async with RewardService(gym, settings) as service:
        yield service


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture(scope="session")
def post(service: RewardService, session: aiohttp.ClientSession) -> Post:
    """Post JSON to a route of the service; `url` names another one."""

    async def post(
        route: str, body: Any, url: str = "", headers: dict[str, str] | None = None
    ) -> Reply:
        async with session.post(
            (url or service.url) + route, json=body, headers=headers
        ) as response:
            return Reply(response.status, await response.json(), response.headers)

    return post


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def problem(gym: AsyncReasoningGym) -> Problem:
    [problem] = await gym.problems("gcd", level=1)
    return problem
