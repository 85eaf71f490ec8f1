"""Atropos's base class with its quirks mended, for an environment to build on."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import sys
import uuid
from abc import abstractmethod
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
import wandb
from atroposlib.envs.server_handling.server_baseline import APIServer
from atroposlib.frontend.jsonl2html import generate_html
from tenacity import RetryError
from tqdm import tqdm

from ..errors import ConfigurationError, FixableError
from ..inference.client import Inference
from ..inference.errors import root_cause
from ..inference.prompts import resolve_system_prompt
from ..inference.servers import CLIENTS
from ..records import Problem
from ..rollouts.metrics import Statistics, signal_line
from ..rollouts.progress import ProgressReporter
from ..util.concurrency import graceful_shutdown, offload
from ..util.outages import UnreachableError, require_reachable
from ..util.text import escape_control_characters
from .checks import require_usable, withhold_keys
from .launch import run_command_line
from .process import finish_at_exit, process, what_was_written
from .replica import ReplicaEnv
from .scored_data import rollout_rows, rollout_table

logger = logging.getLogger(__name__)

_PACKAGES = ("reasoning-gym-environment", "reasoning-gym", "atroposlib", "transformers")
VERSIONS = {name: version(name) for name in _PACKAGES}

_GOODBYE_SECONDS = 5


class AtroposEnv(ReplicaEnv):
    """Closes on every way out, hides API keys.

    Attributes:
        run_id: names the run in everything it stores.
        statistics: what the run has counted so far.
        inference: the client of the inference servers.
        reach_seconds: how long a server may take to come up before the start is given up.
        trains: whether something will train on the completions; `evaluate` says no.
        progress: logs a line every `summary_seconds`.
        failing_seconds: how long `process` and `evaluate` ask again while all requests fail, before
            those under way are given up as well.
        outage_seconds: how long an evaluation does so while serving; training goes on for ever.

    Raises:
        ConfigurationError: the tokenizer can't be loaded.
    """

    server_cls: Any = APIServer
    trains = True
    summary_seconds = 10.0
    reach_seconds = 60.0
    failing_seconds = 20.0
    outage_seconds = 600.0

    def __init__(
        self,
        config: Any,
        server_configs: Any,
        slurm: bool = False,
        testing: bool = False,
    ) -> None:
        withhold_keys(config.data_dir_to_save_evals)  # whatever goes wrong from here on
        require_usable(config, server_configs)
        first = server_configs[0] if isinstance(server_configs, list) else server_configs
        if inspect.isabstract(self.server_cls):  # it stands for the server type's own
            self.server_cls = CLIENTS[first.server_type]
        try:
            super().__init__(config, server_configs, slurm=slurm, testing=testing)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"tokenizer_name {config.tokenizer_name!r} (or the server's) can't be loaded: "
                f"{str(error).splitlines()[0]} Give a name on the Hugging Face hub or a folder."
            ) from error
        self.run_id = str(uuid.uuid4())
        self.statistics = Statistics()
        self.progress = ProgressReporter(self.statistics)
        self.inference = Inference(
            self.server,
            self.tokenizer,
            server_type=first.server_type,
            system_prompt=resolve_system_prompt(config.system_prompt),
        )
        self._closed = False
        if config.suppress_base_env_logs:
            logging.getLogger("atroposlib.envs.base").setLevel(logging.WARNING)

    @classmethod
    def cli(cls) -> None:
        """Run serve, process or evaluate as the program's arguments say; ends with a status.

        Raises:
            SystemExit: after one sentence, for what the user can put right or try again.
        """
        try:
            run_command_line(cls, sys.argv[1:])
        except FixableError as error:
            print(f"error: {escape_control_characters(str(error))}", file=sys.stderr)  # noqa: T201 - a program's last word
            raise SystemExit(error.exit_status) from None

    def max_length(self) -> int:
        """Tokens of a row; a group with a row as long as the trainer's limit is dropped whole."""
        limit: int = self.config.max_token_length
        return min(limit, self.max_token_len - 1) if self.max_token_len > 0 else limit

    def identity(self) -> dict[str, Any]:
        """What every stored row says of its run."""
        replica = self.wandb_prepend or ""
        return {"run": self.run_id, "replica": replica, "library_versions": VERSIONS}

    async def env_manager(self) -> None:
        """Serve a trainer until training ends; nothing is left behind on any way out.

        Raises:
            UnreachableError: the Atropos API does not answer, or stopped answering.
            LostStateError: it was started anew.
            FixableError: what `end_serving` was given.
        """
        url = self.config.rollout_server_url
        async with graceful_shutdown(self.close), self._summarizing():
            await self.prepare()
            await require_reachable(
                [url],
                what="the Atropos API",
                way_out="start it with `run-api`, or set --env.rollout_server_url",
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
            await self._end_evaluation()

    async def _end_evaluation(self) -> None:
        """Wait for the evaluation that the last step has begun, and log what is left to log."""
        self._give_up_after_failing()  # inference may have ended with the trainer
        if self.eval_runner is not None and not self.eval_runner.done():
            logger.info("The training has ended; its last evaluation is waited for")
            await asyncio.gather(self.eval_runner, return_exceptions=True)
        await self.wandb_log()

    def _give_up_after_failing(self) -> None:
        self.inference.failover.patience = self.failing_seconds
        self.inference.persistence = dict.fromkeys(("train", "eval"), self.failing_seconds)

    def _summarizing(self) -> AbstractAsyncContextManager[None]:
        return self.progress.logging_every(self.summary_seconds)

    @abstractmethod
    async def prepare(self) -> None:
        """Check all that can be known without a server. May be called again.

        Raises:
            FixableError: a setting can't work.
        """

    async def process_manager(self) -> None:
        """Collect as many groups as were asked for; nothing is left behind on any way out."""
        self._give_up_after_failing()
        async with graceful_shutdown(self.close), self._summarizing():
            await process(self)
        path = self.config.data_path_to_save_groups
        if path and Path(path).exists():
            generate_html(path)
        tqdm.write(what_was_written(self.config, self.run_id), file=sys.stdout)  # above a live line

    async def _run_evaluate(self) -> None:
        self.trains = False
        self._give_up_after_failing()
        async with graceful_shutdown(self.close):
            await super()._run_evaluate()

    async def close(self) -> None:
        """Stop the workers, then close what the environment holds. May be called again."""
        if self._closed:
            return
        self._closed = True
        async with AsyncExitStack() as last_first:  # each is closed where another fails to close
            last_first.callback(self._close_books)
            last_first.callback(self._close_file)
            last_first.push_async_callback(self._leave)
            last_first.push_async_callback(self.inference.close)
            last_first.push_async_callback(self.close_replica)
            last_first.push_async_callback(self.close_parts)
            last_first.push_async_callback(self.end_sending)
            running = [*self.workers, *self.eval_workers, *filter(None, [self.eval_runner])]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _leave(self) -> None:
        if self.serving and not self.api.lost:  # another environment may have our id
            await disconnect(self.config.rollout_server_url, self.env_id)

    def _close_file(self) -> None:
        """Close Atropos's own file of groups, which is there from the start."""
        if self.jsonl_writer is None:
            return
        try:
            self.jsonl_writer.close()
        except OSError as error:
            logger.error("The end of data_path_to_save_groups is missing: %s", error)
        path = Path(self.config.data_path_to_save_groups)
        if path.is_file() and not path.stat().st_size:  # of a start that failed, and no device
            path.unlink()

    def _close_books(self) -> None:
        """Say what became of all groups, in the log and in wandb."""
        books = self.statistics.accounting
        logger.info("Groups: %s", books)
        by_itself = self.serving or self.processing  # else a caller has the groups
        if by_itself and any(books.unaccounted().values()):
            logger.error("Group accounting mismatch: %s", books.unaccounted())
        if wandb.run is not None and self.serving:
            counts = self.statistics.reported_counts()
            final = {f"{self.wandb_prepend}_counts/{name}": n for name, n in counts.items()}
            wandb.run.summary.update(final)
        logger.info("Closed after %s", signal_line(self.statistics.total))
        logger.info("Counts of this run: %s", dict(sorted(self.statistics.counts.items())))

    @abstractmethod
    async def close_parts(self) -> None:
        """Close what the environment has beside Atropos's parts; no rollout runs any more."""

    async def setup_wandb(self) -> None:
        """Begin wandb's run, which is written whole before the process ends."""
        await super().setup_wandb()
        finish_at_exit()

    async def get_server_info(self) -> None:
        """Raises ConfigurationError when a group does not fit the trainer's batch."""
        try:
            await super().get_server_info()
        except ValueError as error:
            raise ConfigurationError(f"{error}: lower --env.group_size") from error

    async def add_rollouts_for_wandb(self, scored_data: Any, item: Problem | None = None) -> None:
        """Keep some rollouts of a group that goes to the trainer for the rollout table."""
        self.statistics.counts["groups/kept"] += 1
        if not self.config.use_wandb:
            return
        keep = self.config.num_rollouts_per_group_for_logging
        make = functools.partial(rollout_rows, self.tokenizer, scored_data, item, keep=keep)
        tokens = sum(map(len, scored_data["tokens"][: None if keep == -1 else keep]))
        rows = await offload(make, tokens=tokens)
        self.rollouts_for_wandb.append(rows)  # the list may have become another one meanwhile
        del self.rollouts_for_wandb[: -self.config.num_rollouts_to_keep]

    async def create_rollout_table(self, wandb_metrics: dict[str, Any]) -> dict[str, Any]:
        if self.config.use_wandb and self.rollouts_for_wandb:
            wandb_metrics["train/rollouts"] = rollout_table(self.rollouts_for_wandb)
        return wandb_metrics


async def disconnect(url: str, env_id: int) -> None:
    """Tell the API that an environment is gone; an API that is gone as well is no failure."""
    timeout = aiohttp.ClientTimeout(total=_GOODBYE_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(f"{url}/disconnect-env", json={"env_id": env_id}) as response,
        ):
            response.raise_for_status()
    except (aiohttp.ClientError, asyncio.TimeoutError) as error:
        logger.warning("Could not tell the API at %s of leaving: %s", url, error)
