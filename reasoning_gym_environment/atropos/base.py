"""The part of the environment that implements Atropos's contract."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import math
import time
import uuid
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
from atroposlib.envs.base import BaseEnv, EvalHandlingEnum
from atroposlib.envs.server_handling.server_baseline import APIServer
from tenacity import RetryError

from ..errors import ConfigurationError, FixableError
from ..inference.client import InferenceClient
from ..inference.errors import InferenceError
from ..inference.prompts import resolve_system_prompt
from ..records import Problem
from ..rollouts.metrics import ProgressReporter, Statistics, line_logger, signal_line
from ..rollouts.rollouts import FailureBackoff, RetryBudget
from ..storage.checkpoints import STREAM
from ..util.concurrency import graceful_shutdown, offload
from ..util.outages import UnreachableError, require_reachable
from ._delivery import Delivery, DeliveryRules, TrainerApi
from ._output import (
    describe_output,
    redact_api_keys,
    rollout_rows,
    rollout_table,
    start_wandb,
    starting_wandb,
    update_wandb_summary,
)
from ._replica import Replica
from ._servers import AtroposServer, clients_of, root_cause
from ._tokenizer import chat_template_text, loaded_as, tokenizer_name, with_template
from .scored_data import trained_tokens

logger = logging.getLogger(__name__)

_PACKAGES = ("reasoning-gym-environment", "reasoning-gym", "atroposlib", "transformers")
VERSIONS = {name: version(name) for name in _PACKAGES}


class AtroposEnv(BaseEnv):
    """Atropos's base class with composed parts and corrected quirks.

    Attributes:
        run_id: identifies the run in everything it stores.
        trains: whether anything trains on the completions; False in `evaluate`.
        progress_interval: seconds between progress lines.
        reach_seconds: how long a server may take to come up at the start.
        failing_seconds: how long `process` and `evaluate` retry while all requests fail.
        outage_seconds: how long an evaluation does so while serving; training never stops.
        max_consecutive_losses: lost groups in a row after which `process` gives up; `serve` does
            after as many with a permanent error.

    Raises:
        ConfigurationError: a setting is invalid, or the tokenizer can't be loaded.
        UnwritableError: a configured file or folder can't be written.
    """

    backlog: list[Problem]
    curr_step: int
    eval_runner: asyncio.Task[None] | None
    items_sent_this_step: int
    running_items: dict[str, dict[str, Any]]
    tokenizer: Any
    workers: set[asyncio.Task[Any]]

    server_cls: Any = APIServer
    trains = True
    progress_interval = 10.0
    reach_seconds = 60.0
    failing_seconds = 20.0
    outage_seconds = 600.0
    max_consecutive_losses = 5

    def __init__(
        self, config: Any, server_configs: Any, slurm: bool = False, testing: bool = False
    ) -> None:
        redact_api_keys(config.data_dir_to_save_evals)  # first, whatever fails later
        if isinstance(server_configs, list) and not server_configs:
            raise ConfigurationError("server_configs is empty: give the settings of a server")
        config.require_places()
        first = server_configs[0] if isinstance(server_configs, list) else server_configs
        if inspect.isabstract(self.server_cls):  # a placeholder for the server type's own
            self.server_cls = functools.partial(AtroposServer, first.server_type)
        system_prompt = resolve_system_prompt(config.system_prompt)
        template = chat_template_text(config.chat_template)
        with loaded_as(tokenizer_name(config, first), config):
            super().__init__(config, server_configs, slurm=slurm, testing=testing)
        try:
            self.tokenizer = with_template(self.tokenizer, config, template, system_prompt)
        except ConfigurationError:
            self._close_file()
            raise
        self.run_id = str(uuid.uuid4())
        self.statistics = Statistics()
        self.backoff = FailureBackoff()
        self.retry_budget = RetryBudget()
        self.inference = InferenceClient(
            clients_of(self.server),
            self.tokenizer,
            system_prompt=system_prompt,
            max_n=self.server.max_n_completions,
        )
        self.progress = ProgressReporter(
            self.statistics, waiting=lambda: self.inference.failover.waiting
        )
        self.api = TrainerApi(config.rollout_server_url)
        self.delivery = Delivery(
            self.api,
            self.statistics,
            vocabulary=len(self.tokenizer) if self.tokenizer else 0,
            writer=self.jsonl_writer,
            on_accept=self._note_accepted,
        )
        self._fatal: FixableError | None = None
        self._closed = False
        if config.suppress_base_env_logs:
            logging.getLogger("atroposlib.envs.base").setLevel(logging.WARNING)

    # What a subclass provides besides Atropos's own abstract methods.

    @abstractmethod
    async def prepare(self) -> None:
        """Check everything that needs no server; raises FixableError. Idempotent."""

    @abstractmethod
    async def close_parts(self) -> None:
        """Close the subclass's own parts; no rollout is running."""

    @abstractmethod
    def evaluation_key(self) -> str:
        """Return a key that is equal for replicas whose evaluations have equal results."""

    @abstractmethod
    def stream_state(self, unfinished: Sequence[Problem]) -> dict[str, Any]:
        """Return the training stream's state as JSON.

        Args:
            unfinished: problems handed out but not trained on; a resumed run starts with them.
        """

    @abstractmethod
    def load_stream_state(self, state: dict[str, Any]) -> None:
        """Continue the stream from a state; raises ValueError if it is invalid or another run's."""

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
    def length_limit(self) -> int:
        """Tokens of prompt and completion; Atropos drops groups with a row of `max_token_len`."""
        limit: int = self.config.max_token_length
        return min(limit, self.max_token_len - 1) if self.max_token_len > 0 else limit

    def identity(self) -> dict[str, Any]:
        """Return the keys of stored rows that identify the run."""
        replica = self.wandb_prepend or ""
        return {"run": self.run_id, "replica": replica, "library_versions": VERSIONS}

    # The commands.

    async def env_manager(self) -> None:
        """Serve a trainer until training ends.

        Raises:
            UnreachableError: the Atropos API does not answer.
            LostStateError: the API was restarted.
            FixableError: inference fails for good.
        """
        url = self.config.rollout_server_url
        async with (
            graceful_shutdown(self.close),
            self.progress.logging_every(self.progress_interval),
        ):
            self._require_tokenizer("serve trains on tokens")
            await self.prepare()
            await require_reachable(
                [url],
                what="the Atropos API",
                hint="start it with `run-api`, or set --env.rollout_server_url",
                seconds=self.reach_seconds,
            )
            await self.api.get("/info")  # Atropos's own requests at the start hang for minutes
            try:
                await super().env_manager()
            except (aiohttp.ClientError, RetryError) as error:
                raise UnreachableError(
                    f"the Atropos API at {url} stopped answering ({root_cause(error)}): "
                    "restart it, the trainer and this environment"
                ) from error
            self._limit_retries()  # inference may have ended with the trainer
            if self.eval_runner is not None and not self.eval_runner.done():
                logger.info("Training ended; waiting for the final evaluation")
                await asyncio.gather(self.eval_runner, return_exceptions=True)
            await self.wandb_log()

    async def process_manager(self) -> None:
        """Collect `n_groups_to_process` groups; lost groups do not count."""
        self._limit_retries()
        async with (
            graceful_shutdown(self.close),
            self.progress.logging_every(self.progress_interval),
        ):
            if self.config.data_path_to_save_groups:
                self._require_tokenizer("data_path_to_save_groups stores tokens")
            await self.setup()
            if self.config.use_wandb:
                start_wandb(str(self.name), self.run_id, self.config)
            self.config.group_size = self.group_size_to_process
            self.curr_step = 0
            while self.curr_step < self.n_groups_to_process:
                item = await self.get_next_item()
                group, _ = await self.collect_trajectories(item)
                if group:
                    group = await self.postprocess_histories(group)
                    await self.handle_send_to_api(
                        group,
                        item,
                        do_send_to_api=False,
                        abort_on_any_max_length_exceeded=False,
                    )
                    await self.wandb_log()
                    self.curr_step += 1
        describe_output(self.config, self.run_id)

    async def _run_evaluate(self) -> None:
        self.trains = False
        self._limit_retries()
        async with graceful_shutdown(self.close):
            await super()._run_evaluate()

    def _require_tokenizer(self, why: str) -> None:
        """Raise ConfigurationError if there is none."""
        if self.tokenizer is None:
            raise ConfigurationError(
                f"{why}, so it needs the model's tokenizer: set --env.tokenizer_name"
            )

    def _limit_retries(self) -> None:
        """Give up after `failing_seconds` in which all requests fail."""
        self.inference.give_up_after(self.failing_seconds)

    async def close(self) -> None:
        """Stop the workers, then close every part, even if another fails to. Idempotent."""
        if self._closed:
            return
        self._closed = True
        async with AsyncExitStack() as last_first:
            last_first.callback(self._report)
            last_first.callback(self._close_file)
            if self.serving:
                last_first.push_async_callback(self.api.disconnect, self.env_id)
            if "replica" in self.__dict__:
                last_first.push_async_callback(asyncio.to_thread, self.replica.close)
            last_first.push_async_callback(self.inference.close)
            last_first.push_async_callback(self.close_parts)
            last_first.push_async_callback(self.delivery.close)
            running = [*self.workers, *self.eval_workers, *filter(None, [self.eval_runner])]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _close_file(self) -> None:
        """Close Atropos's own file of groups; delete it if it is empty after a failed start."""
        if self.jsonl_writer is None:
            return
        try:
            self.jsonl_writer.close()
        except OSError as error:
            logger.error("The end of data_path_to_save_groups is missing: %s", error)
        path = Path(self.config.data_path_to_save_groups)
        if path.is_file() and not path.stat().st_size:  # never a device
            path.unlink()

    def _report(self) -> None:
        """Report the outcome of all groups in the log and in wandb."""
        statistics, unaccounted = self.statistics, self.statistics.accounting.unaccounted()
        logger.info("Groups: %s", statistics.accounting)
        has_all_groups = self.serving or self.processing  # otherwise a caller has them
        if has_all_groups and any(unaccounted.values()):
            logger.error("Group accounting mismatch: %s", unaccounted)
        if self.serving:
            update_wandb_summary(f"{self.wandb_prepend}_counts/", statistics.reported_counts())
        logger.info("Closed after %s", signal_line(statistics.total))
        logger.info("Counts of this run: %s", dict(sorted(statistics.counts.items())))

    # Atropos's API: registration and the trainer's step.

    async def setup_wandb(self) -> None:
        """Start the wandb run under the trainer's project; raises FixableError if wandb refuses."""
        if not self.config.use_wandb:
            return
        await self._until_trainer(
            lambda: self.api.get("/wandb_info"), lambda reply: reply["project"] is not None
        )
        with starting_wandb():
            await super().setup_wandb()

    async def _until_trainer(
        self,
        request: Callable[[], Awaitable[dict[str, Any]]],
        is_answered: Callable[[dict[str, Any]], bool],
    ) -> dict[str, Any]:
        """Repeat a request until the API has a trainer to answer it; log the wait."""
        begin, logged_at, url = time.monotonic(), -math.inf, self.config.rollout_server_url
        while not is_answered(reply := await request()):
            now = time.monotonic()
            if now - logged_at >= self.progress_interval:
                logged_at = now
                line_logger.warning(
                    "Waiting for a trainer, %.0f s: start it with the Atropos API at %s; to try "
                    "without one, run `reasoning-gym-environment demo --trainer-only %s`",
                    *(now - begin, url, url),
                )
            await asyncio.sleep(1)
        return reply

    async def _register_env(self) -> dict[str, Any]:
        """Register under the configured replica's name, if any; return the API's reply.

        Raises:
            FixableError: the API refuses or does not answer, another process has that name, or
                checkpoints can't be written.
        """
        config = self.config
        body = {
            "max_token_length": config.max_token_length,
            "desired_name": config.wandb_name,
            "weight": config.inference_weight,
            "min_batch_allocation": config.min_batch_allocation,
            "group_size": config.group_size,
        }
        data = await self._until_trainer(
            lambda: self.api.post("/register-env", body),
            lambda reply: bool(reply["status"] == "success"),
        )
        if config.replica:
            data["wandb_name"] = f"{config.wandb_name}_{config.replica}"
        self.env_id = data["env_id"]  # from here on, closing tells the API
        self.wandb_prepend, self.checkpoint_dir = data["wandb_name"], data["checkpoint_dir"]
        saves = data["checkpoint_interval"] > 0
        await self.replica.claim(saves=saves, is_named=bool(config.replica))
        if saves and data["starting_step"] == 0:
            self.save_checkpoint(0)
        return data

    async def register_env(self) -> None:
        await super().register_env()
        await self.api.register_sentinel()

    async def get_server_info(self) -> None:
        """Get the trainer's batch size; raises ConfigurationError if a group doesn't fit it."""
        try:
            await super().get_server_info()
        except ValueError as error:
            raise ConfigurationError(f"{error}: lower --env.group_size") from error

    async def get_status(self) -> None:
        """Get the trainer's step.

        Raises:
            LostStateError: the API was restarted.
            ApiRefusedError, UnreachableError: it refuses the request, or doesn't answer.
            FixableError: inference fails for good.
        """
        if self._fatal is not None:
            raise self._fatal
        self.status_dict = await self.api.get("/status-env", {"env_id": self.env_id})
        step = self.status_dict["current_step"]
        if step < self.curr_step:
            raise self.api.mark_lost(f"it went back from step {self.curr_step} to step {step}")
        self.max_num_workers = self.config.max_num_workers
        if self.max_num_workers == -1:
            servers = len(self.server.servers)
            self.max_num_workers = self.config.max_num_workers_per_node * servers
        await self.server.update_weight(self.status_dict["env_weight"])

    # Groups: lost, retried or delivered.

    async def handle_env(self, item_uuid: str) -> Any:
        """Collect one group; retry its problem if its worker is cancelled before delivery."""
        problem = self.running_items[item_uuid]["item"]
        try:
            return await super().handle_env(item_uuid)
        except asyncio.CancelledError:
            kept = [*self.backlog, *(entry["item"] for entry in self.running_items.values())]
            delivered = self.delivery.has_group_of(asyncio.current_task())
            if not delivered and not any(problem is one for one in kept):
                self._retry(problem)
            raise

    def handle_lost_group(self, problem: Problem, error: InferenceError) -> None:
        """Retry the problem of a lost group, or give it up.

        Raises:
            InferenceError: `process` gives up; `serve` ends at the next `get_status`.
        """
        if error.is_transient:
            self._retry(problem)
        else:
            self.statistics.counts["problems/given_up"] += 1
        self.backoff.record_failure(problem.recipe.task, error)
        fatal = InferenceError(
            f"{self.backoff.failures} groups in a row were lost; check the server at "
            f"{', '.join(self.inference.urls)}: {error}"
        )
        if self.processing and self.backoff.failures >= self.max_consecutive_losses:
            raise fatal from error
        if self.serving and self.backoff.permanent >= self.max_consecutive_losses:
            self._fatal = self._fatal or fatal  # Atropos's loop swallows what its workers raise

    def _retry(self, problem: Problem) -> None:
        """Put a problem into the backlog, unless its retries are used up."""
        if self.retry_budget.may_retry(problem.recipe):
            self.statistics.counts["problems/retried"] += 1
            self.backlog.append(problem)
        else:
            self.statistics.counts["problems/given_up"] += 1

    async def handle_send_to_api(
        self,
        scored_data: Any,
        item: Problem | None = None,
        do_send_to_api: bool = True,
        abort_on_any_max_length_exceeded: bool = True,
    ) -> None:
        """Deliver a group: see `Delivery.deliver`."""
        rules = DeliveryRules(
            env_id=self.env_id if do_send_to_api else None,
            rows=self.config.group_size,
            drop_equal_scores=self.config.ensure_scores_are_not_same,
            row_limit=self.max_token_len if abort_on_any_max_length_exceeded else 0,
        )
        await self.delivery.deliver(scored_data, item, rules)

    async def _note_accepted(self, group: dict[str, Any], problem: Problem | None) -> None:
        if self.tokenizer is not None:
            self.completion_lengths += map(trained_tokens, group["masks"])
        self.items_sent_this_step += self.serving
        await self.add_rollouts_for_wandb(group, problem)

    # Each round of Atropos's loop: evaluation, checkpoint, log.

    @cached_property
    def replica(self) -> Replica:
        """This replica, once the API has named it."""
        return Replica(
            Path(self.checkpoint_dir),
            run=self.config.wandb_name,
            name=str(self.wandb_prepend),
            counts=self.statistics.counts,
        )

    async def env_step_checks(self) -> None:
        """Evaluate, save a checkpoint and log if due at the trainer's step."""
        before, step = self.curr_step, self.status_dict["current_step"]
        self.curr_step = step
        evaluating = self.eval_runner is not None and not self.eval_runner.done()
        if not evaluating and self.replica.should_evaluate(
            step, every=self.config.steps_per_eval, key=self.evaluation_key
        ):
            self._start_evaluation(step)
        if step == before:
            return
        every = self.checkpoint_interval
        if every > 0 and step // every > before // every:
            content = self._checkpoint()
            await self.replica.checkpoints.save_async(step // every * every, content)
        if self.items_sent_this_step >= self.config.min_items_sent_before_logging:
            self.items_sent_this_step = 0
            await self.wandb_log({})

    def _start_evaluation(self, step: int) -> None:
        """Start the evaluation due at a step; with STOP_TRAIN, training waits for it."""

        def record(evaluation: asyncio.Task[None]) -> None:
            if not evaluation.cancelled():
                evaluation.exception()  # `evaluate` has logged it
                self.replica.evaluated(step)

        self.eval_runner = asyncio.create_task(self.evaluate())
        self.eval_runner.add_done_callback(record)
        if self.config.eval_handling == EvalHandlingEnum.STOP_TRAIN:
            self.backlog.extend(entry["item"] for entry in self.running_items.values())
            for worker in self.workers:
                worker.cancel()
            self.workers = set()
            self.running_items = {}

    def save_checkpoint(self, step: int, data: dict[str, Any] | None = None) -> None:
        """Write the training stream's state atomically; failures are logged and counted."""
        self.replica.checkpoints.save(step, {**(data or {}), **self._checkpoint()})

    def _checkpoint(self) -> dict[str, Any]:
        running = [entry["item"] for entry in self.running_items.values()]
        return {STREAM: self.stream_state([*running, *self.backlog])}

    def load_checkpoint(self) -> None:
        """Continue the newest checkpoint up to the trainer's step.

        Raises:
            FixableError: the checkpoint can't be continued.
        """
        self.replica.resume(self.curr_step, self.load_stream_state)

    # wandb.

    async def add_rollouts_for_wandb(self, scored_data: Any, item: Problem | None = None) -> None:
        """Keep some rollouts of a delivered group for the rollout table."""
        self.statistics.counts["groups/accepted"] += 1
        if not self.config.use_wandb or self.tokenizer is None:
            return
        keep = self.config.num_rollouts_per_group_for_logging
        make = functools.partial(rollout_rows, self.tokenizer, scored_data, item, keep=keep)
        tokens = sum(map(len, scored_data["tokens"][: None if keep == -1 else keep]))
        rows = await offload(make, tokens=tokens)
        self.rollouts_for_wandb.append(rows)  # Atropos may have replaced the list
        del self.rollouts_for_wandb[: -self.config.num_rollouts_to_keep]

    async def create_rollout_table(self, wandb_metrics: dict[str, Any]) -> dict[str, Any]:
        if self.config.use_wandb and self.rollouts_for_wandb:
            wandb_metrics["train/rollouts"] = rollout_table(self.rollouts_for_wandb)
        return wandb_metrics
