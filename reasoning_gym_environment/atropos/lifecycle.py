"""The beginning and the end of an environment: what is checked and started, what is closed."""

from __future__ import annotations

import asyncio
import gc
import logging
import shlex
from contextlib import AsyncExitStack
from typing import Any, Protocol

from ..storage.checkpoints import Checkpoints
from ..util.logs import SecretRedactor, ensure_handler
from . import output
from .config import ReasoningGymEnvConfig
from .group_loop import GroupLoop
from .parts import Parts

logger = logging.getLogger(__name__)


class Environment(Protocol):
    """What starting and closing use of the environment itself; Atropos named most fields."""

    config: ReasoningGymEnvConfig
    run_id: str
    trains: bool
    reach_seconds: float
    env_id: int
    eval_runner: asyncio.Task[None] | None
    workers: set[asyncio.Task[Any]]
    eval_workers: set[asyncio.Task[Any]]

    @property
    def processing(self) -> bool:
        """Whether this is `process`."""

    @property
    def serves(self) -> bool:
        """Whether this is `serve`."""

    @property
    def serving(self) -> bool:
        """Whether the API knows this environment."""

    @property
    def length_limit(self) -> int:
        """Tokens of prompt and completion."""

    @property
    def checkpoints(self) -> Checkpoints:
        """This replica's checkpoints."""

    def identity(self) -> dict[str, Any]:
        """Return the keys of stored rows that identify the run."""


async def set_up(env: Environment, parts: Parts) -> None:
    """Check the inference servers and plan the evaluation set; the tasks are selected already.

    Raises:
        UnreachableError: no inference server answers.
        ConfigurationError: a server rejects requests or lacks what the configuration requires.
    """
    ensure_handler(SecretRedactor(parts.inference.keys))
    config = env.config
    evaluates = not env.trains or (env.serves and config.steps_per_eval > 0)
    await parts.inference.require_servers(
        env.reach_seconds,
        length_limit=env.length_limit,
        sampling=parts.sampling if env.trains else None,
        evaluation=parts.evaluation.settings.sampling if evaluates else None,
        serves=env.serves,
    )
    if "temperature" in parts.inference.refused:
        parts.evaluation.temperature = None
    selected = parts.problems.selection
    parts.evaluation.prepare(parts.pool.generate, selected.categories, selected.ladders)
    gc.collect()
    gc.freeze()  # collecting all that Atropos imports stalls the loop for 80 ms
    items = f", {len(parts.evaluation.set)} evaluation items" if evaluates else ""
    logger.info(
        "Set up: %d tasks%s, run %s", len(selected.categories), items, env.run_id
    )
    if env.trains and config.dumped_kinds:
        _start_record(env, parts)


def _start_record(env: Environment, parts: Parts) -> None:
    parts.record.start(
        output.run_description(
            env.config,
            "serve" if env.serves else "process",
            parts.inference,
            tasks=sorted(parts.problems.selection.categories),
            versions=env.identity()["library_versions"],
        )
    )


async def close(env: Environment, parts: Parts, groups: GroupLoop) -> None:
    """Stop the workers, then close every part, even if another fails to."""
    async with AsyncExitStack() as last_first:
        last_first.callback(_report, env, parts)
        last_first.callback(output.delete_empty_groups_file, env.config)
        if env.serving:
            last_first.push_async_callback(parts.api.disconnect, env.env_id)
        last_first.callback(parts.schedule.close)
        last_first.push_async_callback(parts.inference.close)
        last_first.push_async_callback(_end_saves, env, parts, groups)
        last_first.callback(parts.record.close)
        last_first.push_async_callback(parts.pool.close)
        last_first.callback(parts.problems.close)
        last_first.push_async_callback(parts.delivery.close)
        running = [*env.workers, *env.eval_workers]
        running += [task for task in (env.eval_runner, groups.drawing) if task]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _end_saves(env: Environment, parts: Parts, groups: GroupLoop) -> None:
    """Close the writers, and record the groups whose workers were cancelled during the save."""
    disks = [parts.dumps.close, parts.delivery.close_file]
    if "checkpoints" in env.__dict__:  # else there were none
        disks.append(env.checkpoints.close)
    # Each waits 10 s if it hangs.
    await asyncio.gather(*map(asyncio.to_thread, disks))
    await groups.end_saves()


def _report(env: Environment, parts: Parts) -> None:
    """Report the outcome of all groups in the log and in wandb."""
    if env.serving and parts.dumps.written:
        folder = shlex.quote(env.config.data_dumps_dir)
        logger.info("To see the rollouts: reasoning-gym-environment report %s", folder)
    output.report_run(
        parts.statistics,
        serving=env.serving,
        has_all_groups=env.serving or env.processing,
    )
    if env.serving:
        parts.metrics.summarize()
