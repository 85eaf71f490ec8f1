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
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
from atroposlib.envs.base import APIServerConfig
from tenacity import RetryError

from reasoning_gym_environment.atropos.api import disconnect
from reasoning_gym_environment.atropos.base import BookkeepingEnv
from reasoning_gym_environment.atropos.evaluations import Evaluations, withhold_keys
from reasoning_gym_environment.atropos.inference import Inference, InferenceError, root_cause
from reasoning_gym_environment.atropos.rollouts import Rollouts
from reasoning_gym_environment.atropos.training_problems import TrainingProblems
from reasoning_gym_environment.atropos.trl_server import TrlServer
from reasoning_gym_environment.config import (
    ReasoningGymEnvConfig,
    default_config,
    default_server,
    pool_settings,
)
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.evaluation.metrics import lean
from reasoning_gym_environment.records import Completion, GroupResult, Problem
from reasoning_gym_environment.rollouts.metrics import signal_line
from reasoning_gym_environment.rollouts.prompts import resolve_system_prompt
from reasoning_gym_environment.rollouts.statistics import Statistics
from reasoning_gym_environment.storage.dumps import DumpWriter
from reasoning_gym_environment.util.lifetime import closing_on_every_way_out
from reasoning_gym_environment.util.reachability import UnreachableError, require_reachable
from reasoning_gym_environment.workers.pool import TaskPool
from reasoning_gym_environment.workers.process import StartWorker, WorkerProcess

logger = logging.getLogger(__name__)


class ReasoningGymEnv(BookkeepingEnv):
    """Trains on reasoning-gym's tasks: samples problems, asks for grouped rollouts, scores them.

    Args:
        start_worker: where the worker processes of its task pool come from.

    Attributes:
        reach_seconds: how long a server may take to come up before the start is given up.
        health_seconds: how long `process` and `evaluate` wait for a healthy inference server;
            `serve` waits for ever.
        process_patience: groups in a row that inference may lose before `process` gives up.
        statistics: what the run has counted so far.

    Raises:
        ConfigurationError: the tokenizer can't be loaded.
    """

    name = "reasoning_gym"
    env_config_cls = ReasoningGymEnvConfig
    reach_seconds = 60.0
    health_seconds = 20.0
    process_patience = 5

    def __init__(
        self,
        config: ReasoningGymEnvConfig,
        server_configs: Any,
        slurm: bool = False,
        testing: bool = False,
        *,
        start_worker: StartWorker = WorkerProcess.start,
    ) -> None:
        withhold_keys(config.data_dir_to_save_evals)  # whatever goes wrong from here on
        first = server_configs[0] if isinstance(server_configs, list) else server_configs
        if first.server_type == "trl":
            self.server_cls = TrlServer
        try:
            super().__init__(config, server_configs, slurm=slurm, testing=testing)
        except OSError as error:
            raise ConfigurationError(
                f"tokenizer_name {config.tokenizer_name!r} (or the server's) can't be loaded: "
                f"{str(error).splitlines()[0]} Give a name on the Hugging Face hub or a folder."
            ) from error
        self.run_id = str(uuid.uuid4())
        self.statistics = Statistics()
        counts = self.statistics.counts
        self._inference = Inference(
            self.server,
            self.tokenizer,
            server_type=first.server_type,
            system_prompt=resolve_system_prompt(config.system_prompt),
        )
        self._pool = TaskPool(pool_settings(config), counts, start_worker=start_worker)
        self._dumps = DumpWriter(Path(config.data_dumps_dir), self.run_id, counts)
        self._problems = TrainingProblems(config, self._pool, self.statistics)
        self._rollouts = Rollouts(config, self._inference, self._pool, self._dumps, self.statistics)
        self._evaluations = Evaluations(
            config, self._problems, self._rollouts, model=first.model_name, run_id=self.run_id
        )
        self.evaluation_report = {}
        self._lost_in_a_row = 0
        self._closed = False
        if config.suppress_base_env_logs:
            logging.getLogger("atroposlib.envs.base").setLevel(logging.WARNING)
        if config.debug_logging:
            logging.getLogger("reasoning_gym_environment").setLevel(logging.DEBUG)

    @classmethod
    def config_init(cls) -> tuple[ReasoningGymEnvConfig, list[APIServerConfig]]:
        """The defaults of the command line."""
        return default_config(), [default_server()]

    @property
    def categories(self) -> dict[str, str]:
        """Category by name of the tasks in use; empty before `setup`."""
        return self._problems.categories

    @property
    def problems(self) -> TrainingProblems:
        return self._problems

    @property
    def _serving(self) -> bool:
        """Whether the API knows this environment."""
        return hasattr(self, "env_id")

    def _max_length(self) -> int:
        """Tokens of a row; a group with a row as long as the trainer's limit is dropped whole."""
        limit: int = self.config.max_token_length
        return min(limit, self.max_token_len - 1) if self.max_token_len > 0 else limit

    async def setup(self) -> None:
        """Check the inference servers, start the worker processes, make the evaluation set.

        Raises:
            UnreachableError: no inference server answers.
            UnknownTaskError: a configured task does not exist.
            WorkerStartError: the worker processes don't come up.
        """
        await self._inference.require_server(self.reach_seconds)
        logger.info("Starting the task processes")
        await self._pool.start()
        await self._problems.prepare()
        gc.collect()
        gc.freeze()  # a full collection of all that Atropos imports stalls the loop by 80 ms
        logger.info(
            "Set up: %d tasks, %d evaluation items, run %s",
            len(self.categories),
            len(self._problems.evaluation_set),
            self.run_id,
        )

    async def env_manager(self) -> None:
        """Serve a trainer until training ends; nothing is left behind on any way out.

        Raises:
            UnreachableError: the Atropos API does not answer, or stopped answering.
        """
        url = self.config.rollout_server_url
        async with closing_on_every_way_out(self.close):
            await require_reachable(
                [url],
                what="the Atropos API",
                way_out="start it with `run-api`, or set --env.rollout_server_url",
                seconds=self.reach_seconds,
            )
            try:
                await super().env_manager()
            except (aiohttp.ClientError, RetryError) as error:
                raise UnreachableError(
                    f"the Atropos API at {url} stopped answering ({root_cause(error)}): "
                    "restart it, the trainer and this environment"
                ) from error

    async def process_manager(self) -> None:
        self._inference.patience = self.health_seconds
        async with closing_on_every_way_out(self.close):
            await super().process_manager()

    async def _run_evaluate(self) -> None:
        self._inference.patience = self.health_seconds
        async with closing_on_every_way_out(self.close):
            await super()._run_evaluate()
            self._evaluations.show(sys.stdout)

    async def close(self) -> None:
        """Stop rollouts, tell the API, end the worker processes. May be called again."""
        if self._closed:
            return
        self._closed = True
        running = [*self.workers, *self.eval_workers, *filter(None, [self.eval_runner])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._problems.close()
        await self._pool.close()
        await self._inference.close()
        if self._serving:
            await disconnect(self.config.rollout_server_url, self.env_id)
        self._dumps.close()
        if self.jsonl_writer is not None:
            self.jsonl_writer.close()
        logger.info("Closed after %s", signal_line(self.statistics.total))
        logger.info("Counts of this run: %s", dict(sorted(self.statistics.counts.items())))

    async def get_next_item(self) -> Problem:
        """The next problem of this replica's stream; never None.

        Raises:
            ConfigurationError: no prompt leaves room for a completion.
        """
        return await self.started_problems().next(
            lambda problem: self._inference.has_room(problem.question, self._max_length())
        )

    def started_problems(self) -> TrainingProblems:
        """The stream starts at first use: the replica's identity comes with the registration."""
        if not self._problems.started:
            ahead = max(64, 2 * self.max_num_workers)
            self._problems.start_stream(self.wandb_prepend or "", ahead=ahead)
        return self._problems

    async def collect_trajectories(self, item: Problem) -> tuple[dict[str, Any] | None, list[Any]]:
        """One group of rollouts, scored and dumped; None where there is nothing to send.

        Raises:
            InferenceError: in `process` mode, when inference has failed too often in a row.
        """
        try:
            group = await self._rollouts.train(item, max_length=self._max_length())
        except InferenceError as error:
            self._count_lost_group(item, error)
            return None, []
        self._lost_in_a_row = 0
        self.started_problems().record(group)
        row = await self._rollouts.hand_over(
            group, categories=self.categories, identity=self.identity()
        )
        return row, []

    def _count_lost_group(self, problem: Problem, error: InferenceError) -> None:
        self.statistics.counts["groups/lost"] += 1
        self._lost_in_a_row += 1
        lost = self._lost_in_a_row
        logger.warning("Lost a group of %s, %d in a row: %s", problem.recipe.task, lost, error)
        if getattr(self, "process_mode", False) and lost >= self.process_patience:
            at = ", ".join(self._inference.urls)
            raise InferenceError(
                f"{lost} groups in a row were lost; check the server at {at}: {error}"
            ) from error

    async def score(self, problem: Problem, completions: Sequence[Completion]) -> GroupResult:
        """Score completions of one problem; every completion keeps its place."""
        return await self._rollouts.score(problem, completions)

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Run the fixed evaluation set and write its metrics and samples."""
        try:
            await self._evaluations.run(
                self.evaluate_log,
                step=self.curr_step if self._serving else None,
                max_length=self._max_length(),
                identity=self.identity(),
            )
        except Exception:
            self.statistics.counts["evaluation/failures"] += 1
            if self._serving:  # nobody awaits it
                logger.exception("The evaluation failed")
            raise
        finally:
            self.evaluation_report = lean(self._evaluations.metrics)
