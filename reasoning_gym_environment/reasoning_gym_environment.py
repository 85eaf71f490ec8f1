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

import asyncio
import functools
import gc
import logging
import shlex
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import aiohttp
import wandb
from atroposlib.envs.base import BaseEnv, EvalHandlingEnum
from tenacity import RetryError  # which ends the retries of atroposlib

from reasoning_gym_environment.atropos import output, parts, registration, subclass
from reasoning_gym_environment.atropos.config import (
    AtroposServer,
    ReasoningGymEnvConfig,
    ServerConfig,
    chat_template_text,
    loading_tokenizer,
    require_usable,
    with_template,
)
from reasoning_gym_environment.atropos.delivery import Delivery
from reasoning_gym_environment.atropos.evaluation_schedule import EvaluationSchedule
from reasoning_gym_environment.atropos.group_loop import GroupLoop
from reasoning_gym_environment.atropos.launch import run
from reasoning_gym_environment.atropos.rows import to_scored_data_group
from reasoning_gym_environment.atropos.shared_curriculum import (
    ProblemSource,
    shared_curriculum,
)
from reasoning_gym_environment.atropos.trainer_api import TrainerApi, stopped_answering
from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.evaluation.run import Evaluation
from reasoning_gym_environment.inference.prompts import resolve_system_prompt
from reasoning_gym_environment.problems.sampler import sampling_metrics
from reasoning_gym_environment.problems.training import TrainingProblems
from reasoning_gym_environment.records import Completion, GroupResult, Problem
from reasoning_gym_environment.rollouts.accounting import GroupOutcome, Statistics
from reasoning_gym_environment.rollouts.progress import ProgressReporter, signal_lines
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.sandbox.worker_groups import StartWorker
from reasoning_gym_environment.scoring.grading import grade
from reasoning_gym_environment.settings import (
    RunFlags,
    Settings,
    pool_settings,
    scoring_settings,
)
from reasoning_gym_environment.storage.checkpoints import STREAM, Checkpoints
from reasoning_gym_environment.util.concurrency import graceful_shutdown, offload
from reasoning_gym_environment.util.logs import (
    SecretRedactor,
    ensure_handler,
    exit_status,
)
from reasoning_gym_environment.util.outages import (
    LogThrottle,
    require_reachable,
)

logger = logging.getLogger(__name__)


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
        output.redact_api_keys(config.data_dir_to_save_evals)
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
            super().__init__(
                config,
                server_configs,
                slurm=slurm,
                testing=testing,
            )
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
        self._wandb_throttle = LogThrottle()
        self._is_set_up = False
        self._reported_sampling: Counter[str] = Counter()
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
        self.statistics = Statistics()
        counts = self.statistics.counts
        self._pool = TaskPool(pool_settings(config), counts, start_worker=start_worker)
        self.problems = parts.training_problems(config, self._pool, counts)
        self.inference = parts.inference_client(
            self.server, self.tokenizer, system_prompt
        )
        self._dumps = parts.dump_writer(config, self.run_id, counts)
        self._record = parts.run_recorder(
            config, self.run_id, self._dumps, self.inference, self._recorded_state
        )
        self._sampling = parts.training_sampling(config)
        self._scoring = scoring_settings(config)
        self.evaluation = Evaluation(
            parts.evaluation_settings(
                config, model=self.inference.model, run_id=self.run_id
            ),
            self.inference,
            self._pool,
            counts,
        )
        self.api = TrainerApi(config.rollout_server_url)
        vocabulary = len(self.tokenizer) if self.tokenizer else 0
        file = config.data_path_to_save_groups
        self.delivery = Delivery(self.api, self.statistics, vocabulary, file)
        self._schedule = EvaluationSchedule(
            config.steps_per_eval, self._evaluation_lock
        )
        self._source = ProblemSource(self.problems, shared_curriculum(config, counts))
        self.progress = ProgressReporter(
            self.statistics,
            waiting=lambda: [self.inference.failover.waiting, self.api.waiting],
        )
        self._groups = GroupLoop(
            self,
            self._dumps,
            sampling=self._sampling,
            scoring=self._scoring,
            observers=[
                self._source.group_finished,
                self.statistics.group_finished,
                self.progress.group_finished,
            ],
            max_losses=self.max_consecutive_losses,
        )

    def _recorded_state(self) -> dict[str, Any]:
        """Return the changing fields of the run's record."""
        counts = self.statistics.counts
        return {
            "waiting": self.inference.failover.waiting,
            "failures": self._groups.backoff.failures,
            "lost": counts["dumps/lost"],
            "deleted": counts["dumps/deleted_files"],
        }

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
        env, config = cls.config_init()
        defaults = Settings(env=env, servers=config, flags=RunFlags())
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
        versions = {**self._pool.versions, **output.VERSIONS}
        return {
            "run": self.run_id,
            "replica": self.replica,
            "library_versions": versions,
        }

    # The commands, from setup to close.

    async def env_manager(self) -> None:
        """Serve a trainer until training ends; raises FixableError if that is not possible."""
        url = self.config.rollout_server_url
        logging_progress = self.progress.logging_every(self.progress_interval)
        async with graceful_shutdown(self.close), logging_progress:
            self._require_tokenizer("serve trains on tokens")
            await self.prepare()
            await require_reachable(
                [url],
                what="the Atropos API",
                hint="start it with `run-api`, or set --env.rollout_server_url",
                seconds=self.reach_seconds,
            )
            # Atropos's own requests at the start hang for minutes.
            await self.api.request("GET", "/info")
            try:
                await super().env_manager()
            except (aiohttp.ClientError, RetryError) as error:
                raise stopped_answering(url, error) from error
            # The inference server may have ended with the training.
            self.inference.give_up_after(self.failing_seconds)
            at = self.curr_step, self.config.total_steps
            logger.info(
                "Training ends at step %d, with what waits past total_steps %d", *at
            )
            if self.eval_runner is not None and not self.eval_runner.done():
                logger.info("Waiting for the final evaluation")
                await asyncio.gather(self.eval_runner, return_exceptions=True)
            await self.wandb_log()

    async def process_manager(self) -> None:
        """Collect `n_groups_to_process` groups, fewer without items; failed ones do not count."""
        self.inference.give_up_after(self.failing_seconds)
        logging_progress = self.progress.logging_every(self.progress_interval)
        async with graceful_shutdown(self.close), logging_progress:
            if self.config.data_path_to_save_groups:
                self._require_tokenizer("data_path_to_save_groups stores tokens")
            await self.setup()
            await ReasoningGymEnv.setup(self)
            if self.config.use_wandb:
                output.start_wandb(self.config, self.run_id)
            self.config.group_size = self.group_size_to_process
            self.curr_step = 0
            while self.curr_step < self.n_groups_to_process:
                item = (
                    self.backlog.pop() if self.backlog else await self.get_next_item()
                )
                if item is None:
                    logger.info("get_next_item returned None: no more items to process")
                    break
                if await self._groups.work_on(item, sends=False) is not None:
                    await self.wandb_log()
                    self.curr_step += 1
                if self._groups.fatal is not None:
                    raise self._groups.fatal
                await asyncio.sleep(0)  # a subclass may never wait for anything
        collected = self.statistics.counts["groups/collected"]
        output.describe_output(self.config, self.run_id, collected=collected)

    async def _run_evaluate(self) -> None:
        self.trains = False
        self.inference.give_up_after(self.failing_seconds)
        async with graceful_shutdown(self.close):
            await self.setup()
            await ReasoningGymEnv.setup(self)
            await self.evaluate()
        if self.evaluation.has_run:  # a subclass may have an evaluation of its own
            self.evaluation.show(sys.stdout)
            self.evaluation.require_complete()

    def _require_tokenizer(self, why: str) -> None:
        """Raise ConfigurationError if there is none."""
        if self.tokenizer is None:
            raise ConfigurationError(
                f"{why}, so it needs the model's tokenizer: set --env.tokenizer_name"
            )

    async def prepare(self) -> None:
        """Start the worker processes and select the tasks; raises FixableError. Idempotent."""
        if self.categories:
            return
        logger.info("Starting the task processes")
        await self._pool.start()
        await self.problems.prepare(with_ladders=bool(self.config.eval_difficulties))
        self.statistics.categories = self.categories

    async def setup(self) -> None:
        """Prepare, check the inference servers, plan the evaluation set; idempotent.

        Raises:
            UnreachableError: no inference server answers.
            ConfigurationError: a server rejects requests or lacks what the configuration requires.
        """
        if self._is_set_up:
            return
        ensure_handler(SecretRedactor(self.inference.keys))
        await self.prepare()
        config = self.config
        evaluates = not self.trains or (self.serves and config.steps_per_eval > 0)
        await self.inference.require_servers(
            self.reach_seconds,
            length_limit=self.length_limit,
            sampling=self._sampling if self.trains else None,
            evaluation=self.evaluation.settings.sampling if evaluates else None,
            serves=self.serves,
        )
        if "temperature" in self.inference.refused:
            self.evaluation.temperature = None
        if self.trains:
            await self._source.start()
        selected = self.problems.selection
        self.evaluation.prepare(
            self._pool.generate, selected.categories, selected.ladders
        )
        gc.collect()
        gc.freeze()  # collecting all that Atropos imports stalls the loop for 80 ms
        sizes = len(self.categories), len(self.evaluation.set)
        logger.info(
            "Set up: %d tasks, %d evaluation items, run %s", *sizes, self.run_id
        )
        if self.trains and config.dumped_kinds:
            command = "serve" if self.serves else "process"
            self._record.start(
                output.run_description(
                    config,
                    command,
                    self.inference,
                    tasks=sorted(self.categories),
                    versions=self.identity()["library_versions"],
                )
            )
        self._is_set_up = True

    async def close(self) -> None:
        """Stop the workers, then close every part, even if another fails to. Idempotent."""
        if self._closed:
            return
        self._closed = True
        async with AsyncExitStack() as last_first:
            last_first.callback(self._report)
            last_first.callback(output.delete_empty_groups_file, self.config)
            if self.serving:
                last_first.push_async_callback(self.api.disconnect, self.env_id)
            last_first.callback(self._schedule.close)
            last_first.push_async_callback(self.inference.close)
            last_first.push_async_callback(self._end_saves)
            last_first.callback(self._record.close)
            last_first.push_async_callback(self._pool.close)
            last_first.push_async_callback(self._source.close)
            last_first.push_async_callback(self.delivery.close)
            others = filter(None, [self.eval_runner, self._groups.drawing])
            running = [*self.workers, *self.eval_workers, *others]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _end_saves(self) -> None:
        """Close the writers, and record the groups whose workers were cancelled during the save."""
        disks = [self._dumps.close, self.delivery.close_file]
        if "checkpoints" in self.__dict__:
            disks.append(self.checkpoints.close)
        # Each waits 10 s if it hangs.
        await asyncio.gather(*map(asyncio.to_thread, disks))
        await self._groups.end_saves()

    def _report(self) -> None:
        """Report the outcome of all groups in the log and in wandb."""
        if self.serving and self._dumps.written:
            folder = shlex.quote(self.config.data_dumps_dir)
            logger.info(
                "To see the rollouts: reasoning-gym-environment report %s", folder
            )
        output.report_run(
            self.statistics,
            serving=self.serving,
            has_all_groups=self.serving or self.processing,
        )
        if self.serving and wandb.run is not None:
            with output.surviving_wandb(self._wandb_throttle):
                counts = self.statistics.counts
                wandb.run.summary.update(
                    {f"perf/{name}": counts[name] for name in output.CURVES}
                )

    # Atropos's API: registration and the trainer's step.

    async def setup_wandb(self) -> None:
        """Start the wandb run under the trainer's project; raises FixableError if wandb refuses."""
        await ReasoningGymEnv.setup(self)  # a subclass's own may not have called it
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
        config = self.config
        self.status_dict = await self.api.status(
            self.env_id,
            group_size=config.group_size,
            batch_size=config.batch_size,
            inference_weight=config.inference_weight,
            min_batch_allocation=config.min_batch_allocation,
        )
        step = self.status_dict["current_step"]
        if step < self.curr_step:
            raise self.api.mark_lost(
                f"it went back from step {self.curr_step} to step {step}"
            )
        self.max_num_workers = config.max_num_workers
        if config.max_num_workers == -1:
            self.max_num_workers = config.max_num_workers_per_node * len(
                self.server.servers
            )
        await self.server.update_weight(self.status_dict["env_weight"])

    # One group: drawn, collected, delivered; or lost and retried.

    def started_problems(self) -> TrainingProblems:
        """Start the stream at its first use: it needs the replica's name."""
        if not self.problems.started:
            self.problems.start_stream(
                self.replica,
                prefetch=max(64, 2 * self.max_num_workers),
                excluded=self.evaluation.set.questions,
            )
        return self.problems

    async def get_next_item(self) -> Problem:
        """Return the next problem; raises FixableError if no prompt leaves room."""

        async def has_room(problem: Problem) -> bool:
            return await self.inference.has_room(problem.question, self.length_limit)

        self.started_problems()
        return await self._source.next(has_room)

    async def add_train_workers(self) -> None:
        """Start workers for a moment at most: Atropos's loop looks at the trainer in between."""
        await self._groups.add_workers()

    async def handle_env(self, item_uuid: str) -> Any:
        """Collect and deliver an item's groups, as Atropos's own does."""
        item = self.running_items[item_uuid]["item"]
        begin = time.monotonic()
        groups = await self._groups.work_on(item, item_uuid, sends=True)
        self.running_items.pop(item_uuid, None)
        seconds = time.monotonic() - begin
        self.task_duration.append(seconds)
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
                generation_params=self._sampling.distribution,
                mask_truncated=self.config.mask_too_long_completions,
                include_messages=self.config.include_messages,
            )
        self.statistics.hand_out()
        return scored_data, []

    async def score(
        self, problem: Problem, completions: Sequence[Completion]
    ) -> GroupResult:
        """Score the completions of one problem, in their order; called once for each group."""
        return await grade(problem, completions, self._pool, self._scoring)

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
        before = self.curr_step
        step = self.status_dict["current_step"]
        self.curr_step = step
        evaluation = self._schedule.start_if_due(step, self.eval_runner, self.evaluate)
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
            self.inference.retry_seconds["eval"] = self.outage_seconds
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
        return Checkpoints(folder, self.statistics.counts, self._pool.versions)

    def save_checkpoint(self, step: int, data: dict[str, Any] | None = None) -> None:
        """Write the training stream's state and `data` atomically; failures are only logged."""
        self.checkpoints.save(step, {**(data or {}), **self._checkpoint()})

    def _checkpoint(self) -> dict[str, Any]:
        """Return the stream's state: a resumed run starts with what was not trained on."""
        items = [
            *(entry["item"] for entry in self.running_items.values()),
            *self.backlog,
        ]
        unfinished = [item for item in items if isinstance(item, Problem)]
        return {STREAM: self.started_problems().state_dict(unfinished)}

    def load_checkpoint(self) -> None:
        """Continue the newest checkpoint up to the trainer's step; raises FixableError."""
        path = self.checkpoints.newest(self.curr_step)
        if path is None:
            logger.warning(
                "No checkpoint for step %s of %s below %r: starting the training stream from the "
                "beginning",
                self.curr_step,
                self.wandb_prepend,
                str(self.checkpoint_dir),
            )
            return
        try:
            accept_changed = self.config.accept_changed_modules
            content = self.checkpoints.read(path, accept_changed=accept_changed)
            self.started_problems().load_state_dict(content.pop(STREAM))
        except ValueError as error:
            raise FixableError(
                f"the checkpoint {path} can't be continued: {error}; delete it to continue the one "
                "before it or, without one, to restart the training stream"
            ) from error
        self.__dict__.update(content)  # what a subclass saved
        logger.info("Continued %s at the trainer's step %d", path, self.curr_step)

    # Metrics.

    async def add_rollouts_for_wandb(
        self, scored_data: Any, item: Problem | None = None
    ) -> None:
        """Keep some rollouts of a delivered group for the rollout table."""
        self.statistics.counts["groups/accepted"] += 1
        if not self.config.use_wandb or self.tokenizer is None:
            return
        keep = self.config.num_rollouts_per_group_for_logging
        more = {"keep": keep, "step": self.curr_step}
        make = functools.partial(
            output.rollout_rows, self.tokenizer, scored_data, item, **more
        )
        tokens = sum(map(len, scored_data["tokens"][: None if keep == -1 else keep]))
        rows = await offload(make, tokens=tokens)
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
        for line in signal_lines(self.statistics.interval, self.categories.values()):
            logger.debug("Since the last report: %s", line)
        counted = self.statistics.take_report()
        stats = self.get_curriculum_stats()
        levels = self._source.level_metrics(stats, self.categories)
        sampled = self.problems.sampling - self._reported_sampling
        self._reported_sampling = self.problems.sampling.copy()
        curves = self.evaluation.take_curves()
        metrics = {
            **(wandb_metrics or {}),
            **self.perf_stats({}),
            **counted,
            **levels,
            **curves,
        }
        metrics = await self.create_rollout_table(metrics | sampling_metrics(sampled))
        self.rollouts_for_wandb.clear()
        # Atropos's own would log other keys, with the replica's name.
        if self.config.use_wandb:
            with output.surviving_wandb(self._wandb_throttle):
                wandb.log(output.grouped(metrics), step=self.curr_step)

    def get_curriculum_stats(self) -> dict[str, Any]:
        """Return the curriculum's state."""
        return self.problems.curriculum_stats()
