"""A system without a system call filter: refused on demand, else said by the service."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from disabled_protections import Unfiltered

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.service.app import RewardService, ServiceSettings

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.processes]

GAP = "verifier processes: No system call filter: left out."


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def unfiltered() -> AsyncIterator[Unfiltered]:
    server = Unfiltered()
    yield server
    await server.close()


async def test_workers_that_are_not_contained_are_refused_on_demand(
    unfiltered: Unfiltered,
) -> None:
    gym = AsyncReasoningGym(
        processes=1, require_containment=True, start_worker=unfiltered.start
    )
    with pytest.raises(ConfigurationError) as refused:
        await gym.start()
    assert str(refused.value) == (
        f"require_containment: the sandbox is incomplete ({GAP}); run on Linux with seccomp and "
        "Landlock, or leave it out to run without"
    )
    assert not gym.ready
    await gym.close()


async def test_health_and_metrics_name_what_is_not_contained(
    unfiltered: Unfiltered, session: aiohttp.ClientSession
) -> None:
    async with (
        AsyncReasoningGym(processes=1, start_worker=unfiltered.start) as gym,
        RewardService(gym, ServiceSettings(port=0)) as service,
    ):
        await gym.start()
        async with session.get(f"{service.url}/health") as response:
            said = {"status": "ready", "sandbox_gaps": [GAP], "modules": {}}
            assert await response.json() == said
        async with session.get(f"{service.url}/metrics") as response:
            assert "\nreasoning_gym_sandbox_gaps 1.0\n" in await response.text()
