"""The environment: implements Atropos's contract with the package's parts."""

from __future__ import annotations

if not __package__:  # run or imported by path: this file shadows the package of the same name
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
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reasoning_gym_environment.atropos.base import VERSIONS, AtroposEnv
from reasoning_gym_environment.atropos.config import (
    ReasoningGymEnvConfig,
    ServerConfig,
    evaluation_settings,
)
from reasoning_gym_environment.atropos.launch import run_command_line
from reasoning_gym_environment.atropos.scored_data import to_scored_data_group
from reasoning_gym_environment.atropos.shared_curriculum import SharedCurriculum
from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.evaluation.run import Evaluation
from reasoning_gym_environment.inference.dialects import SamplingParams
from reasoning_gym_environment.inference.errors import InferenceError
from reasoning_gym_environment.problems.curriculum import curriculum_metrics
from reasoning_gym_environment.problems.memory import sampling_metrics
from reasoning_gym_environment.problems.training import TrainingProblems
from reasoning_gym_environment.records import Completion, GroupResult, Problem, recipe_key
from reasoning_gym_environment.rollouts.metrics import GroupOutcome, signal_lines
from reasoning_gym_environment.rollouts.rollouts import GroupObserver, Rollouts, RolloutSettings
from reasoning_gym_environment.sandbox.pool import StartWorker, TaskPool
from reasoning_gym_environment.scoring.grading import ScoringSettings
from reasoning_gym_environment.settings import default_settings, pool_settings, settings_of
from reasoning_gym_environment.storage.dumps import DumpWriter
from reasoning_gym_environment.storage.runs import RunRecorder
from reasoning_gym_environment.util.logs import SecretRedactor
from reasoning_gym_environment.util.text import escape_control_characters

logger = logging.getLogger(__name__)


class ReasoningGymEnv(AtroposEnv):
    """An environment of reasoning-gym's tasks: samples problems, requests and scores groups.

    Args:
        start_worker: starts a worker process; None for the pool's own way.

    Attributes:
        problems: the training problems and their curriculum.
        evaluation: the fixed evaluation set and its last results.

    Raises:
        ConfigurationError: the tokenizer can't be loaded.
    """

    name = "reasoning_gym"
    env_config_cls = ReasoningGymEnvConfig
    _shared: SharedCurriculum | None = None

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
            Path(config.data_dumps_dir),
            self.run_id,
            counts,
            synced=config.sync_dumps,
            max_bytes=config.max_dump_bytes,
        )
        self._record = self._make_record()
        self.problems = TrainingProblems(
            config,
            self._pool,
            counts,
            tasks=config.include_tasks,
            seed=config.seed,
            skip_faulty_items=config.skip_faulty_items,
            max_token_length=config.max_token_length,
        )
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
        self._reported_sampling: Counter[str] = Counter()
        self._pending_saves: dict[str, asyncio.Task[GroupResult]] = {}
        if config.debug_logging:
            logging.getLogger("reasoning_gym_environment").setLevel(logging.DEBUG)

    @classmethod
    def config_init(cls) -> tuple[ReasoningGymEnvConfig, list[ServerConfig]]:
        """Return the defaults of the command line."""
        defaults = default_settings()
        servers = [ServerConfig(**server.model_dump()) for server in defaults.servers]
        return cls.env_config_cls(**defaults.env.model_dump()), servers

    @classmethod
    def cli(cls) -> None:
        """Run the program's arguments: `serve`, `process` or `evaluate`, and their options.

        Raises:
            SystemExit: after printing an error that the user can fix or retry.
        """
        try:
            run_command_line(cls, sys.argv[1:])
        except FixableError as error:
            print(f"error: {escape_control_characters(str(error))}", file=sys.stderr)  # noqa: T201 - a program's last word
            raise SystemExit(error.exit_status) from None

    @property
    def categories(self) -> dict[str, str]:
        """Category by task in use; empty before `setup`."""
        return dict(self.problems.selection.categories)

    async def prepare(self) -> None:
        """Start the worker processes and select the tasks. Idempotent.

        Raises:
            UnknownTaskError: a configured task does not exist.
            ConfigurationError: no task is left, or one rejects its parameters.
            WorkerStartError: the worker processes don't start.
        """
        if self.categories:
            return
        logger.info("Starting the task processes")
        await self._pool.start()
        await self.problems.prepare(with_ladders=bool(self.config.eval_difficulties))
        self.statistics.categories = self.categories

    async def setup(self) -> None:
        """Prepare, check the inference servers, plan the evaluation set.

        Raises:
            UnreachableError: no inference server answers.
            ConfigurationError: a server rejects requests or lacks what the configuration requires.
            FixableError: as `prepare`.
        """
        await self.prepare()
        evaluates = not self.trains or (self.serves and self.config.steps_per_eval > 0)
        await self.inference.require_servers(
            self.reach_seconds,
            length_limit=self.length_limit,
            sampling=self._sampling if self.trains else None,
            evaluation=self.evaluation.settings.sampling if evaluates else None,
            serves=self.serves,
        )
        if "temperature" in self.inference.refused:
            self.evaluation.temperature = None
        if self.trains and self.config.curriculum_url is not None:
            await self._share_curriculum(self.config.curriculum_url)
        selected = self.problems.selection
        self.evaluation.prepare(self._pool, selected.categories, selected.ladders)
        gc.collect()
        gc.freeze()  # collecting all that Atropos imports stalls the loop for 80 ms
        sizes = len(self.categories), len(self.evaluation.set)
        logger.info("Set up: %d tasks, %d evaluation items, run %s", *sizes, self.run_id)
        if self.trains and self.config.dumped_kinds:
            self._record.start(self._record_settings())

    async def _share_curriculum(self, url: str) -> None:
        """Let a reward service choose the problems, and tell it their results."""
        config = self.config
        options = {
            **config.task_options(),
            "tasks": config.include_tasks,
            "seed": config.seed,
            "group_size": config.group_size,
            "replica": "shared",
        }
        self._shared = SharedCurriculum(url, options, self.statistics.counts)
        await self._shared.start()
        self._observers += (self._shared,)

    def _make_record(self) -> RunRecorder:
        return RunRecorder(
            Path(self.config.data_dumps_dir),
            self.run_id,
            disk=self._dumps.disk,
            redactor=SecretRedactor(self.inference.keys),
            state=self._progress_state,
        )

    def _record_settings(self) -> dict[str, Any]:
        """Return who the run is, for its record."""
        config = self.config
        names = ("seed", "group_size", "temperature", "top_p", "max_token_length", "score_mode")
        options = {name: getattr(config, name) for name in (*names, "complexity_mode", "sampling")}
        return {
            "command": "serve" if self.serves else "process",
            "name": config.wandb_name,
            "model_name": self.inference.model,
            "server_type": self.inference.server_type,
            **{name: getattr(value, "value", value) for name, value in options.items()},
            "tasks": sorted(self.categories),
            "library_versions": VERSIONS,
        }

    def _progress_state(self) -> dict[str, Any]:
        """Return how the run goes, for its record."""
        return {
            "waiting": self.inference.failover.waiting,
            "failures": self.backoff.failures,
            "lost": self.statistics.counts["dumps/lost"],
        }

    async def get_server_info(self) -> None:
        """Get the trainer's settings, then start generating, since Atropos waits a few seconds."""
        await super().get_server_info()
        self._started_problems().fill()

    async def close_parts(self) -> None:
        if self._shared is not None:
            await self._shared.close()
        self.problems.close()
        await self._pool.close()
        self._record.close()
        disks = [self._dumps.close]
        if "replica" in self.__dict__:
            disks.append(self.replica.checkpoints.close)
        await asyncio.gather(*map(asyncio.to_thread, disks))  # each waits 10 s if it hangs
        if self.serving and self._dumps.has_written:
            folder = shlex.quote(self.config.data_dumps_dir)
            logger.info("To see the rollouts: reasoning-gym-environment report %s", folder)
        for save in self._pending_saves.values():  # their workers were cancelled
            if not save.cancel() and not save.exception():
                self.statistics.accounting.record(GroupOutcome.CANCELLED)
        await asyncio.gather(*self._pending_saves.values(), return_exceptions=True)

    def evaluation_key(self) -> str:
        return self.evaluation.key(length_limit=self.length_limit, versions=VERSIONS)

    async def get_next_item(self) -> Problem:
        """Return the next problem of this replica's stream; never None.

        Raises:
            ConfigurationError: no prompt leaves room for a completion.
        """
        if self.processing and self.backlog:
            return self.backlog.pop()
        problems = self._started_problems()
        while self._shared is not None and (shared := await self._shared.next()):
            if problem := await problems.make(shared.recipe, self._has_room):
                return replace(problem, asked_again=shared.asked_again)
            self._shared.drop(shared.recipe)
        return await problems.next(self._has_room)

    async def _has_room(self, problem: Problem) -> bool:
        return await self.inference.has_room(problem.question, self.length_limit)

    def _started_problems(self) -> TrainingProblems:
        """Start the stream at its first use: it needs the replica's name."""
        if not self.problems.started:
            self.problems.start_stream(
                self.wandb_prepend or "",
                prefetch=max(64, 2 * self.max_num_workers),
                excluded=self.evaluation.set.questions,
            )
        return self.problems

    def stream_state(self, unfinished: Sequence[Problem]) -> dict[str, Any]:
        return self._started_problems().state_dict(unfinished)

    def load_stream_state(self, state: dict[str, Any]) -> None:
        self._started_problems().load_state_dict(state)

    async def collect_trajectories(self, item: Problem) -> tuple[dict[str, Any] | None, list[Any]]:
        """Return a scored group, saved to disk; None if it is lost or unscored.

        If a worker is cancelled while its group is saved, the next request for the problem returns
        the group, so that it is neither lost nor stored twice.

        Raises:
            InferenceError: in `process`, after too many lost groups in a row.
        """
        accounting, key = self.statistics.accounting, recipe_key(item.recipe)
        if key not in self._pending_saves:
            try:
                with accounting.generating(lost_on=InferenceError):
                    group = await self._generate(item)
            except InferenceError as error:
                self.handle_lost_group(item, error)
                return None, []
            self._pending_saves[key] = asyncio.create_task(self._save(group))
        try:
            group = await asyncio.shield(self._pending_saves[key])
        except Exception:
            del self._pending_saves[key]
            raise
        del self._pending_saves[key]
        if not group.scored:
            accounting.record(GroupOutcome.UNSCORED)
            return None, []
        with accounting.delivering():
            scored_data = to_scored_data_group(
                group,
                self.inference.prompt(item.question).messages,
                generation_params=self._sampling.distribution,
                mask_truncated=self.config.mask_too_long_completions,
                include_messages=self.config.include_messages,
            )
        return scored_data, []

    async def _generate(self, item: Problem) -> GroupResult:
        """Return a scored group and tell all observers; raises InferenceError."""
        if self.serving:
            await self.backoff.wait()
        group = await self._rollouts.sample(
            item,
            n=self.config.group_size,
            length_limit=self.length_limit,
            sampling=self._sampling,
        )
        self._started_problems().step = self.curr_step if self.serving else None
        for observer in self._observers:
            observer.group_finished(group)
        return group

    async def _save(self, group: GroupResult) -> GroupResult:
        with self.statistics.accounting.delivering():
            await self._rollouts.save(group, self.identity())
        return group

    async def score(self, problem: Problem, completions: Sequence[Completion]) -> GroupResult:
        """Score completions of one problem."""
        return await self._rollouts.score(problem, completions)

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Run the fixed evaluation set and write its metrics and samples."""
        if self.serving:
            self.inference.retry_seconds["eval"] = self.outage_seconds
        try:
            await self.evaluation.run(
                step=self.curr_step if self.serving else None,
                length_limit=self.length_limit,
                identity=self.identity(),
            )
        except Exception:
            self.statistics.counts["evaluation/failures"] += 1
            if self.serving:  # nothing awaits the evaluation
                logger.exception("The evaluation failed")
            raise

    async def _run_evaluate(self) -> None:
        await super()._run_evaluate()
        self.evaluation.show(sys.stdout)
        self.evaluation.require_complete()

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        """Log the run metrics since the last call, and the last evaluation."""
        for line in signal_lines(self.statistics.interval, self.categories.values()):
            logger.debug("Since the last report: %s", line)
        counted = self.statistics.take_report()
        stats = self.get_curriculum_stats()
        levels = curriculum_metrics(stats, self.categories) if stats["curriculum_mode"] else {}
        sampled = self.problems.sampling - self._reported_sampling
        self._reported_sampling = self.problems.sampling.copy()
        curves = self.evaluation.take_curves()
        await super().wandb_log(
            {**(wandb_metrics or {}), **counted, **levels, **curves, **sampling_metrics(sampled)}
        )

    def get_curriculum_stats(self) -> dict[str, Any]:
        """Return the curriculum's state."""
        return self.problems.curriculum_stats()
