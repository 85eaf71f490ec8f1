"""The environment: Atropos's contract on one side, the package's parts on the other."""

from __future__ import annotations

if not __package__:  # started or imported by path: this file hides the package of its own name
    import importlib
    import runpy
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    if __name__ == "__main__":
        runpy.run_module("reasoning_gym_environment", run_name="__main__", alter_sys=True)
        sys.exit()
    del sys.modules[__name__]
    importlib.import_module(__name__)

import asyncio
import gc
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reasoning_gym_environment.atropos.base import VERSIONS, AtroposEnv
from reasoning_gym_environment.atropos.config import (
    ReasoningGymEnvConfig,
    ServerConfig,
    default_config,
    default_server,
    evaluation_settings,
)
from reasoning_gym_environment.atropos.scored_data import to_scored_data_group
from reasoning_gym_environment.evaluation.run import Evaluation
from reasoning_gym_environment.inference.errors import InferenceError
from reasoning_gym_environment.inference.requests import SamplingParams
from reasoning_gym_environment.problems.curriculum import curriculum_metrics
from reasoning_gym_environment.problems.task_selection import ProblemSettings
from reasoning_gym_environment.problems.training import TrainingProblems
from reasoning_gym_environment.records import Completion, GroupResult, Problem
from reasoning_gym_environment.rollouts.accounting import GroupOutcome
from reasoning_gym_environment.rollouts.metrics import signal_lines
from reasoning_gym_environment.rollouts.rollouts import GroupObserver, Rollouts, RolloutSettings
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.sandbox.processes import StartWorker
from reasoning_gym_environment.scoring.grading import ScoringSettings
from reasoning_gym_environment.settings import pool_settings, settings_of
from reasoning_gym_environment.storage.dumps import DumpWriter
from reasoning_gym_environment.storage.rows import recipe_key

logger = logging.getLogger(__name__)


class ReasoningGymEnv(AtroposEnv):
    """Trains on reasoning-gym's tasks: samples problems, asks for grouped rollouts, scores them.

    Args:
        start_worker: where the worker processes of its task pool come from, if not from its own.

    Attributes:
        problems: the training problems, whether or not their stream has begun.
        evaluation: the fixed evaluation set and its last results.

    Raises:
        ConfigurationError: the tokenizer can't be loaded.
    """

    name = "reasoning_gym"
    env_config_cls = ReasoningGymEnvConfig

    def __init__(
        self,
        config: ReasoningGymEnvConfig,
        server_configs: Any,
        slurm: bool = False,
        testing: bool = False,
        *,
        start_worker: StartWorker | None = None,
    ) -> None:
        super().__init__(config, server_configs, slurm=slurm, testing=testing)
        counts = self.statistics.counts
        self._pool = TaskPool(pool_settings(config), counts, start_worker=start_worker)
        self._dumps = DumpWriter(
            Path(config.data_dumps_dir), self.run_id, counts, synced=config.sync_dumps
        )
        self.problems = TrainingProblems(settings_of(ProblemSettings, config), self._pool, counts)
        self._rollouts = Rollouts(
            self.inference,
            self._pool,
            self._dumps,
            settings=settings_of(RolloutSettings, config),
            scoring=settings_of(ScoringSettings, config),
        )
        self.evaluation = Evaluation(
            evaluation_settings(config, model=self.inference.model, run_id=self.run_id),
            self._rollouts,
            counts,
        )
        self._sampling = settings_of(SamplingParams, config, split="train")
        self._observers: tuple[GroupObserver, ...] = (
            self.backoff,
            self.retry_budget,
            self.problems,
            self.statistics,
            self.progress,
        )
        self._pending_saves: dict[str, asyncio.Task[GroupResult]] = {}
        if config.debug_logging:
            logging.getLogger("reasoning_gym_environment").setLevel(logging.DEBUG)

    @classmethod
    def config_init(cls) -> tuple[ReasoningGymEnvConfig, list[ServerConfig]]:
        """The defaults of the command line."""
        return default_config(), [default_server()]

    @property
    def categories(self) -> dict[str, str]:
        """Category by name of the tasks in use; empty before `setup`."""
        return dict(self.problems.categories)

    async def prepare(self) -> None:
        """Start the worker processes and choose the tasks. May be called again.

        Raises:
            UnknownTaskError: a configured task does not exist.
            ConfigurationError: no task is left, or one refuses its parameters.
            WorkerStartError: the worker processes don't come up.
        """
        if self.categories:
            return
        logger.info("Starting the task processes")
        await self._pool.start()
        await self.problems.prepare(with_ladders=bool(self.config.eval_levels))
        self.statistics.categories = self.categories

    async def setup(self) -> None:
        """Prepare, check the inference servers, plan the evaluation set.

        Raises:
            UnreachableError: no inference server answers.
            ConfigurationError: one refuses, or can't give what the configuration asks for.
            FixableError: what `prepare` raises.
        """
        await self.prepare()
        await self.inference.require_server(
            self.reach_seconds,
            max_length=self.max_length(),
            sampling=self._sampling if self.trains else None,
        )
        self.evaluation.prepare(self._pool, self.problems.categories, self.problems.ladders)
        gc.collect()
        gc.freeze()  # a full collection of all that Atropos imports stalls the loop by 80 ms
        sizes = len(self.categories), len(self.evaluation.set)
        logger.info("Set up: %d tasks, %d evaluation items, run %s", *sizes, self.run_id)

    async def get_server_info(self) -> None:
        """Begin to make problems as well: Atropos waits for seconds before it asks for one."""
        await super().get_server_info()
        self._started_problems().fill()

    async def close_parts(self) -> None:
        self.problems.close()
        await self._pool.close()
        await asyncio.to_thread(self._dumps.close)
        for kept in self._pending_saves.values():  # of workers that were cancelled
            if not kept.cancel() and not kept.exception():
                self.statistics.accounting.record(GroupOutcome.CANCELLED)
        await asyncio.gather(*self._pending_saves.values(), return_exceptions=True)

    def evaluation_key(self) -> str:
        return self.evaluation.key(length_limit=self.max_length(), versions=VERSIONS)

    async def get_next_item(self) -> Problem:
        """The next problem of this replica's stream; never None.

        Raises:
            ConfigurationError: no prompt leaves room for a completion.
        """
        if self.processing and self.backlog:
            return self.backlog.pop()
        return await self._started_problems().next(
            lambda problem: self.inference.has_room(problem.question, self.max_length())
        )

    def _started_problems(self) -> TrainingProblems:
        """The stream starts at first use: the replica's identity comes with the registration."""
        if not self.problems.started:
            self.problems.start_stream(
                self.wandb_prepend or "",
                prefetch=max(64, 2 * self.max_num_workers),
                excluded=self.evaluation.set.questions,
            )
        return self.problems

    def stream_out(self, unfinished: Sequence[Problem]) -> dict[str, Any]:
        return self._started_problems().state_dict(unfinished)

    def stream_in(self, state: dict[str, Any]) -> None:
        self._started_problems().load_state_dict(state)

    async def collect_trajectories(self, item: Problem) -> tuple[dict[str, Any] | None, list[Any]]:
        """One group of rollouts, scored and dumped; None where there is nothing to send.

        While a trainer is served and inference fails, it waits for its turn to ask again. A group
        whose worker was cancelled while it was dumped is given to whoever asks for its problem
        again, so that it is neither lost nor on disk twice.

        Raises:
            InferenceError: in `process` mode, when inference has failed too often in a row.
        """
        books, key = self.statistics.accounting, recipe_key(item.recipe)
        if key not in self._pending_saves:
            try:
                with books.generating(lost_on=InferenceError):
                    group = await self._group_of(item)
            except InferenceError as error:
                self.note_loss(item, error)
                return None, []
            self._pending_saves[key] = asyncio.create_task(self._keep(group))
        try:
            group = await asyncio.shield(self._pending_saves[key])
        except Exception:
            del self._pending_saves[key]
            raise
        del self._pending_saves[key]
        if not group.scored:
            books.record(GroupOutcome.UNSCORED)
            return None, []
        with books.delivering():
            return self._to_send(group), []

    async def _group_of(self, item: Problem) -> GroupResult:
        """A scored group that the stream has learned from; raises InferenceError."""
        if self.serving:
            await self.backoff.wait()
        group = await self._rollouts.sample(
            item,
            n=self.config.group_size,
            max_length=self.max_length(),
            sampling=self._sampling,
        )
        self._started_problems()
        for observer in self._observers:
            observer.group_finished(group)
        return group

    async def _keep(self, group: GroupResult) -> GroupResult:
        """Count a group and dump it."""
        with self.statistics.accounting.delivering():
            await self._rollouts.save(group, self.identity())
        return group

    def _to_send(self, group: GroupResult) -> dict[str, Any]:
        return to_scored_data_group(
            group,
            self.inference.prompt(group.problem.question).messages,
            generation_params=self._sampling.distribution,
            mask_truncated=self.config.mask_too_long_completions,
            include_messages=self.config.include_messages,
        )

    async def score(self, problem: Problem, completions: Sequence[Completion]) -> GroupResult:
        """Score completions of one problem; every completion keeps its place."""
        return await self._rollouts.score(problem, completions)

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Run the fixed evaluation set and write its metrics and samples."""
        if self.serving:
            self.inference.persistence["eval"] = self.outage_seconds
        try:
            await self.evaluation.run(
                step=self.curr_step if self.serving else None,
                length_limit=self.max_length(),
                identity=self.identity(),
            )
        except Exception:
            self.statistics.counts["evaluation/failures"] += 1
            if self.serving:  # nobody awaits it
                logger.exception("The evaluation failed")
            raise

    async def _run_evaluate(self) -> None:
        await super()._run_evaluate()
        self.evaluation.show(sys.stdout)

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        """Log what has been counted since the last call, and the last evaluation."""
        for line in signal_lines(self.statistics.interval, self.categories.values()):
            logger.debug("Since the last report: %s", line)
        counted = self.statistics.take_report()
        stats = self.get_curriculum_stats()
        levels = curriculum_metrics(stats, self.categories) if stats["curriculum_mode"] else {}
        curves = self.evaluation.take_curves()
        await super().wandb_log({**(wandb_metrics or {}), **counted, **levels, **curves})

    def get_curriculum_stats(self) -> dict[str, Any]:
        """Where the curriculum has each task: see `TrainingProblems.curriculum_stats`."""
        return self.problems.curriculum_stats()
