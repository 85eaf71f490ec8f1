"""The registration of an environment at the Atropos API, under a name that a restart keeps."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from typing import Any, Protocol

from ..errors import ConfigurationError
from ..problems.training import TrainingProblems
from ..storage.checkpoints import Checkpoints
from .config import ReasoningGymEnvConfig
from .trainer_api import LostStateError, TrainerApi

logger = logging.getLogger(__name__)


class Registrant(Protocol):
    """What registering reads and sets of an environment; Atropos named the fields."""

    config: ReasoningGymEnvConfig
    api: TrainerApi
    problems: TrainingProblems
    progress_interval: float
    env_id: int
    wandb_prepend: str | None
    checkpoint_dir: str | None
    max_token_len: int
    curr_step: int
    max_num_workers: int
    status_dict: dict[str, Any]
    workers: set[asyncio.Task[Any]]

    @property
    def checkpoints(self) -> Checkpoints: ...

    @property
    def length_limit(self) -> int: ...

    def save_checkpoint(self, step: int) -> None: ...


async def register(env: Registrant) -> dict[str, Any]:
    """Claim the configured replica's name, if any, and register; return the API's reply.

    Raises:
        LostStateError: the API was restarted meanwhile.
        FixableError: another process has the replica's name, or no checkpoint can be written.
    """
    config = env.config
    send = functools.partial(
        env.api.until_trainer, "POST", "/register-env", interval=env.progress_interval
    )
    if config.replica:
        env.checkpoint_dir = (await send(env.api.note_probe))["checkpoint_dir"]
        env.wandb_prepend = f"{config.wandb_name}_{config.replica}"
        note = await env.checkpoints.claim()
        await env.api.disconnect_stale_registration(
            note, keep=env.checkpoints.leave_note
        )
    reply = await send(
        {
            "max_token_length": config.max_token_length,
            "desired_name": config.wandb_name,
            "weight": config.inference_weight,
            "min_batch_allocation": config.min_batch_allocation,
            "group_size": config.group_size,
        }
    )
    env.env_id = reply["env_id"]  # from here on, closing tells the API
    if config.replica:
        reply["wandb_name"] = env.wandb_prepend
        # The claimed name is not there.
        if reply["checkpoint_dir"] != env.checkpoint_dir:
            raise LostStateError(
                "another trainer has begun: start this environment again"
            )
    env.wandb_prepend = reply["wandb_name"]
    env.checkpoint_dir = reply["checkpoint_dir"]
    _warn_of_another_end(config.total_steps, reply["num_steps"])
    # A checkpoint holds the token budget, so the trainer's limit comes before it.
    env.max_token_len = (await env.api.request("GET", "/info"))["max_token_len"]
    env.problems.max_token_length = env.length_limit
    if not (config.replica and env.checkpoints.leave_note(env.api.note(env.env_id))):
        env.api.warn_of_stale_registration(env.env_id, config.min_batch_allocation)
    if reply["checkpoint_interval"] > 0:
        await _begin_checkpoints(env, reply["starting_step"])
    return reply


def _warn_of_another_end(total_steps: int, trainer_steps: int) -> None:
    if 0 <= total_steps < trainer_steps:
        logger.warning(
            "This environment ends after step %d, the trainer wants %d: set --env.total_steps, -1 "
            "for the trainer's",
            total_steps,
            trainer_steps,
        )


async def _begin_checkpoints(env: Registrant, starting_step: int) -> None:
    env.checkpoints.require_writable()
    if not env.config.replica:  # else the name is claimed already
        await env.checkpoints.claim()
    if starting_step == 0:
        env.save_checkpoint(0)


async def adopt_trainer_settings(env: Registrant) -> None:
    """Take the trainer's batch size and limit of tokens; raises ConfigurationError."""
    config = env.config
    info = await env.api.request("GET", "/info")
    if info["batch_size"] != -1:
        config.batch_size = info["batch_size"]
    if config.group_size > config.batch_size:
        raise ConfigurationError(
            f"group_size ({config.group_size}) must be at most the trainer's batch_size "
            f"({config.batch_size}): lower --env.group_size"
        )
    if 0 < env.max_token_len < config.max_token_length:
        env.problems.limit = f"the trainer's max_token_len {env.max_token_len}"
        message = "max_token_length %d becomes %d: rows must be shorter than %s"
        logger.warning(
            message, config.max_token_length, env.length_limit, env.problems.limit
        )


async def follow_trainer(env: Registrant, *, nodes: int) -> None:
    """Take the trainer's step and the number of workers; raises as `TrainerApi.status`.

    Args:
        nodes: how many servers there are, of which each may have its own workers.
    """
    config = env.config
    env.status_dict = await env.api.status(
        env.env_id,
        group_size=config.group_size,
        batch_size=config.batch_size,
        inference_weight=config.inference_weight,
        min_batch_allocation=config.min_batch_allocation,
    )
    step = env.status_dict["current_step"]
    if step < env.curr_step:
        raise env.api.mark_lost(
            f"it went back from step {env.curr_step} to step {step}"
        )
    if env.workers:
        # At a full queue Atropos's loop would cancel them, and throw their rollouts away.
        full = math.ceil(
            config.max_batches_offpolicy * config.batch_size / config.group_size
        )
        env.status_dict["queue_size"] = min(env.status_dict["queue_size"], full - 1)
    env.max_num_workers = config.max_num_workers
    if config.max_num_workers == -1:
        env.max_num_workers = config.max_num_workers_per_node * nodes
