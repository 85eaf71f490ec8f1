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
import copy
import functools
import gc
import logging
import os
import shlex
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import aiohttp
import wandb
from atroposlib.envs.base import BaseEnv, EvalHandlingEnum
from tenacity import RetryError  # which ends the retries of atroposlib

from reasoning_gym_environment.atropos import output, subclass
from reasoning_gym_environment.atropos.config import (
    AtroposServer,
    ReasoningGymEnvConfig,
    ServerConfig,
    chat_template_text,
    evaluation_settings,
    loading_tokenizer,
    with_template,
)
from reasoning_gym_environment.atropos.delivery import Delivery
from reasoning_gym_environment.atropos.launch import run
from reasoning_gym_environment.atropos.rows import completed, task_of, to_scored_data_group
from reasoning_gym_environment.atropos.shared_curriculum import SharedCurriculum
from reasoning_gym_environment.atropos.trainer_api import LostStateError, TrainerApi
from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.evaluation.run import Evaluation, LeaderElection
from reasoning_gym_environment.inference.client import InferenceClient
from reasoning_gym_environment.inference.dialects import SamplingParams
from reasoning_gym_environment.inference.errors import InferenceError
from reasoning_gym_environment.inference.prompts import resolve_system_prompt
from reasoning_gym_environment.problems.levels import curriculum_metrics
from reasoning_gym_environment.problems.sampler import sampling_metrics
from reasoning_gym_environment.problems.training import TrainingProblems
from reasoning_gym_environment.records import Completion, GroupResult, Problem, recipe_key
from reasoning_gym_environment.rollouts.accounting import GroupOutcome, Statistics
from reasoning_gym_environment.rollouts.progress import ProgressReporter, signal_line, signal_lines
from reasoning_gym_environment.rollouts.rollouts import FailureBackoff, Rollouts
from reasoning_gym_environment.sandbox.pool import StartWorker, TaskPool
from reasoning_gym_environment.scoring.grading import ScoringSettings
from reasoning_gym_environment.settings import RunFlags, Settings, pool_settings, settings_of
from reasoning_gym_environment.storage.checkpoints import STREAM, Checkpoints
from reasoning_gym_environment.storage.dumps import DumpWriter, RunRecorder
from reasoning_gym_environment.util.concurrency import graceful_shutdown, offload
from reasoning_gym_environment.util.logs import SecretRedactor, ensure_handler, exit_status
from reasoning_gym_environment.util.outages import Outage, UnreachableError, require_reachable

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
    failing_seconds = 20.0  # how long `process` and `evaluate` retry while all requests fail
    outage_seconds = 600.0  # how long an evaluation does so while serving; training never stops
    max_consecutive_losses = 5  # then `process` gives up; `serve` if the errors are permanent

    def __init__(
        self,
        config: ReasoningGymEnvConfig,
        server_configs: Any,
        slurm: bool = False,
        testing: bool = False,
        *,
        start_worker: StartWorker | None = None,
    ) -> None:
        output.redact_api_keys(config.data_dir_to_save_evals)  # first, whatever fails later
        if testing:
            raise ConfigurationError(
                "testing must be false: Atropos's mock server completes no prompt; without a model "
                "try `reasoning-gym-environment demo`"
            )
        servers = server_configs if isinstance(server_configs, list) else [server_configs]
        if not servers:
            raise ConfigurationError("server_configs is empty: give the settings of a server")
        config.require_places()
        if slurm and "SLURM_JOB_NODELIST" not in os.environ:
            raise ConfigurationError("slurm: SLURM_JOB_NODELIST is not set; or set --slurm false")
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
            self.jsonl_writer.close()  # it loses groups on a full disk; `Delivery` writes them
        try:
            self.tokenizer = with_template(self.tokenizer, config, template, system_prompt)
        except ConfigurationError:
            output.delete_empty_groups_file(config)
            raise
        self.run_id = str(uuid.uuid4())
        self._fatal: FixableError | None = None
        self._closed = False
        self._drawing: asyncio.Task[None] | None = None
        self._election: LeaderElection | None = None
        self._shared: SharedCurriculum | None = None
        self._wandb_failure = Outage()
        self._is_set_up = False
        self._limit = subclass.FailureLimit(type(self).__name__, self.max_consecutive_losses)
        self._reported_sampling: Counter[str] = Counter()
        self._retries: Counter[str] = Counter()
        # Saves whose workers were cancelled; the next worker on the problem takes one over.
        self._orphaned_saves: list[tuple[tuple[str, str], asyncio.Task[GroupResult]]] = []
        self._make_parts(config, system_prompt, start_worker)
        if config.suppress_base_env_logs:
            logging.getLogger("atroposlib.envs.base").setLevel(logging.WARNING)
        if config.debug_logging:
            logging.getLogger("reasoning_gym_environment").setLevel(logging.DEBUG)

    def _make_parts(
        self, config: ReasoningGymEnvConfig, system_prompt: str, start_worker: StartWorker | None
    ) -> None:
        self.statistics = Statistics()
        counts = self.statistics.counts
        self._pool = TaskPool(pool_settings(config), counts, start_worker=start_worker)
        self.problems = TrainingProblems(
            config,
            self._pool,
            counts,
            tasks=config.include_tasks,
            seed=config.seed,
            skip_faulty_items=config.skip_faulty_items,
            max_token_length=config.max_token_length,
        )
        self.inference = InferenceClient(
            [server.client for server in self.server.servers],
            self.tokenizer,
            system_prompt=system_prompt,
            max_n=self.server.max_n_completions,
        )
        for server in self.server.servers:
            server.inference = self.inference
            server.tokenizer = self.tokenizer
        self._make_dumps(config)
        self._sampling = settings_of(SamplingParams, config, split="train")
        self._rollouts = Rollouts(
            self.inference,
            self._pool,
            self._dumps,
            scoring=settings_of(ScoringSettings, config),
            dumped_kinds=config.dumped_kinds,
            save_threshold=config.rollout_save_score_threshold,
        )
        self.evaluation = Evaluation(
            evaluation_settings(config, model=self.inference.model, run_id=self.run_id),
            self._rollouts,
            counts,
        )
        self.api = TrainerApi(config.rollout_server_url)
        vocabulary = len(self.tokenizer) if self.tokenizer else 0
        file = config.data_path_to_save_groups
        self.delivery = Delivery(self.api, self.statistics, vocabulary, file)
        self.backoff = FailureBackoff()
        self.progress = ProgressReporter(
            self.statistics, waiting=lambda: [self.inference.failover.waiting, self.api.waiting]
        )
        self._observers: list[Callable[[GroupResult], None]] = [
            self.backoff.group_finished,
            self.problems.group_finished,
            self.statistics.group_finished,
            self.progress.group_finished,
        ]

    def _make_dumps(self, config: ReasoningGymEnvConfig) -> None:
        counts = self.statistics.counts
        folder = Path(config.data_dumps_dir)
        self._dumps = DumpWriter(
            folder,
            self.run_id,
            counts,
            synced=config.sync_dumps,
            max_bytes=config.max_dump_bytes,
        )
        self._record = RunRecorder(
            folder,
            self.run_id,
            disk=self._dumps.disk,
            redactor=SecretRedactor(self.inference.keys),
            state=lambda: {
                "waiting": self.inference.failover.waiting,
                "failures": self.backoff.failures,
                "lost": counts["dumps/lost"],
                "deleted": counts["dumps/deleted_files"],
            },
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
        return {"run": self.run_id, "replica": self.replica, "library_versions": versions}

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
                cause: BaseException = error  # Atropos nests its retries
                while isinstance(cause, RetryError) and (inner := cause.last_attempt.exception()):
                    cause = inner
                raise UnreachableError(
                    f"the Atropos API at {url} stopped answering ({cause}): "
                    "restart it, the trainer and this environment"
                ) from error
            self.inference.give_up_after(self.failing_seconds)  # it may have ended as well
            at = self.curr_step, self.config.total_steps
            logger.info("Training ends at step %d, with what waits past total_steps %d", *at)
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
                item = self.backlog.pop() if self.backlog else await self.get_next_item()
                if item is None:
                    logger.info("get_next_item returned None: no more items to process")
                    break
                if await self._work_on(item, sends=False) is not None:
                    await self.wandb_log()
                    self.curr_step += 1
                if self._fatal is not None:
                    raise self._fatal
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
        if self.trains and config.curriculum_url is not None:
            options = {
                **config.task_options(),
                "tasks": config.include_tasks,
                "seed": config.seed,
                "group_size": config.group_size,
                "replica": "shared",
            }
            self._shared = SharedCurriculum(config.curriculum_url, options, self.statistics.counts)
            await self._shared.start()
            self._observers.append(self._shared.group_finished)
        selected = self.problems.selection
        self.evaluation.prepare(self._pool.generate, selected.categories, selected.ladders)
        gc.collect()
        gc.freeze()  # collecting all that Atropos imports stalls the loop for 80 ms
        sizes = len(self.categories), len(self.evaluation.set)
        logger.info("Set up: %d tasks, %d evaluation items, run %s", *sizes, self.run_id)
        if self.trains and config.dumped_kinds:
            shown = {"seed", "group_size", "temperature", "top_p", "max_token_length"}
            shown |= {"score_mode", "complexity_mode", "sampling"}
            about = {
                "command": "serve" if self.serves else "process",
                "model_name": self.inference.model,
                "server_type": self.inference.server_type,
                "name": config.wandb_name,
                **config.model_dump(mode="json", include=shown),
                "tasks": sorted(self.categories),
                "library_versions": self.identity()["library_versions"],
            }
            self._record.start(about)
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
            if self._election is not None:
                last_first.callback(self._election.close)
            last_first.push_async_callback(self.inference.close)
            last_first.push_async_callback(self._end_saves)
            last_first.callback(self._record.close)
            last_first.push_async_callback(self._pool.close)
            last_first.callback(self.problems.close)
            if self._shared is not None:
                last_first.push_async_callback(self._shared.close)
            last_first.push_async_callback(self.delivery.close)
            others = filter(None, [self.eval_runner, self._drawing])
            running = [*self.workers, *self.eval_workers, *others]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _end_saves(self) -> None:
        """Close the writers, and record the groups whose workers were cancelled during the save."""
        disks = [self._dumps.close, self.delivery.close_file]
        if "checkpoints" in self.__dict__:
            disks.append(self.checkpoints.close)
        await asyncio.gather(*map(asyncio.to_thread, disks))  # each waits 10 s if it hangs
        saves = [save for _, save in self._orphaned_saves]
        for save in saves:
            if not save.cancel() and not save.exception():
                self.statistics.record(GroupOutcome.CANCELLED)
        await asyncio.gather(*saves, return_exceptions=True)

    def _report(self) -> None:
        """Report the outcome of all groups in the log and in wandb."""
        if self.serving and self._dumps.written:
            folder = shlex.quote(self.config.data_dumps_dir)
            logger.info("To see the rollouts: reasoning-gym-environment report %s", folder)
        unaccounted = self.statistics.unaccounted()
        if self.serving or unaccounted:  # else there were no groups: a failed start, or `evaluate`
            logger.info("Groups: %s", self.statistics.accounting())
            logger.info("Closed after %s", signal_line(self.statistics.total))
        counts = self.statistics.counts
        if counts:
            said = ", ".join(f"{n:,} {name}" for name, n in sorted(counts.items()))
            logger.info("Counts of this run: %s", said)
        has_all_groups = self.serving or self.processing  # otherwise a caller has them
        if has_all_groups and any(unaccounted.values()):
            logger.error("Group accounting mismatch: %s", unaccounted)
        if self.serving and wandb.run is not None:
            with output.surviving_wandb(self._wandb_failure):
                wandb.run.summary.update({f"perf/{name}": counts[name] for name in output.CURVES})

    # Atropos's API: registration and the trainer's step.

    async def setup_wandb(self) -> None:
        """Start the wandb run under the trainer's project; raises FixableError if wandb refuses."""
        await ReasoningGymEnv.setup(self)  # a subclass's own may not have called it
        if not self.config.use_wandb:
            return
        got = await self.api.until_trainer("GET", "/wandb_info", interval=self.progress_interval)
        output.start_wandb(
            self.config,
            self.run_id,
            group=got.get("group"),
            project=got["project"],
        )

    async def _register_env(self) -> dict[str, Any]:
        """Claim the configured replica's name, if any, and register; return the API's reply."""
        config = self.config
        register = functools.partial(
            self.api.until_trainer, "POST", "/register-env", interval=self.progress_interval
        )
        if config.replica:
            self.checkpoint_dir = (await register(self.api.note_probe))["checkpoint_dir"]
            self.wandb_prepend = f"{config.wandb_name}_{config.replica}"
            note = await self.checkpoints.claim()
            await self.api.disconnect_stale_registration(note, keep=self.checkpoints.leave_note)
        body = {
            "max_token_length": config.max_token_length,
            "desired_name": config.wandb_name,
            "weight": config.inference_weight,
            "min_batch_allocation": config.min_batch_allocation,
            "group_size": config.group_size,
        }
        data = await register(body)
        self.env_id = data["env_id"]  # from here on, closing tells the API
        if 0 <= config.total_steps < data["num_steps"]:
            message = "This environment ends after step %d, the trainer wants %d: %s"
            hint = "set --env.total_steps, -1 for the trainer's"
            logger.warning(message, config.total_steps, data["num_steps"], hint)
        if config.replica:
            data["wandb_name"] = self.wandb_prepend
            if data["checkpoint_dir"] != self.checkpoint_dir:  # the claimed name is not there
                raise LostStateError("another trainer has begun: start this environment again")
        self.wandb_prepend = data["wandb_name"]
        self.checkpoint_dir = data["checkpoint_dir"]
        # a checkpoint holds the token budget: the trainer's limit comes before it
        self.max_token_len = (await self.api.request("GET", "/info"))["max_token_len"]
        self.problems.max_token_length = self.length_limit
        if not (config.replica and self.checkpoints.leave_note(self.api.note(self.env_id))):
            self.api.warn_of_stale_registration(self.env_id, config.min_batch_allocation)
        saves = data["checkpoint_interval"] > 0
        if saves:
            self.checkpoints.require_writable()
        if saves and not config.replica:
            await self.checkpoints.claim()
        if saves and data["starting_step"] == 0:
            self.save_checkpoint(0)
        return data

    async def register_env(self) -> None:
        await super().register_env()
        await self.api.register_restart_probe()

    async def get_server_info(self) -> None:
        """Get the trainer's settings, then start generating, since Atropos waits a few seconds."""
        info = await self.api.request("GET", "/info")
        config = self.config
        if info["batch_size"] != -1:
            config.batch_size = info["batch_size"]
        if config.group_size > config.batch_size:
            raise ConfigurationError(
                f"group_size ({config.group_size}) must be at most the trainer's batch_size "
                f"({config.batch_size}): lower --env.group_size"
            )
        if 0 < self.max_token_len < config.max_token_length:
            self.problems.limit = f"the trainer's max_token_len {self.max_token_len}"
            message = "max_token_length %d becomes %d: rows must be shorter than %s"
            logger.warning(message, config.max_token_length, self.length_limit, self.problems.limit)
        self._started_problems().fill()

    async def get_status(self) -> None:
        """Get the trainer's step; raises FixableError if the API or inference fails for good."""
        if self._fatal is not None:
            raise self._fatal
        status = functools.partial(self.api.status, self.env_id)
        self.status_dict = await settings_of(status, self.config)
        step = self.status_dict["current_step"]
        if step < self.curr_step:
            raise self.api.mark_lost(f"it went back from step {self.curr_step} to step {step}")
        nodes = len(self.server.servers)
        config = self.config
        most = config.max_num_workers
        self.max_num_workers = config.max_num_workers_per_node * nodes if most == -1 else most
        await self.server.update_weight(self.status_dict["env_weight"])

    # One group: drawn, collected, delivered; or lost and retried.

    def _started_problems(self) -> TrainingProblems:
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

        problems = self._started_problems()
        if self._shared is not None and (shared := await self._shared.next()):
            recipe, replayed = shared
            problem = await problems.make(recipe, has_room)
            if problem:
                return replace(problem, replayed=replayed)
            self._shared.withdraw(recipe)
        return await problems.next(has_room)

    async def add_train_workers(self) -> None:
        """Start workers for a moment at most: Atropos's loop looks at the trainer in between."""
        end = time.monotonic() + 0.5

        async def draw() -> None:
            self.backlog.append(await self.get_next_item())

        async def draw_in_time() -> Any:
            if self._fatal is not None or time.monotonic() > end:
                return None  # which ends the round
            self._drawing = self._drawing or asyncio.create_task(draw())
            await asyncio.wait({self._drawing}, timeout=end - time.monotonic())
            if self._drawing.done():  # else the next round waits for it
                drawn = self._drawing
                self._drawing = None
                drawn.result()
            return self.backlog.pop() if self.backlog else None

        # Atropos draws until it has enough; this copy returns None after half a second. What a
        # subclass calls on itself stays its own.
        time_boxed_view: Any = copy.copy(self)
        time_boxed_view.get_next_item = draw_in_time
        time_boxed_view.handle_env = self.handle_env
        await BaseEnv.add_train_workers(time_boxed_view)

    async def handle_env(self, item_uuid: str) -> Any:
        """Collect and deliver an item's groups, as Atropos's own does."""
        item = self.running_items[item_uuid]["item"]
        begin = time.monotonic()
        groups = await self._work_on(item, item_uuid, sends=True)
        self.running_items.pop(item_uuid, None)
        seconds = time.monotonic() - begin
        self.task_duration.append(seconds)
        (self.succeeded_task_duration if groups else self.failed_task_duration).append(seconds)
        await self.cleanup()
        return groups

    async def _work_on(self, item: Any, item_uuid: str = "", *, sends: bool) -> Any:
        """Collect and deliver an item's groups; return them, or None if none counts."""
        groups = None
        try:
            with self.statistics.working(lost_on=InferenceError) as work:
                try:
                    if self.serving:
                        await self.backoff.wait()
                    groups, backlog = await subclass.collect_groups(self, item)
                    self.backlog.extend(backlog)
                    self.running_items.pop(item_uuid, None)
                    await self.handle_send_to_api(groups, item, do_send_to_api=sends)
                except asyncio.CancelledError:  # its problem is retried unless it was delivered
                    kept = [*self.backlog, *(e["item"] for e in self.running_items.values())]
                    if not work["delivered"] and not any(item is one for one in kept):
                        self._retry(item)
                    raise
        except InferenceError as error:
            self._handle_lost_group(item, error)
        except Exception as error:  # noqa: BLE001 - logged, and it ends the run
            groups = None
            self._fatal = self._fatal or self._limit.record_failure(error)
        else:
            self._fatal = self._fatal or self.delivery.fatal
            if self.processing and (why := subclass.why_nothing_delivered(groups, backlog, work)):
                groups = None
                self._fatal = self._fatal or self._limit.record_failure(why)
            else:
                self._limit.record_success()
            if groups is not None:
                self.backoff.group_finished()  # a subclass's groups pass no observer
        return groups

    async def collect_trajectories(self, item: Problem) -> tuple[dict[str, Any] | None, list[Any]]:
        """Return a scored group, saved to disk; None if it is lost or unscored.

        If a worker is cancelled while its group is saved, the next request for the problem returns
        the group, so that it is neither lost nor stored twice.
        """
        if type(self).collect_trajectory is not BaseEnv.collect_trajectory:
            gathered: tuple[Any, list[Any]] = await super().collect_trajectories(item)
            return gathered
        subclass.require_problem(item, self.categories, type(self).__name__)
        statistics = self.statistics
        key = (recipe_key(item.recipe), item.question)
        left = next((one for one in self._orphaned_saves if one[0] == key), None)
        if left:
            self._orphaned_saves.remove(left)
            save = left[1]
        else:
            try:
                with statistics.generating(lost_on=InferenceError):
                    group = await self._generate(item)
            except InferenceError as error:
                self._handle_lost_group(item, error)
                return None, []
            save = asyncio.create_task(self._save(group))
        try:
            group = await asyncio.shield(save)
        except asyncio.CancelledError:
            self._orphaned_saves.append((key, save))
            raise
        if not group.scored:
            statistics.record(GroupOutcome.UNSCORED)
            return None, []
        with statistics.delivering():
            scored_data = to_scored_data_group(
                group,
                self.inference.prompt(item.question).messages,
                generation_params=self._sampling.distribution,
                mask_truncated=self.config.mask_too_long_completions,
                include_messages=self.config.include_messages,
            )
        statistics.hand_out()
        return scored_data, []

    async def _generate(self, item: Problem) -> GroupResult:
        """Return a scored group and tell all observers; raises InferenceError."""
        completions = await self.inference.sample(
            item.question,
            n=self.config.group_size,
            length_limit=self.length_limit,
            sampling=self._sampling,
        )
        scored = await self.score(item, completions)
        group = subclass.checked_score(scored, completions, type(self).__name__)
        self._retries.pop(recipe_key(item.recipe), None)
        self._started_problems().step = self.trainer_step
        for observe in self._observers:
            observe(group)
        return group

    async def score(self, problem: Problem, completions: Sequence[Completion]) -> GroupResult:
        """Score the completions of one problem, in their order; called once for each group."""
        return await self._rollouts.score(problem, completions)

    async def _save(self, group: GroupResult) -> GroupResult:
        with self.statistics.delivering():
            await self._rollouts.save(group, {**self.identity(), "step": self.trainer_step})
        return group

    async def handle_send_to_api(
        self,
        scored_data: Any,
        item: Any = None,
        do_send_to_api: bool = True,
        abort_on_any_max_length_exceeded: bool = True,
    ) -> None:
        """Check each group, then write and send it; cancelling the caller does not cancel that."""
        row_limit = self.max_token_len if abort_on_any_max_length_exceeded else 0
        for group in scored_data if isinstance(scored_data, list) else [scored_data]:
            if group is not None:
                self.statistics.begin_delivery()
                delivery = self._deliver(
                    group,
                    item,
                    sends=do_send_to_api,
                    row_limit=row_limit,
                )
                await self.delivery.finish(delivery)

    async def _deliver(
        self,
        given: dict[str, Any],
        problem: Any,
        *,
        sends: bool,
        row_limit: int,
    ) -> GroupOutcome:
        decode = self.tokenizer.decode if self.tokenizer and self.config.include_messages else None
        group = completed(given, decode)
        drop = self.config.ensure_scores_are_not_same
        rows = (group["group_overrides"] or {}).get("group_size", self.config.group_size)
        whole = self.config.group_size if sends else 0
        outcome = await self.delivery.check(
            group,
            problem,
            rows=rows,
            registered=whole,
            row_limit=row_limit,
            drop_equal_scores=drop,
        )
        if outcome is not None:
            return outcome
        self.items_sent_this_step += self.serving
        await self.add_rollouts_for_wandb(group, problem)
        is_written = await self.delivery.write(group, must_end=not sends)
        if sends:
            return await self.delivery.send({**group, "env_id": self.env_id}, problem)
        return GroupOutcome.WRITTEN if is_written else GroupOutcome.FAILED

    def _handle_lost_group(self, problem: Any, error: InferenceError) -> None:
        """Retry the problem of a lost group, or give it up; after too many, so does the run."""
        if error.is_transient:
            self._retry(problem)
        else:
            self.statistics.counts["problems/given_up"] += 1
        self.backoff.record_failure(task_of(problem), error)
        fatal = InferenceError(
            f"{self.backoff.failures} groups in a row were lost; check the server at "
            f"{', '.join(self.inference.urls)}: {error}"
        )
        fatal.__cause__ = error
        too_many = self.backoff.failures if self.processing else self.backoff.permanent
        if too_many >= self.max_consecutive_losses and (self.processing or self.serving):
            self._fatal = self._fatal or fatal  # Atropos's loop swallows what its workers raise

    def _retry(self, problem: Any) -> None:
        """Put a problem into the backlog, up to three times until a group of it is scored."""
        key = recipe_key(problem.recipe) if isinstance(problem, Problem) else ""  # not told apart
        self._retries[key] += 1
        if key and self._retries[key] <= 3:
            self.statistics.counts["problems/retried"] += 1
            self.backlog.append(problem)
        else:
            self.statistics.counts["problems/given_up"] += 1
            del self._retries[key]

    # Each round of Atropos's loop: evaluation, checkpoint, log.

    async def env_step_checks(self) -> None:
        """Evaluate, save a checkpoint and log if due at the trainer's step."""
        before = self.curr_step
        step = self.status_dict["current_step"]
        self.curr_step = step
        evaluating = self.eval_runner is not None and not self.eval_runner.done()
        if not evaluating and self.config.steps_per_eval > 0:
            if self._election is None:
                versions = self.identity()["library_versions"]
                key = self.evaluation.key(length_limit=self.length_limit, versions=versions)
                folder = Path(self.checkpoint_dir, "env_checkpoints")
                path = folder / f"{self.config.wandb_name}.evaluation-{key}"
                self._election = LeaderElection(path, every=self.config.steps_per_eval)
            if self._election.is_due(step):
                self._start_evaluation(step, self._election)
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

    def _start_evaluation(self, step: int, election: LeaderElection) -> None:
        """Start the evaluation due at a step; with STOP_TRAIN, training waits for it."""

        def record(evaluation: asyncio.Task[None]) -> None:
            if not evaluation.cancelled():
                evaluation.exception()  # `evaluate` has logged it
                election.record_done(step)

        self.eval_runner = asyncio.create_task(self.evaluate())
        self.eval_runner.add_done_callback(record)
        if self.config.eval_handling == EvalHandlingEnum.STOP_TRAIN:
            self.backlog.extend(entry["item"] for entry in self.running_items.values())
            for worker in self.workers:
                worker.cancel()
            self.workers = set()
            self.running_items = {}

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Run the fixed evaluation set and write its metrics and samples."""
        if self.serving:
            self.inference.retry_seconds["eval"] = self.outage_seconds
        try:
            await self.evaluation.run(
                step=self.trainer_step, length_limit=self.length_limit, identity=self.identity()
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
        items = [*(entry["item"] for entry in self.running_items.values()), *self.backlog]
        unfinished = [item for item in items if isinstance(item, Problem)]
        return {STREAM: self._started_problems().state_dict(unfinished)}

    def load_checkpoint(self) -> None:
        """Continue the newest checkpoint up to the trainer's step; raises FixableError."""
        path = self.checkpoints.newest(self.curr_step)
        if path is None:
            logger.warning(
                "No checkpoint for step %s of %s below %r: starting the training stream from the "
                "beginning",
                *(self.curr_step, self.wandb_prepend, str(self.checkpoint_dir)),
            )
            return
        try:
            accept_changed = self.config.accept_changed_modules
            content = self.checkpoints.read(path, accept_changed=accept_changed)
            self._started_problems().load_state_dict(content.pop(STREAM))
        except ValueError as error:
            raise FixableError(
                f"the checkpoint {path} can't be continued: {error}; delete it to continue the one "
                "before it or, without one, to restart the training stream"
            ) from error
        self.__dict__.update(content)  # what a subclass saved
        logger.info("Continued %s at the trainer's step %d", path, self.curr_step)

    # Metrics.

    async def add_rollouts_for_wandb(self, scored_data: Any, item: Problem | None = None) -> None:
        """Keep some rollouts of a delivered group for the rollout table."""
        self.statistics.counts["groups/accepted"] += 1
        if not self.config.use_wandb or self.tokenizer is None:
            return
        keep = self.config.num_rollouts_per_group_for_logging
        more = {"keep": keep, "step": self.curr_step}
        make = functools.partial(output.rollout_rows, self.tokenizer, scored_data, item, **more)
        tokens = sum(map(len, scored_data["tokens"][: None if keep == -1 else keep]))
        rows = await offload(make, tokens=tokens)
        self.rollouts_for_wandb.append(rows)  # Atropos may have replaced the list
        del self.rollouts_for_wandb[: -self.config.num_rollouts_to_keep]

    async def create_rollout_table(self, wandb_metrics: dict[str, Any]) -> dict[str, Any]:
        if self.config.use_wandb and self.rollouts_for_wandb:
            wandb_metrics["train/rollouts"] = output.rollout_table(self.rollouts_for_wandb)
        return wandb_metrics

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        """Log the run metrics since the last call, and the last evaluation."""
        for line in signal_lines(self.statistics.interval, self.categories.values()):
            logger.debug("Since the last report: %s", line)
        counted = self.statistics.take_report()
        stats = self.get_curriculum_stats()
        own = stats["curriculum_mode"] and self._shared is None  # else the service's levels count
        levels = curriculum_metrics(stats, self.categories) if own else {}
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
        if self.config.use_wandb:  # Atropos's own would log other keys, with the replica's name
            with output.surviving_wandb(self._wandb_failure):
                wandb.log(output.grouped(metrics), step=self.curr_step)

    def get_curriculum_stats(self) -> dict[str, Any]:
        """Return the curriculum's state."""
        return self.problems.curriculum_stats()
