"""What is said to the Atropos API beyond the base class."""

from __future__ import annotations

import asyncio
import logging

import aiohttp

logger = logging.getLogger(__name__)

_SECONDS = 5


async def disconnect(url: str, env_id: int) -> None:
    """Tell the API that an environment is gone; an API that is gone as well is no failure."""
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(f"{url}/disconnect-env", json={"env_id": env_id}) as response,
        ):
            response.raise_for_status()
    except (aiohttp.ClientError, asyncio.TimeoutError) as error:
        logger.warning("Could not tell the API at %s of leaving: %s", url, error)
