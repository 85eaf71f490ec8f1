"""The three commands of the environment, each from its start to its end."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any, Protocol

import aiohttp
from atroposlib.envs.base import BaseEnv
from tenacity import RetryError  # which ends the retries of atroposlib

from ..errors import ConfigurationError
from ..evaluation.run import Evaluation
from ..inference.client import InferenceClient
from ..util.concurrency import graceful_shutdown
from ..util.outages import require_reachable
from . import output
from .config import ReasoningGymEnvConfig
from .group_loop import GroupLoop
from .parts import Parts
from .trainer_api import stopped_answering

logger = logging.getLogger(__name__)

ROLLOUTS_OF_A_REPORT = 1024
"""In `process`, where no batch size is set."""


class Environment(Protocol):
    """What the commands use of the environment; Atropos named most fields."""

    config: ReasoningGymEnvConfig
    tokenizer: Any
    run_id: str
    trains: bool
    progress_interval: float
    reach_seconds: float
    failing_seconds: float
    backlog: list[Any]
    curr_step: int
    eval_runner: asyncio.Task[None] | None
    group_size_to_process: int
    n_groups_to_process: int

    async def prepare(self) -> None:
        """Start the worker processes and select the tasks."""

    async def setup(self) -> None:
        """Prepare as the environment's class, or a subclass, does."""

    async def set_up_parts(self) -> None:
        """Do what the class's own `setup` does."""

    async def close(self) -> None:
        """Stop the workers and close every part."""

    async def get_next_item(self) -> Any:
        """Return the next item; None if there is none."""

    async def evaluate(self) -> None:
        """Run the evaluation set."""

    async def wandb_log(self) -> None:
        """Log the metrics since the last report."""


def _require_tokenizer(env: Environment, why: str) -> None:
    if env.tokenizer is None:
        raise ConfigurationError(
            f"{why}, so it needs the model's tokenizer: set --env.tokenizer_name"
        )


async def serve(env: Environment, parts: Parts) -> None:
    """Feed a trainer until training ends; raises FixableError if that is not possible."""
    url = env.config.rollout_server_url
    logging_progress = parts.progress.logging_every(env.progress_interval)
    async with graceful_shutdown(env.close), logging_progress:
        _require_tokenizer(env, "serve trains on tokens")
        env.config.require_groups_that_differ()
        await env.prepare()
        await require_reachable(
            [url],
            what="the Atropos API",
            hint="start it with `run-api`, or set --env.rollout_server_url",
            seconds=env.reach_seconds,
        )
        # Atropos's own requests at the start hang for minutes.
        await parts.api.request("GET", "/info")
        base: Any = env
        try:
            await BaseEnv.env_manager(base)
        except (aiohttp.ClientError, RetryError) as error:
            raise stopped_answering(url, error) from error
        await _end_training(env, parts.inference)


async def _end_training(env: Environment, inference: InferenceClient) -> None:
    # The inference server may have ended with the training.
    inference.give_up_after(env.failing_seconds)
    logger.info(
        "Training ends at step %d, with what waits past total_steps %d",
        env.curr_step,
        env.config.total_steps,
    )
    if env.eval_runner is not None and not env.eval_runner.done():
        logger.info("Waiting for the final evaluation")
        await asyncio.gather(env.eval_runner, return_exceptions=True)
    await env.wandb_log()


async def process(env: Environment, parts: Parts, groups: GroupLoop) -> None:
    """Collect `n_groups_to_process` groups, fewer without items; failed ones do not count."""
    try:
        await _collect_groups(env, parts, groups)
    finally:  # after a signal, too
        collected = parts.statistics.counts["groups/collected"]
        if collected or sys.exc_info()[0] is None:
            output.describe_output(env.config, env.run_id, collected=collected)


async def _collect_groups(env: Environment, parts: Parts, groups: GroupLoop) -> None:
    parts.inference.give_up_after(env.failing_seconds)
    logging_progress = parts.progress.logging_every(env.progress_interval)
    async with graceful_shutdown(env.close), logging_progress:
        env.config.require_groups_that_differ()
        if env.config.data_path_to_save_groups:
            _require_tokenizer(env, "data_path_to_save_groups stores tokens")
        await env.setup()
        await env.set_up_parts()
        if env.config.use_wandb:
            output.start_wandb(env.config, env.run_id)
        env.config.group_size = env.group_size_to_process
        env.curr_step = 0
        groups_per_report = _groups_per_report(env.config)
        while env.curr_step < env.n_groups_to_process:
            item = env.backlog.pop() if env.backlog else await env.get_next_item()
            if item is None:
                logger.info("get_next_item returned None: no more items to process")
                break
            if await groups.work_on(item, sends=False) is not None:
                env.curr_step += 1
                if env.curr_step % groups_per_report == 0:
                    await env.wandb_log()
            if groups.fatal is not None:
                raise groups.fatal
            await asyncio.sleep(0)  # a subclass may never wait for anything
        if env.curr_step % groups_per_report:
            await env.wandb_log()


def _groups_per_report(config: ReasoningGymEnvConfig) -> int:
    """Return after how many groups `process` reports: those of a training batch."""
    rollouts = config.batch_size if config.batch_size > 0 else ROLLOUTS_OF_A_REPORT
    groups: int = rollouts // config.group_size
    return max(1, groups)


async def evaluate(env: Environment, evaluation: Evaluation) -> None:
    """Run the evaluation set once and print its results."""
    env.trains = False
    async with graceful_shutdown(env.close):
        await env.setup()
        await env.set_up_parts()
        await env.evaluate()
    if evaluation.has_run:  # a subclass may have an evaluation of its own
        evaluation.show(sys.stdout)
        evaluation.require_complete()
