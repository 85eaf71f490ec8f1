"""What is slow to make and shared by all tests: warm task pools and a tokenizer."""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import hypothesis  # noqa: F401 - its plugins must load before an environment freezes the heap
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


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    # Imported here since most tests run without transformers, which is slow to import.
    from reasoning_gym_environment.demo.tokenizer import build_tokenizer

    return str(build_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="session")
def tokenizer(tokenizer_folder: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tokenizer_folder)
