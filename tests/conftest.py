"""One warm task pool for all tests that only need problems made and answers scored."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from reasoning_gym_environment.runtime.task_pool import PoolSettings, TaskPool
from reasoning_gym_environment.tasks.protocol import Containment


@pytest.fixture(scope="session")
def pool_counts() -> Counter[str]:
    """Where the shared pool counts."""
    return Counter()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pool(pool_counts: Counter[str]) -> AsyncIterator[TaskPool]:
    """Shared: tests that use it carry `pytest.mark.asyncio(loop_scope="session")`."""
    async with TaskPool(PoolSettings(processes=2, generation_timeout=60.0), pool_counts) as pool:
        yield pool


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def uncontained() -> AsyncIterator[TaskPool]:
    """Shared: no screen and no sandbox, to see what answers do without them."""
    settings = PoolSettings(processes=2, containment=Containment.FORKS)
    async with TaskPool(settings, Counter()) as pool:
        yield pool
