"""What the environment tells wandb, the API, dumps and checkpoints."""

from __future__ import annotations

import logging
from abc import abstractmethod
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
from atroposlib.envs.base import BaseEnv
from tenacity import RetryError

from ..errors import ConfigurationError
from ..problems.curriculum import curriculum_metrics
from ..records import Problem
from ..rollouts.metrics import Statistics, signal_lines
from .rollout_table import rollout_rows, rollout_table
from .training_problems import TrainingProblems

logger = logging.getLogger(__name__)


_PACKAGES = ("reasoning-gym-environment", "reasoning-gym", "atroposlib", "transformers")
VERSIONS = {name: version(name) for name in _PACKAGES}


class BookkeepingEnv(BaseEnv):
    """Atropos's hooks for metrics and checkpoints, filled from statistics and a problem stream.

    Attributes:
        run_id: names the run in everything it stores.
        statistics: what the run has counted so far.
        evaluation_report: metrics of the last evaluation that wandb has not got yet.
    """

    run_id: str
    statistics: Statistics
    evaluation_report: dict[str, float]

    @property
    @abstractmethod
    def categories(self) -> dict[str, str]:
        """Category by name of the tasks in use; empty before `setup`."""

    @property
    @abstractmethod
    def problems(self) -> TrainingProblems:
        """The problems, whether or not their training stream has begun."""

    @abstractmethod
    def started_problems(self) -> TrainingProblems:
        """The problems, with their training stream begun."""

    def identity(self) -> dict[str, Any]:
        """What every stored row says of its run."""
        replica = self.wandb_prepend or ""
        return {"run": self.run_id, "replica": replica, "library_versions": VERSIONS}

    async def get_server_info(self) -> None:
        """Raises ConfigurationError when a group does not fit the trainer's batch."""
        try:
            await super().get_server_info()
        except ValueError as error:
            raise ConfigurationError(f"{error}: lower --env.group_size") from error

    async def add_rollouts_for_wandb(self, scored_data: Any, item: Problem | None = None) -> None:
        """Keep some rollouts of a group that goes to the trainer for the rollout table."""
        self.statistics.counts["groups/kept"] += 1
        keep = self.config.num_rollouts_per_group_for_logging
        self.rollouts_for_wandb.append(rollout_rows(self.tokenizer, scored_data, item, keep=keep))
        del self.rollouts_for_wandb[: -self.config.num_rollouts_to_keep]

    async def create_rollout_table(self, wandb_metrics: dict[str, Any]) -> dict[str, Any]:
        if self.config.use_wandb and self.rollouts_for_wandb:
            wandb_metrics["train/rollouts"] = rollout_table(self.rollouts_for_wandb)
        return wandb_metrics

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        """Log what has been counted since the last call, and the last evaluation."""
        report, self.evaluation_report = self.evaluation_report, {}
        for line in signal_lines(self.statistics.interval, self.categories.values()):
            logger.info("Since the last report: %s", line)
        counted = self.statistics.take_report()
        stats = self.get_curriculum_stats()
        levels = curriculum_metrics(stats, self.categories) if stats["curriculum_mode"] else {}
        await super().wandb_log({**(wandb_metrics or {}), **counted, **levels, **report})

    def get_curriculum_stats(self) -> dict[str, Any]:
        """Where the curriculum has each task; JSON.

        Returns:
            `curriculum_mode`, whether there is a curriculum; if so, `target_accuracy`,
            `total_tasks_tracked`, `tasks_with_adjustments`, `average_complexity` in [0, 1], and
            `task_details`: by task its `level`, `difficulty`, recent `solved_share` and more.
        """
        stats = self.problems.curriculum_stats()
        if not stats:
            return {"curriculum_mode": False}
        target = self.config.curriculum_target_accuracy
        return {"curriculum_mode": True, "target_accuracy": target, **stats}

    async def _send_scored_data_to_api(self, scored_data: Any) -> None:
        try:
            await super()._send_scored_data_to_api(scored_data)
        except (aiohttp.ClientError, RetryError):
            self.statistics.counts["groups/send_failures"] += 1
            raise
        self.statistics.counts["groups/sent"] += 1

    def save_checkpoint(self, step: int, data: dict[str, Any] | None = None) -> None:
        """Write the training stream's state, whole or not at all.

        Problems handed out but not finished come first after a resume.
        """
        running = [entry["item"] for entry in self.running_items.values()]
        state = self.started_problems().state_dict([*running, *self.backlog])
        super().save_checkpoint(f"{step}.partial", {**(data or {}), "stream_state": state})
        folder = Path(self.checkpoint_dir) / "env_checkpoints" / str(self.wandb_prepend)
        (folder / f"step-{step}.partial.json").replace(folder / f"step-{step}.json")

    def load_checkpoint(self) -> None:
        """Continue the stream exactly where the checkpoint of the trainer's step left it."""
        self.stream_state: dict[str, Any] | None = None
        super().load_checkpoint()
        if self.stream_state is None:
            logger.warning(
                "No checkpoint for step %s of %s below %r: the training stream starts anew",
                self.curr_step,
                self.wandb_prepend,
                self.checkpoint_dir,
            )
            return
        self.started_problems().load_state_dict(self.stream_state)
