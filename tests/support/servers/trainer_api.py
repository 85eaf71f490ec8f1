"""The real `run-api`, and a trainer that has registered."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from scripted_server import Between, proxy

from reasoning_gym_environment.demo.trainer import ApiServer

MAX_TOKEN_LEN = 2048


async def begin_training(
    url: str, folder: Path, *, step: int = 0, batch_size: int = 8, **registration: Any
) -> None:
    """Register a trainer at the API and pull once: environments are let in from then on."""
    async with aiohttp.ClientSession(url, raise_for_status=True) as session:
        training = {
            "wandb_group": "group",
            "wandb_project": "project",
            "batch_size": batch_size,
            "max_token_len": MAX_TOKEN_LEN,
            "checkpoint_dir": str(folder),
            "save_checkpoint_interval": 0,
            "starting_step": step,
            "num_steps": 1000,
            **registration,
        }
        async with session.post("/register", json=training):
            pass
        async with session.get("/batch"):
            pass


async def let_in(url: str, name: str, *, group_size: int = 4) -> Any:
    """Register another environment and give the API's reply."""
    newcomer = {
        "max_token_length": MAX_TOKEN_LEN,
        "desired_name": name,
        "weight": 1.0,
        "group_size": group_size,
    }
    async with (
        aiohttp.ClientSession(url, raise_for_status=True) as session,
        session.post("/register-env", json=newcomer) as response,
    ):
        return await response.json()


async def weight_of_a_newcomer(url: str) -> float:
    """Its share of the batch: 1 where no other environment is connected."""
    named = {"env_id": (await let_in(url, "newcomer"))["env_id"]}
    async with aiohttp.ClientSession(url, raise_for_status=True) as session:
        async with session.get("/status-env", json=named) as response:
            weight: float = (await response.json())["env_weight"]
        async with session.post("/disconnect-env", json=named):
            pass
    return weight


async def pulled(url: str) -> list[dict[str, Any]]:
    """The groups of the next batch; none where it isn't full."""
    async with (
        aiohttp.ClientSession(url, raise_for_status=True) as session,
        session.get("/batch") as response,
    ):
        return (await response.json())["batch"] or []


class Api:
    """An API on a port of its own that can be started anew without what it knew.

    Attributes:
        url: without a trailing slash.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server = ApiServer()
        self.url = self._server.url

    async def __aenter__(self) -> "Api":
        await self.start(step=0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    async def start(self, *, step: int) -> None:
        """Start an API that knows nothing, whose trainer registers at this step."""
        await self._server.__aenter__()
        await begin_training(self.url, self._folder, step=step)

    @property
    def pid(self) -> int:
        return self._server._process.pid

    async def stop(self) -> None:
        await self._server.__aexit__()

    async def start_anew(self, *, step: int) -> None:
        """The trainer registers again at this step."""
        await self.stop()
        await self.start(step=step)


@asynccontextmanager
async def api_and_between(folder: Path) -> AsyncIterator[tuple[str, Between]]:
    """The API's URL, and the proxy before it."""
    async with ApiServer() as api, proxy(api.url) as between:
        await begin_training(api.url, folder)
        yield api.url, between


async def until(condition: Callable[[], object], seconds: float = 300.0) -> None:
    """Wait until it holds, on a busy machine too; raises asyncio.TimeoutError."""

    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0.05)

    await asyncio.wait_for(poll(), seconds)
