"""The `serve` command between a real API server, a trainer and policies over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from reasoning_gym_environment import ReasoningGymEnv
from reasoning_gym_environment.atropos.trainer_api import Registration
from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.demo.trainer import ApiServer, Trainer

MAX_TOKEN_LEN = 2048
HONEST = ScriptedPolicy([f"<answer>{n}</answer>" for n in (1, 2, 3, 4, 5)])


def registration(folder: Path, *, step: int = 0, **changes: Any) -> Registration:
    """What an API answers that has a trainer at this step, for `run.begin` without an API."""
    answer = {
        "env_id": 0,
        "name": "env_0",
        "checkpoint_dir": str(folder),
        "checkpoint_interval": 0,
        "starting_step": step,
        "trainer_steps": 1000,
        "batch_size": 8,
        "max_token_len": MAX_TOKEN_LEN,
        **changes,
    }
    return Registration(**answer)


def status(step: int) -> dict[str, Any]:
    """What an API answers to `/status-env` of its only environment, for `run.take_status`."""
    return {
        "current_step": step,
        "queue_size": 0,
        "self_queue_size": 0,
        "max_group_size": 4,
        "env_weight": 1.0,
        "unallocated_fraction": 1.0,
    }


class Keeping(ReasoningGymEnv):
    """Keeps the groups that it collects."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups: list[dict[str, Any]] = []

    async def postprocess_histories(self, trajectories: Any) -> Any:
        self.groups.append(trajectories)
        return trajectories


class KeepingTrainer(Trainer):
    """Keeps the last batch it pulled."""

    batch: list[dict[str, Any]]

    def _train(self, batch: list[dict[str, Any]]) -> None:
        super()._train(batch)
        self.batch = batch


@asynccontextmanager
async def training(
    api: ApiServer, folder: Path, *, batch_size: int, save_every: int = 0
) -> AsyncIterator[Any]:
    """A trainer that pulls batches in the background; what it can't use fails the test."""
    trainer = KeepingTrainer(
        api.url,
        batch_size=batch_size,
        max_token_len=MAX_TOKEN_LEN,
        num_steps=1000,
        checkpoint_dir=folder,
        save_checkpoint_interval=save_every,
    )
    task = asyncio.create_task(trainer.run())
    try:
        yield trainer
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def training_from(
    step: int, folder: Path, *, num_steps: int, save_every: int
) -> AsyncIterator[tuple[str, Trainer]]:
    """The URL of a real API with a real trainer that has come to a step."""
    async with ApiServer() as api:
        trainer = Trainer(
            api.url,
            batch_size=8,
            max_token_len=MAX_TOKEN_LEN,
            num_steps=num_steps,
            checkpoint_dir=folder,
            save_checkpoint_interval=save_every,
            starting_step=step,
        )
        task = asyncio.create_task(trainer.run())
        try:
            yield api.url, trainer
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, aiohttp.ClientError):
                await task


@asynccontextmanager
async def serving(
    bench: Any,
    tokenizer: Any,
    policy: Any,
    *,
    batch_size: int = 8,
    save_every: int = 0,
    flags: Sequence[str] = (),
    **changes: Any,
) -> AsyncIterator[tuple[Any, Any, str]]:
    """The `serve` command, the trainer it feeds, and the API's URL."""
    async with (
        PolicyServer(policy, tokenizer) as server,
        serving_from(
            bench,
            server.url,
            *flags,
            batch_size=batch_size,
            save_every=save_every,
            **changes,
        ) as served,
    ):
        yield served


@asynccontextmanager
async def serving_from(
    bench: Any,
    url: str,
    *options: str,
    batch_size: int = 8,
    save_every: int = 0,
    **changes: Any,
) -> AsyncIterator[tuple[Any, Any, str]]:
    """The same with servers that are there already, and more options of the command."""
    async with (
        ApiServer() as api,
        training(
            api, bench.folder, batch_size=batch_size, save_every=save_every
        ) as trainer,
    ):
        settings = {
            "rollout_server_url": api.url,
            "ensure_scores_are_not_same": False,
            "max_token_length": MAX_TOKEN_LEN,
            **changes,
        }
        chosen = [*bench.options(url, **settings), *options]
        # wandb ends its run where a program ends, which a forked command doesn't do in full.
        start = bench.started_command if settings.get("use_wandb") else bench.command
        async with start("serve", *chosen) as command:
            yield command, trainer, api.url


async def until_pulled(trainer: Any, command: Any, *, batches: int) -> None:
    await command.until(lambda: trainer.batches >= batches)
