"""The environment: one class, which implements Atropos's contract with the package's parts."""

from __future__ import annotations

# Run or imported by path: this file shadows the package of the same name.
if not __package__:
    import importlib
    import runpy
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    if __name__ == "__main__":
        runpy.run_module(
            "reasoning_gym_environment", run_name="__main__", alter_sys=True
        )
        sys.exit()
    del sys.modules[__name__]
    importlib.import_module(__name__)

import reasoning_gym_environment.atropos  # noqa: F401, I001 - it comes before transformers

import asyncio
import functools
import logging
import sys
import time
import uuid
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from atroposlib.envs.base import BaseEnv, EvalHandlingEnum

from reasoning_gym_environment.atropos import (
    lifecycle,
    managers,
    output,
    parts,
    registration,
    resume,
    subclass,
)
from reasoning_gym_environment.atropos.config import (
    AtroposServer,
    ReasoningGymEnvConfig,
    ServerConfig,
    chat_template_text,
    loading_tokenizer,
    require_usable,
    server_list,
    with_template,
)
from reasoning_gym_environment.atropos.group_loop import GroupLoop
from reasoning_gym_environment.atropos.launch import run
from reasoning_gym_environment.atropos.rows import to_scored_data_group
from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.inference.prompts import resolve_system_prompt
from reasoning_gym_environment.problems.training import TrainingProblems
from reasoning_gym_environment.records import Completion, GroupResult, Problem
from reasoning_gym_environment.rollouts.accounting import GroupOutcome
from reasoning_gym_environment.sandbox.worker_groups import StartWorker
from reasoning_gym_environment.scoring.grading import grade
from reasoning_gym_environment.settings import RunFlags, Settings
from reasoning_gym_environment.storage.checkpoints import Checkpoints
from reasoning_gym_environment.util.logs import exit_status

logger = logging.getLogger(__name__)

MOST_MEASUREMENTS = 10_000
"""Of each of Atropos's lists of timings, which grow while the trainer takes nothing."""


class ReasoningGymEnv(BaseEnv):
    """An environment of reasoning-gym's tasks: samples problems, requests and scores groups.

    Args:
        start_worker: starts a worker process; None for the pool's own way.

    Attributes:
        run_id: identifies the run in everything it stores.
        problems: the training problems and their curriculum.
        evaluation: the fixed evaluation set and its last results.

    Raises:
        ConfigurationError: a setting is invalid, or the tokenizer can't be loaded.
        UnwritableError: a configured file or folder can't be written.
    """

    name = "reasoning_gym"
    env_config_cls = ReasoningGymEnvConfig

    backlog: list[Problem]
    curr_step: int
    eval_runner: asyncio.Task[None] | None
    items_sent_this_step: int
    running_items: dict[str, dict[str, Any]]
    tokenizer: Any
    workers: set[asyncio.Task[Any]]

    def __init_subclass__(cls) -> None:
        """Raise ConfigurationError if the class overrides what would have no effect."""
        subclass.require_used(cls, ReasoningGymEnv)

    trains = True  # on the completions; not in `evaluate`
    progress_interval = 10.0  # seconds between progress lines
    reach_seconds = 60.0  # how long a server may take to come up at the start
    # Seconds for which `process` and `evaluate` retry while all requests fail.
    failing_seconds = 20.0
    # Seconds for which an evaluation does so while serving; training never stops.
    outage_seconds = 600.0
    # Lost groups in a row at which `process` gives up; `serve` does if the errors are permanent.
    max_consecutive_losses = 5

    def __init__(
        self,
        config: ReasoningGymEnvConfig,
        server_configs: Any,
        slurm: bool = False,
        testing: bool = False,
        *,
        start_worker: StartWorker | None = None,
    ) -> None:
        # This comes first, so that it is done whatever fails later.
        output.redact_api_keys(getattr(config, "data_dir_to_save_evals", None))
        if testing:
            raise ConfigurationError(
                "testing must be false: Atropos's mock server completes no prompt; without a model "
                "try `reasoning-gym-environment demo`"
            )
        servers = require_usable(config, server_configs, slurm=slurm)
        # of a single `ServerBaseline` Atropos makes several servers, and drops their type
        kind = "" if servers is server_configs else servers[0].server_type
        self.server_cls = functools.partial(AtroposServer, server_type=kind)
        system_prompt = resolve_system_prompt(config.system_prompt)
        template = chat_template_text(config.chat_template)
        with loading_tokenizer(config, servers):
            super().__init__(config, server_configs, slurm=slurm, testing=testing)
        if self.jsonl_writer is not None:
            # It loses groups on a full disk; `Delivery` writes them.
            self.jsonl_writer.close()
        try:
            self.tokenizer = with_template(
                self.tokenizer, config, template, system_prompt
            )
        except ConfigurationError:
            output.delete_empty_groups_file(config)
            raise
        self.run_id = str(uuid.uuid4())
        self._closed = False
        self._is_set_up = False
        self._make_parts(config, system_prompt, start_worker)
        if config.suppress_base_env_logs:
            logging.getLogger("atroposlib.envs.base").setLevel(logging.WARNING)
        if config.debug_logging:
            logging.getLogger("reasoning_gym_environment").setLevel(logging.DEBUG)

    def _make_parts(
        self,
        config: ReasoningGymEnvConfig,
        system_prompt: str,
        start_worker: StartWorker | None,
    ) -> None:
        made = parts.make_parts(
            config,
            self.server,
            self.tokenizer,
            system_prompt,
            run_id=self.run_id,
            recorded_state=lambda: self._groups.recorded_state(),
            evaluation_lock=self._evaluation_lock,
            start_worker=start_worker,
        )
        self._parts = made
        self.statistics = made.statistics
        self.problems = made.problems
        self.inference = made.inference
        self.evaluation = made.evaluation
        self.api = made.api
        self.delivery = made.delivery
        self.progress = made.progress
        self._groups = GroupLoop(
            self,
            made.dumps,
            sampling=made.sampling,
            scoring=made.scoring,
            observers=[
                made.problems.group_finished,
                made.statistics.group_finished,
                made.progress.group_finished,
            ],
            max_losses=self.max_consecutive_losses,
        )

    @classmethod
    def config_init(cls) -> tuple[ReasoningGymEnvConfig, list[ServerConfig]]:
        """Return the defaults of the command line."""
        return cls.env_config_cls(), [ServerConfig()]

    @classmethod
    def cli(cls) -> None:
        """Run the program's arguments: `serve`, `process` or `evaluate`, and their options.

        Raises:
            SystemExit: with the exit code, after printing an error that the user can fix or retry.
        """
        env, servers = cls.config_init()
        defaults = Settings(env=env, servers=server_list(servers), flags=RunFlags())
        status = exit_status(lambda: run(sys.argv[1:], lambda: cls, defaults))
        if status:
            raise SystemExit(status)

    @property
    def categories(self) -> dict[str, str]:
        """Category by task in use; empty before `setup`."""
        return dict(self.problems.selection.categories)

    @property
    def processing(self) -> bool:
        """Whether this is `process`, in which Atropos has no backlog."""
        return getattr(self, "process_mode", False)

    @property
    def serves(self) -> bool:
        """Whether this is `serve`, or an environment without a command."""
        return self.trains and not self.processing

    @property
    def serving(self) -> bool:
        """Whether the API knows this environment."""
        return hasattr(self, "env_id")

    @property
    def trainer_step(self) -> int | None:
        """The trainer's step; None without a trainer."""
        return self.curr_step if self.serving else None

    @property
    def length_limit(self) -> int:
        """Tokens of prompt and completion; Atropos drops groups with a row of `max_token_len`."""
        limit: int = self.config.max_token_length
        return min(limit, self.max_token_len - 1) if self.max_token_len > 0 else limit

    @property
    def replica(self) -> str:
        """The name by which streams of one seed differ: the API's, or the configured one."""
        return self.wandb_prepend or str(self.config.replica)

    def identity(self) -> dict[str, Any]:
        """Return the keys of stored rows that identify the run."""
        versions = {**self._parts.pool.versions, **output.VERSIONS}
        return {
            "run": self.run_id,
            "replica": self.replica,
            "library_versions": versions,
        }

    # The commands, from setup to close.

    async def env_manager(self) -> None:
        """Serve a trainer until training ends; raises FixableError if that is not possible."""
        await managers.serve(self, self._parts)

    async def process_manager(self) -> None:
        """Collect `n_groups_to_process` groups, fewer without items; failed ones do not count."""
        await managers.process(self, self._parts, self._groups)

    async def _run_evaluate(self) -> None:  # the command; Atropos has none of its own
        self.inference.give_up_after(self.failing_seconds)
        await managers.evaluate(self, self.evaluation)

    async def prepare(self) -> None:
        """Start the worker processes and select the tasks; raises FixableError. Idempotent."""
        if self.categories:
            return
        logger.info("Starting the task processes")
        await self._parts.pool.start()
        await self.problems.prepare(with_ladders=bool(self.config.eval_difficulties))
        self.statistics.categories = self.categories

    async def setup(self) -> None:
        """Prepare, check the inference servers, plan the evaluation set; idempotent.

        Raises:
            UnreachableError: no inference server answers.
            ConfigurationError: a server rejects requests or lacks what the configuration requires.
        """
        await self.set_up_parts()

    async def set_up_parts(self) -> None:
        """Do what `setup` does, whether or not a subclass's own has called it. Idempotent."""
        if not self._is_set_up:
            await self.prepare()
            await lifecycle.set_up(self, self._parts)
            self._is_set_up = True

    async def close(self) -> None:
        """Stop the workers, then close every part, even if another fails to. Idempotent."""
        if not self._closed:
            self._closed = True
            await lifecycle.close(self, self._parts, self._groups)

    # Atropos's API: registration and the trainer's step.

    async def setup_wandb(self) -> None:
        """Start the wandb run under the trainer's project; raises FixableError if wandb refuses."""
        await self.set_up_parts()  # a subclass's `setup` may not have called ours
        if not self.config.use_wandb:
            return
        got = await self.api.until_trainer(
            "GET", "/wandb_info", interval=self.progress_interval
        )
        output.start_wandb(
            self.config,
            self.run_id,
            group=got.get("group"),
            project=got["project"],
        )

    async def _register_env(self) -> dict[str, Any]:
        """Claim the configured replica's name, if any, and register; return the API's reply."""
        return await registration.register(self)

    async def register_env(self) -> None:
        await super().register_env()
        await self.api.register_restart_probe()

    async def get_server_info(self) -> None:
        """Get the trainer's settings, then start generating, since Atropos waits a few seconds."""
        await registration.adopt_trainer_settings(self)
        self.started_problems().fill()

    async def get_status(self) -> None:
        """Get the trainer's step; raises FixableError if the API or inference fails for good."""
        if self._groups.fatal is not None:
            raise self._groups.fatal
        await registration.follow_trainer(self, nodes=len(self.server.servers))
        await self.server.update_weight(self.status_dict["env_weight"])

    # One group: drawn, collected, delivered; or lost and retried.

    def started_problems(self) -> TrainingProblems:
        """Start the stream at its first use: it needs the replica's name."""
        if not self.problems.started:
            self.problems.start_stream(
                self.replica,
                prefetch=max(64, 2 * self.max_num_workers),
                held_out=self.evaluation.set.questions,
            )
        return self.problems

    async def get_next_item(self) -> Problem:
        """Return the next problem; raises FixableError if no prompt leaves room."""

        async def has_room(problem: Problem) -> bool:
            return await self.inference.has_room(problem.question, self.length_limit)

        return await self.started_problems().next(has_room)

    async def add_train_workers(self) -> None:
        """Start workers, for a moment at most: the loop looks at the trainer in between."""
        await self._groups.add_workers()

    async def handle_env(self, item_uuid: str) -> Any:
        """Collect and deliver an item's groups, as Atropos's own does."""
        item = self.running_items[item_uuid]["item"]
        begin = time.monotonic()
        groups = await self._groups.work_on(item, item_uuid, sends=True)
        self.running_items.pop(item_uuid, None)
        seconds = time.monotonic() - begin
        self.task_duration.append(seconds)
        self.task_successful.append(int(groups is not None))
        (self.succeeded_task_duration if groups else self.failed_task_duration).append(
            seconds
        )
        await self.cleanup()
        return groups

    async def collect_trajectories(
        self, item: Problem
    ) -> tuple[dict[str, Any] | None, list[Any]]:
        """Return a scored group, saved to disk; None if it is lost or unscored.

        If a worker is cancelled while its group is saved, the next request for the problem returns
        the group, so that it is neither lost nor stored twice.
        """
        if type(self).collect_trajectory is not BaseEnv.collect_trajectory:
            gathered: tuple[Any, list[Any]] = await super().collect_trajectories(item)
            return gathered
        subclass.require_problem(item, self.categories, type(self).__name__)
        group = await self._groups.collect(item)
        if group is None:
            return None, []
        if not group.scored:
            self.statistics.record(GroupOutcome.UNSCORED)
            return None, []
        with self.statistics.delivering():
            scored_data = to_scored_data_group(
                group,
                self.inference.prompt(item.question).messages,
                generation_params=self._parts.sampling.distribution,
                mask_truncated=self.config.mask_too_long_completions,
                include_messages=self.config.include_messages,
            )
        self.statistics.hand_out()
        return scored_data, []

    async def score(
        self, problem: Problem, completions: Sequence[Completion]
    ) -> GroupResult:
        """Score the completions of one problem, in their order; called once for each group."""
        return await grade(problem, completions, self._parts.pool, self._parts.scoring)

    async def handle_send_to_api(
        self,
        scored_data: Any,
        item: Any = None,
        do_send_to_api: bool = True,
        abort_on_any_max_length_exceeded: bool = True,
    ) -> None:
        """Check each group, then write and send it; cancelling the caller does not cancel that."""
        row_limit = self.max_token_len if abort_on_any_max_length_exceeded else 0
        groups = scored_data if isinstance(scored_data, list) else [scored_data]
        for group in groups:
            if group is not None:
                self.statistics.begin_delivery()
                delivery = self._groups.deliver(
                    group,
                    item,
                    sends=do_send_to_api,
                    row_limit=row_limit,
                )
                await self.delivery.finish(delivery)

    # Each round of Atropos's loop: evaluation, checkpoint, log.

    async def env_step_checks(self) -> None:
        """Evaluate, save a checkpoint and log if due at the trainer's step."""
        for measured in (
            self.completion_lengths,
            self.mainloop_timings,
            self.task_successful,
            self.workers_added_list,
        ):
            del measured[:-MOST_MEASUREMENTS]
        before = self.curr_step
        step = self.status_dict["current_step"]
        self.curr_step = step
        evaluation = self._parts.schedule.start_if_due(
            step, self.eval_runner, self.evaluate
        )
        if evaluation is not None:
            self.eval_runner = evaluation
            if self.config.eval_handling == EvalHandlingEnum.STOP_TRAIN:
                self._stop_workers()
        if step == before:
            return
        every = self.checkpoint_interval
        if every > 0 and step // every > before // every:
            due = step // every * every
            if type(self).save_checkpoint is ReasoningGymEnv.save_checkpoint:
                await self.checkpoints.save_async(due, self._checkpoint())
            else:
                self.save_checkpoint(due)
        if self.items_sent_this_step >= self.config.min_items_sent_before_logging:
            self.items_sent_this_step = 0
            await self.wandb_log({})

    def _stop_workers(self) -> None:
        """Let training wait for an evaluation: the problems at work come again."""
        self.backlog.extend(entry["item"] for entry in self.running_items.values())
        for worker in self.workers:
            worker.cancel()
        self.workers = set()
        self.running_items = {}

    def _evaluation_lock(self) -> Path:
        """Return the file that elects the replica which evaluates."""
        versions = self.identity()["library_versions"]
        key = self.evaluation.key(length_limit=self.length_limit, versions=versions)
        folder = Path(self.checkpoint_dir, "env_checkpoints")
        return folder / f"{self.config.wandb_name}.evaluation-{key}"

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Run the fixed evaluation set and write its metrics and samples."""
        if self.serving:
            self.inference.retry_evaluation_for(self.outage_seconds)
        try:
            await self.evaluation.run(
                step=self.trainer_step,
                length_limit=self.length_limit,
                identity=self.identity(),
            )
        except Exception as error:
            self.statistics.counts["evaluation/failures"] += 1
            if self.serving:  # nothing awaits the evaluation
                is_bug = not isinstance(error, FixableError)
                logger.error("The evaluation failed: %s", error, exc_info=is_bug)
            raise

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """This replica's checkpoints, once the API has named it."""
        folder = Path(self.checkpoint_dir, "env_checkpoints", str(self.wandb_prepend))
        return Checkpoints(folder, self.statistics.counts, self._parts.pool.versions)

    def save_checkpoint(self, step: int, data: dict[str, Any] | None = None) -> None:
        """Write the training stream's state and `data` atomically; failures are only logged."""
        self.checkpoints.save(step, {**(data or {}), **self._checkpoint()})

    def _checkpoint(self) -> dict[str, Any]:
        return resume.checkpoint(self)

    def load_checkpoint(self) -> None:
        """Continue the newest checkpoint up to the trainer's step; raises FixableError."""
        for name, value in resume.continue_checkpoint(self).items():
            setattr(self, name, value)  # what a subclass saved

    # Metrics.

    async def add_rollouts_for_wandb(
        self, scored_data: Any, item: Problem | None = None
    ) -> None:
        """Keep some rollouts of a delivered group for the rollout table."""
        self.statistics.counts["groups/accepted"] += 1
        if not self.config.use_wandb or self.tokenizer is None:
            return
        rows = await self._parts.metrics.rollout_rows(
            self.tokenizer, scored_data, item, self.curr_step
        )
        self.rollouts_for_wandb.append(rows)  # Atropos may have replaced the list
        del self.rollouts_for_wandb[: -self.config.num_rollouts_to_keep]

    async def create_rollout_table(
        self, wandb_metrics: dict[str, Any]
    ) -> dict[str, Any]:
        if self.config.use_wandb and self.rollouts_for_wandb:
            wandb_metrics["train/rollouts"] = output.rollout_table(
                self.rollouts_for_wandb
            )
        return wandb_metrics

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        """Log the run metrics since the last call, and the last evaluation."""
        stats = self.get_curriculum_stats()
        metrics = await self.create_rollout_table(
            {
                **(wandb_metrics or {}),
                **self.perf_stats({}),
                **self._parts.metrics.take_report(stats, self.categories),
                **self.evaluation.take_curves(),
            }
        )
        self.rollouts_for_wandb.clear()
        self.completion_lengths.clear()
        self._parts.metrics.log(metrics, self.curr_step)

    def get_curriculum_stats(self) -> dict[str, Any]:
        """Return the curriculum's state."""
        return self.problems.curriculum_stats()
