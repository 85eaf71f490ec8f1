"""One replica of a run: its name at the API, its checkpoints, its share in evaluating."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from atroposlib.envs.base import EvalHandlingEnum

from ..evaluation.duty import EvaluationDuty
from ..records import Problem
from ..storage.checkpoints import STREAM, Checkpoints, read_checkpoint, unusable
from .delivery import DeliveringEnv

logger = logging.getLogger(__name__)


class ReplicaEnv(DeliveringEnv):
    """Keeps checkpoints whole and to itself, and evaluates where no other replica does."""

    backlog: list[Problem]
    curr_step: int
    eval_runner: asyncio.Task[None] | None
    items_sent_this_step: int
    running_items: dict[str, dict[str, Any]]
    workers: set[asyncio.Task[Any]]

    @abstractmethod
    def stream_out(self, unfinished: Sequence[Problem]) -> dict[str, Any]:
        """The training stream's state, as JSON.

        Args:
            unfinished: problems handed out but not yet trained on; they come first after a resume.
        """

    @abstractmethod
    def stream_in(self, state: dict[str, Any]) -> None:
        """Continue the stream that `stream_out` has described.

        Raises:
            ValueError: it describes none, or another run's.
        """

    @abstractmethod
    def evaluation_key(self) -> str:
        """Name the evaluation that is due while serving: equal names, equal results."""

    async def _register_env(self) -> dict[str, Any]:
        """Register, under the configured replica's name where there is one.

        Raises:
            FixableError: another process has that name, or no checkpoint can be written.
        """
        data: dict[str, Any] = await super()._register_env()
        if data["status"] != "success":
            return data
        if self.config.replica:
            data["wandb_name"] = f"{self.config.wandb_name}_{self.config.replica}"
        self.env_id = data["env_id"]  # from here on the API has to be told of leaving
        self.wandb_prepend, self.checkpoint_dir = data["wandb_name"], data["checkpoint_dir"]
        saves = data["checkpoint_interval"] > 0
        if saves:
            self.checkpoints.require_writable()
        if saves or self.config.replica:
            await self.checkpoints.claim()
        if saves and data["starting_step"] == 0:
            self.save_checkpoint(0)
        return data

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """Those of this replica; there once the API has named it."""
        folder = Path(self.checkpoint_dir) / "env_checkpoints" / str(self.wandb_prepend)
        return Checkpoints(folder, self.statistics.counts)

    @cached_property
    def _duty(self) -> EvaluationDuty:
        """That of this run's replicas; there once the trainer has said what it trains on."""
        file = f"{self.config.wandb_name}.evaluation-{self.evaluation_key()}"
        folder = Path(self.checkpoint_dir) / "env_checkpoints"
        return EvaluationDuty(folder / file, every=self.config.steps_per_eval)

    async def env_step_checks(self) -> None:
        """Do what is due between two rounds of the loop; evaluate, save, log."""
        before, step = self.curr_step, self.status_dict["current_step"]
        self.curr_step = step
        self._evaluate_if_due(step)
        if step == before:
            return
        every = self.checkpoint_interval
        if every > 0 and step // every > before // every:
            await self.checkpoints.save_async(step // every * every, self._checkpoint())
        if self.items_sent_this_step >= self.config.min_items_sent_before_logging:
            self.items_sent_this_step = 0
            await self.wandb_log({})

    def _evaluate_if_due(self, step: int) -> None:
        """Begin the evaluation, if it is this replica's; training stops for it where it shall."""
        under_way = self.eval_runner is not None and not self.eval_runner.done()
        if self.config.steps_per_eval <= 0 or under_way or not self._duty.due(step):
            return
        self.eval_runner = asyncio.create_task(self.evaluate())
        self.eval_runner.add_done_callback(lambda it: self._evaluated(it, step))
        if self.config.eval_handling == EvalHandlingEnum.STOP_TRAIN:
            self.backlog.extend(entry["item"] for entry in self.running_items.values())
            for worker in self.workers:
                worker.cancel()
            self.workers = set()
            self.running_items = {}

    def _evaluated(self, evaluation: asyncio.Task[None], step: int) -> None:
        if evaluation.cancelled():
            return
        evaluation.exception()  # which `evaluate` has said
        self._duty.done(step)

    def save_checkpoint(self, step: int, data: dict[str, Any] | None = None) -> None:
        """Write the training stream's state, whole or not at all; a failure is said and counted."""
        self.checkpoints.save(step, {**(data or {}), **self._checkpoint()})

    def _checkpoint(self) -> dict[str, Any]:
        running = [entry["item"] for entry in self.running_items.values()]
        return {STREAM: self.stream_out([*running, *self.backlog])}

    def load_checkpoint(self) -> None:
        """Continue the stream where the newest checkpoint up to the trainer's step left it.

        Raises:
            FixableError: it can't be continued.
        """
        path = self.checkpoints.newest(self.curr_step)
        if path is None:
            logger.warning(
                "No checkpoint for step %s of %s below %r: the training stream starts anew",
                self.curr_step,
                self.wandb_prepend,
                self.checkpoint_dir,
            )
            return
        try:
            self.stream_in(read_checkpoint(path))
        except ValueError as error:
            raise unusable(path, error) from error
        logger.info("Continued %s at the trainer's step %d", path, self.curr_step)

    async def close_replica(self) -> None:
        """Leave the name and the duty to whoever comes next."""
        for part in ("checkpoints", "_duty"):
            if part in self.__dict__:  # it was of use
                await asyncio.to_thread(getattr(self, part).close)
