"""A fork server that several tests share: starting one takes seconds."""

from collections.abc import AsyncIterator

import pytest
from disabled_protections import Unscreened


@pytest.fixture(scope="session")
async def unscreened_server() -> AsyncIterator[Unscreened]:
    server = Unscreened()
    yield server
    await server.close()
