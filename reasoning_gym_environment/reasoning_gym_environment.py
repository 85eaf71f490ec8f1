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
import sys
import uuid
from collections.abc import Sequence
from typing import Any

from atroposlib.envs.base import BaseEnv
from atroposlib.envs.server_handling.server_baseline import ReasoningConfig
from atroposlib.envs.server_handling.server_manager import ServerManager

from reasoning_gym_environment.atropos import launch, output, subclass
from reasoning_gym_environment.atropos.config import (
    LIVE_OPTIONS,
    ReasoningGymEnvConfig,
    ServerConfig,
    apply_template,
    load_tokenizer,
    require_usable,
    server_list,
    set_log_level,
    tokenizer_of,
)
from reasoning_gym_environment.atropos.failures import MAX_LOSSES
from reasoning_gym_environment.atropos.hooks import Hooks, Patience
from reasoning_gym_environment.atropos.inference_server import ClientBackedServer
from reasoning_gym_environment.inference.reply_memory import ReplyMemory
from reasoning_gym_environment.atropos.parts import make_parts
from reasoning_gym_environment.atropos.run import Run
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.evaluation.options import AmongModels
from reasoning_gym_environment.evaluation.run import Evaluation
from reasoning_gym_environment.inference.client import InferenceClient
from reasoning_gym_environment.problems.suites import Suite
from reasoning_gym_environment.problems.training import TrainingProblems
from reasoning_gym_environment.records import Completion, GroupResult, Problem
from reasoning_gym_environment.rollouts.accounting import Statistics
from reasoning_gym_environment.sandbox.worker_groups import StartWorker
from reasoning_gym_environment.scoring.grading import grade
from reasoning_gym_environment.settings import RunFlags, Settings
from reasoning_gym_environment.util.concurrency import (
    gather_or_cancel,
    graceful_shutdown,
)
from reasoning_gym_environment.util.log_throttle import LOG_PAUSES, LogPauses
from reasoning_gym_environment.util.logs import exit_status


class ReasoningGymEnv(BaseEnv):
    """An environment of reasoning-gym's tasks: samples problems, requests and scores groups.

    It holds the configuration and what a subclass may override. `run` does the work.

    Args:
        config: may be changed until `setup`.
        start_worker: starts a worker process; None for the pool's own way.

    Attributes:
        server: requests completions, for a subclass of its own.
        tokenizer: with the chat template; None at chat endpoints.
        run_id: identifies the run in everything it stores.
        eval_workers: tasks of a subclass's `evaluate`, which `close` cancels.
        group_size_to_process, n_groups_to_process: as in Atropos, what `process_manager` collects
            instead of `total_steps` groups of `group_size`; None for those.

    Raises:
        ConfigurationError: a setting is invalid, or the tokenizer can't be loaded.
        UnwritableError: a configured folder can't be written.
    """

    name = "reasoning_gym"
    env_config_cls = ReasoningGymEnvConfig

    def __init_subclass__(cls) -> None:
        """Raise ConfigurationError if the class overrides what would have no effect."""
        subclass.require_used(cls, ReasoningGymEnv)

    # What subclasses and tests may change; `Patience` says what each means.
    reach_seconds = 60.0
    failing_seconds = 20.0
    outage_seconds = 600.0
    max_consecutive_losses = MAX_LOSSES

    def __init__(
        self,
        config: ReasoningGymEnvConfig,
        server_configs: Any,
        slurm: bool = False,
        testing: bool = False,
        *,
        start_worker: StartWorker | None = None,
    ) -> None:
        # Atropos's own constructor makes the state of its loop, which is the run's here.
        # This comes first, so that it is done whatever fails later.
        output.redact_api_keys(getattr(config, "data_dir_to_save_evals", None))
        if testing:
            raise ConfigurationError(
                "testing must be false: Atropos's mock server completes no prompt; without a model "
                "try `reasoning-gym-environment demo`"
            )
        servers = require_usable(config, server_configs, slurm=slurm)
        config = config.changeable()  # another environment may be set up with it
        config.tokenizer_name = tokenizer_of(config, servers)
        self.config = config
        self.tokenizer = load_tokenizer(config.tokenizer_name)
        self._own_template = self.tokenizer and self.tokenizer.chat_template
        self._apply_template()
        # of a single `ServerBaseline` Atropos makes several servers, and drops their type
        kind = "" if servers is server_configs else servers[0].server_type
        self.server = ServerManager(
            server_configs,
            slurm=slurm,
            testing=testing,
            server_class=functools.partial(
                ClientBackedServer, server_type=kind, memory=ReplyMemory()
            ),
            reasoning_config=_reasoning(config),
        )
        self.run_id = str(uuid.uuid4())
        self.eval_workers: set[asyncio.Task[Any]] = set()
        self.group_size_to_process: int | None = None
        self.n_groups_to_process: int | None = None
        self._start_worker = start_worker
        self._command = ""
        self._suite: Suite | None = None
        self._flags = RunFlags()
        self._among: AmongModels | None = None
        self._log_pauses = LOG_PAUSES
        self._run: Run | None = None
        for option in LIVE_OPTIONS:
            if getattr(config, option):  # else the host's own level stays
                set_log_level(option, is_on=True)

    @classmethod
    def config_init(cls) -> tuple[ReasoningGymEnvConfig, list[ServerConfig]]:
        """Return the defaults, on top of which each command has its own."""
        return cls.env_config_cls(), [ServerConfig()]

    @classmethod
    def cli(cls) -> None:
        """Run the program's arguments: `serve`, `process` or `evaluate`, and their options.

        Raises:
            SystemExit: with the exit code, after printing an error that the user can fix or retry.
        """
        env, servers = cls.config_init()
        defaults = Settings(env=env, servers=server_list(servers), flags=RunFlags())
        status = exit_status(lambda: launch.run(sys.argv[1:], lambda: cls, defaults))
        if status:
            raise SystemExit(status)

    # The commands, from setup to close.

    async def env_manager(self) -> None:
        """Serve a trainer until training ends; raises FixableError if that is not possible."""
        async with graceful_shutdown(self.close):
            self._command = "serve"
            run = await self._set_up_run()
            await run.serve()

    async def process_manager(self) -> None:
        """Collect `n_groups_to_process` groups, fewer without items; failed ones do not count."""
        run = None
        try:
            async with graceful_shutdown(self.close):
                self._command = "process"
                groups = self.n_groups_to_process
                if groups is None:
                    self.config.require_number_of_groups()
                    groups = self.config.total_steps
                self.config.require_stored_groups()
                run = await self._set_up_run()
                await run.process(groups)
        finally:  # after a signal, too
            if run is not None:
                run.describe_output(has_failed=sys.exc_info()[0] is not None)

    async def _run_evaluate(self) -> None:  # the command; Atropos has none of its own
        async with graceful_shutdown(self.close):
            self._command = "evaluate"
            run = await self._set_up_run()
            await self.evaluate()
        if run.parts.evaluation.has_run:  # a subclass may have an evaluation of its own
            run.parts.evaluation.show(sys.stdout)
            run.parts.evaluation.require_complete()

    async def setup(self) -> None:
        """Complete the settings, start the worker processes, check the servers; idempotent.

        Raises:
            UnreachableError: no inference server answers or, in `serve`, the Atropos API does not.
            ConfigurationError: a server rejects requests or lacks what the configuration requires.
        """
        if self._run is None:
            self._run = self._make_run()
        await self._run.set_up()

    async def _set_up_run(self) -> Run:
        """Set up as the class does, and what its `setup` may have left out."""
        await self.setup()
        await ReasoningGymEnv.setup(self)
        return self.run

    async def close(self) -> None:
        """Stop the workers, then close every part, even if another fails to. Idempotent."""
        if self._run is not None:
            await self._run.close(self.eval_workers)
        else:
            await gather_or_cancel(s.client.close() for s in self.server.servers)

    def choose_evaluation(
        self,
        *,
        suite: Suite | None,
        limit: int | None,
        price: list[float] | None = None,
        among: AmongModels | None = None,
    ) -> None:
        """Evaluate the items of a suite, or at most `limit` of the planned ones; before `setup`.

        Args:
            price: dollars per million tokens of prompt and of completion.
            among: the other models that are evaluated.
        """
        self._suite = suite
        self._flags = RunFlags(limit=limit, price=price)
        self._among = among

    def log_progress_every(self, seconds: float) -> None:
        """Log a progress line at this interval, even while nothing happens; before `setup`."""
        self._log_pauses = LogPauses(first=seconds, longest=seconds)

    def _make_run(self) -> Run:
        """Complete the settings, which can't change from now on, and make the run of them."""
        config = self.config
        if self._command == "process" and self.group_size_to_process:
            config.group_size = self.group_size_to_process
        config.validate_config()
        self._apply_template()
        settings = Settings(
            command=self._command,
            env=config,
            servers=[server.config for server in self.server.servers],
            flags=self._flags,
            suite=self._suite,
            among=self._among,
        )
        parts = make_parts(
            settings,
            self.server,
            self.tokenizer,
            run_id=self.run_id,
            log_pauses=self._log_pauses,
            start_worker=self._start_worker,
        )
        for server in self.server.servers:
            server.use(parts.inference, self.tokenizer, _reasoning(config))
        hooks = Hooks(
            next_item=self.get_next_item,
            collect=self.collect_trajectories,
            postprocess=self.postprocess_histories,
            score=self.score,
            keep_rollouts=self.add_rollouts_for_wandb,
            cleanup=self.cleanup,
            evaluate=self.evaluate,
            log=self.wandb_log,
            save_checkpoint=self.save_checkpoint,
            load_checkpoint=self.load_checkpoint,
        )
        patience = Patience(
            reach_seconds=self.reach_seconds,
            failing_seconds=self.failing_seconds,
            outage_seconds=self.outage_seconds,
            max_losses=self.max_consecutive_losses,
        )
        config.freeze()
        name = type(self).__name__
        return Run(parts, hooks, patience, run_id=self.run_id, name=name)

    def _apply_template(self) -> None:
        if self.tokenizer is not None:
            apply_template(self.tokenizer, self.config, self._own_template)

    # What a subclass may override.

    async def get_next_item(self) -> Problem:
        """Return the next problem; raises FixableError if no prompt leaves room."""
        return await self.run.next_problem()

    async def collect_trajectories(
        self, item: Problem
    ) -> tuple[dict[str, Any], list[Any]]:
        """Return a scored group, saved to disk, and an empty backlog.

        Raises:
            InferenceError: no server gave valid completions.
            UnscoredError: no rollout has a score.
        """
        if type(self).collect_trajectory is not BaseEnv.collect_trajectory:
            gathered: tuple[Any, list[Any]] = await super().collect_trajectories(item)
            return gathered
        return await self.run.groups.sample_and_score(item), []

    async def score(
        self, problem: Problem, completions: Sequence[Completion]
    ) -> GroupResult:
        """Score the completions of one problem, in their order; called once for each group."""
        parts = self.run.parts
        return await grade(problem, completions, parts.pool, parts.scoring)

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Run the fixed evaluation set and write its metrics and samples."""
        await self.run.evaluate()

    def save_checkpoint(self, step: int, data: dict[str, Any] | None = None) -> None:
        """Write the training stream's state and `data` atomically; failures are only logged."""
        self.run.save_checkpoint(step, data or {})

    def load_checkpoint(self) -> None:
        """Continue the newest checkpoint up to the trainer's step; raises FixableError."""
        for name, value in self.run.load_checkpoint().items():
            setattr(self, name, value)  # what a subclass saved

    async def add_rollouts_for_wandb(
        self, scored_data: Any, item: Problem | None = None
    ) -> None:
        """Keep some rollouts of a delivered group for the rollout table."""
        metrics = self.run.parts.metrics
        await metrics.keep_rollouts(
            self.tokenizer, scored_data, item, self.run.state.step
        )

    async def create_rollout_table(
        self, wandb_metrics: dict[str, Any]
    ) -> dict[str, Any]:
        """Add the table of kept rollouts to metrics."""
        table = self.run.parts.metrics.rollout_table()
        if table is not None:
            wandb_metrics["train/rollouts"] = table
        return wandb_metrics

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        """Log the run metrics since the last call, and the last evaluation."""
        report = self.run.take_report(self.get_curriculum_stats())
        metrics = await self.create_rollout_table({**(wandb_metrics or {}), **report})
        self.run.parts.metrics.log(metrics, self.run.state.step)

    def get_curriculum_stats(self) -> dict[str, Any]:
        """Return the curriculum's state."""
        return self.run.parts.problems.curriculum_stats()

    # What programs read of an Atropos environment.

    @property
    def run(self) -> Run:
        """The run; raises ConfigurationError before `setup`."""
        if self._run is None:
            raise ConfigurationError(
                "the environment is not set up: await its `setup` first"
            )
        return self._run

    @property
    def is_set_up(self) -> bool:
        """Whether there is a run, so that the settings can't change."""
        return self._run is not None

    @property
    def statistics(self) -> Statistics:
        return self.run.parts.statistics

    @property
    def problems(self) -> TrainingProblems:
        """The training problems and their curriculum."""
        return self.run.parts.problems

    @property
    def inference(self) -> InferenceClient:
        return self.run.parts.inference

    @property
    def evaluation(self) -> Evaluation:
        """The fixed evaluation set and its last results."""
        return self.run.parts.evaluation

    @property
    def categories(self) -> dict[str, str]:
        """Category by task in use."""
        return dict(self.run.parts.problems.selection.categories)

    @property
    def curr_step(self) -> int:
        return self.run.state.step

    @property
    def backlog(self) -> list[Any]:
        return self.run.items.backlog

    @property
    def workers(self) -> set[Any]:
        return self.run.workers

    @property
    def eval_runner(self) -> Any:
        return self.run.evaluation_task

    @property
    def status_dict(self) -> dict[str, Any]:
        return self.run.state.status

    @property
    def env_id(self) -> int | None:
        registration = self.run.state.registration
        return None if registration is None else registration.env_id

    @property
    def wandb_prepend(self) -> str | None:
        registration = self.run.state.registration
        return None if registration is None else registration.name

    @property
    def checkpoint_dir(self) -> str:
        registration = self.run.state.registration
        return "" if registration is None else registration.checkpoint_dir

    @property
    def checkpoint_interval(self) -> int:
        return self.run.state.checkpoint_interval

    @property
    def max_token_len(self) -> int:
        return self.run.state.max_token_len

    @property
    def max_num_workers(self) -> int:
        return self.run.parts.max_workers

    @property
    def last_completed_item(self) -> Any:
        return self.run.last_item

    @property
    def rollouts_for_wandb(self) -> list[Any]:
        return self.run.parts.metrics.rollouts

    @property
    def completion_lengths(self) -> list[int]:
        return self.run.parts.metrics.completion_lengths

    # Methods of Atropos's base class that would act on state which is the run's.
    setup_wandb = subclass.not_called("setup_wandb")
    register_env = subclass.not_called("register_env")
    _register_env = subclass.not_called("_register_env")
    get_server_info = subclass.not_called("get_server_info")
    get_status = subclass.not_called("get_status")
    env_step_checks = subclass.not_called("env_step_checks")
    add_train_workers = subclass.not_called("add_train_workers")
    handle_env = subclass.not_called("handle_env")
    handle_send_to_api = subclass.not_called("handle_send_to_api")
    _send_scored_data_to_api = subclass.not_called("_send_scored_data_to_api")
    perf_stats = subclass.not_called("perf_stats")


def _reasoning(config: ReasoningGymEnvConfig) -> ReasoningConfig:
    """Return Atropos's settings of reasoning, as its constructor makes them."""
    return ReasoningConfig(
        enabled=config.thinking_mode,
        effort=config.reasoning_effort,
        max_tokens=config.max_reasoning_tokens,
    )
