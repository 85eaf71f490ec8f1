"""Atropos's base class with its quirks mended, for an environment to build on."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import uuid
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
from atroposlib.envs.base import BaseEnv
from atroposlib.envs.server_handling.server_baseline import APIServer
from atroposlib.frontend.jsonl2html import generate_html
from tenacity import RetryError
from tqdm import tqdm

from ..errors import ConfigurationError, FixableError
from ..records import Problem
from ..rollouts.metrics import Statistics, signal_line
from ..rollouts.prompts import resolve_system_prompt
from ..rollouts.summary import Summary, summarizing
from ..util.lifetime import closing_on_every_way_out
from ..util.reachability import UnreachableError, require_reachable
from ..util.terminal import visible
from .checks import require_usable, withhold_keys
from .failures import root_cause
from .inference import Inference
from .launch import run_command_line
from .process import process, what_was_written
from .scored_data import rollout_rows, rollout_table
from .servers import CLIENTS

logger = logging.getLogger(__name__)

_PACKAGES = ("reasoning-gym-environment", "reasoning-gym", "atroposlib", "transformers")
VERSIONS = {name: version(name) for name in _PACKAGES}

_GOODBYE_SECONDS = 5


class AtroposEnv(BaseEnv):
    """Closes on every way out, counts what is sent, keeps checkpoints whole, hides API keys.

    Attributes:
        run_id: names the run in everything it stores.
        statistics: what the run has counted so far.
        inference: the client of the inference servers.
        reach_seconds: how long a server may take to come up before the start is given up.
        trains: whether something will train on the completions; `evaluate` says no.
        summary: what came since the last line about it; a line is logged every `summary_seconds`.
        failing_seconds: how long `process` and `evaluate` bear that all requests fail before
            those under way are given up as well; `serve` waits for ever.

    Raises:
        ConfigurationError: the tokenizer can't be loaded.
    """

    server_cls: Any = APIServer
    trains = True
    summary_seconds = 10.0
    reach_seconds = 60.0
    failing_seconds = 20.0

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
        self.summary = Summary()
        self.inference = Inference(
            self.server,
            self.tokenizer,
            server_type=first.server_type,
            system_prompt=resolve_system_prompt(config.system_prompt),
        )
        self._closed = False
        self._ends_with: FixableError | None = None
        if config.suppress_base_env_logs:
            logging.getLogger("atroposlib.envs.base").setLevel(logging.WARNING)

    @classmethod
    def cli(cls) -> None:
        """Run serve, process or evaluate as the program's arguments say; ends with a status.

        Raises:
            SystemExit: 2, after one sentence, for what the user can put right.
        """
        try:
            run_command_line(cls, sys.argv[1:])
        except FixableError as error:
            print(f"error: {visible(str(error))}", file=sys.stderr)  # noqa: T201 - a program's last word
            raise SystemExit(2) from None

    @abstractmethod
    def stream_out(self, unfinished: Sequence[Problem]) -> dict[str, Any]:
        """The training stream's state, as JSON.

        Args:
            unfinished: problems handed out but not yet trained on; they come first after a resume.
        """

    @abstractmethod
    def stream_in(self, state: dict[str, Any]) -> None:
        """Continue the stream that `stream_out` has described."""

    @property
    def serving(self) -> bool:
        """Whether the API knows this environment."""
        return hasattr(self, "env_id")

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
            FixableError: what `end_serving` was given.
        """
        url = self.config.rollout_server_url
        async with closing_on_every_way_out(self.close), self._summarizing():
            await self.prepare()
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

    def end_serving(self, error: FixableError) -> None:
        """End `serve` with this error; Atropos's loop swallows what its workers raise."""
        self._ends_with = self._ends_with or error

    async def env_step_checks(self) -> None:
        """Do what is due between two rounds of the loop; raises what `end_serving` was given."""
        if self._ends_with is not None:
            raise self._ends_with
        await super().env_step_checks()

    def _summarizing(self) -> AbstractAsyncContextManager[None]:
        return summarizing(self.summary, self.summary_seconds)

    @abstractmethod
    async def prepare(self) -> None:
        """Check all that can be known without a server. May be called again.

        Raises:
            FixableError: a setting can't work.
        """

    async def process_manager(self) -> None:
        """Collect as many groups as were asked for; nothing is left behind on any way out."""
        self.inference.failover.patience = self.failing_seconds
        async with closing_on_every_way_out(self.close), self._summarizing():
            await process(self)
        path = self.config.data_path_to_save_groups
        if path and Path(path).exists():
            generate_html(path)
        tqdm.write(what_was_written(self.config, self.run_id), file=sys.stdout)  # above a live line

    async def _run_evaluate(self) -> None:
        self.trains = False
        self.inference.failover.patience = self.failing_seconds
        async with closing_on_every_way_out(self.close):
            await super()._run_evaluate()

    async def close(self) -> None:
        """Stop the workers, then close what the environment holds. May be called again."""
        if self._closed:
            return
        self._closed = True
        running = [*self.workers, *self.eval_workers, *filter(None, [self.eval_runner])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self.close_parts()
        await self.inference.close()
        if self.serving:
            await disconnect(self.config.rollout_server_url, self.env_id)
        if self.jsonl_writer is not None:
            self.jsonl_writer.close()
            path = Path(self.config.data_path_to_save_groups)
            if path.is_file() and not path.stat().st_size:  # of a start that failed, and no device
                path.unlink()
        logger.info("Closed after %s", signal_line(self.statistics.total))
        logger.info("Counts of this run: %s", dict(sorted(self.statistics.counts.items())))

    @abstractmethod
    async def close_parts(self) -> None:
        """Close what the environment has beside Atropos's parts; no rollout runs any more."""

    async def get_server_info(self) -> None:
        """Raises ConfigurationError when a group does not fit the trainer's batch."""
        try:
            await super().get_server_info()
        except ValueError as error:
            raise ConfigurationError(f"{error}: lower --env.group_size") from error

    async def add_rollouts_for_wandb(self, scored_data: Any, item: Problem | None = None) -> None:
        """Keep some rollouts of a group that goes to the trainer for the rollout table."""
        self.statistics.counts["groups/kept"] += 1
        keep = self.config.num_rollouts_per_group_for_logging
        self.rollouts_for_wandb.append(rollout_rows(self.tokenizer, scored_data, item, keep=keep))
        del self.rollouts_for_wandb[: -self.config.num_rollouts_to_keep]

    async def create_rollout_table(self, wandb_metrics: dict[str, Any]) -> dict[str, Any]:
        if self.config.use_wandb and self.rollouts_for_wandb:
            wandb_metrics["train/rollouts"] = rollout_table(self.rollouts_for_wandb)
        return wandb_metrics

    async def _send_scored_data_to_api(self, scored_data: Any) -> None:
        try:
            await super()._send_scored_data_to_api(scored_data)
        except (aiohttp.ClientError, RetryError):
            self.statistics.counts["groups/send_failures"] += 1
            raise
        self.statistics.counts["groups/sent"] += 1

    def save_checkpoint(self, step: int, data: dict[str, Any] | None = None) -> None:
        """Write the training stream's state, whole or not at all."""
        running = [entry["item"] for entry in self.running_items.values()]
        state = self.stream_out([*running, *self.backlog])
        super().save_checkpoint(f"{step}.partial", {**(data or {}), "stream_state": state})
        folder = Path(self.checkpoint_dir) / "env_checkpoints" / str(self.wandb_prepend)
        (folder / f"step-{step}.partial.json").replace(folder / f"step-{step}.json")

    def load_checkpoint(self) -> None:
        """Continue the stream exactly where the checkpoint of the trainer's step left it."""
        self.stream_state: dict[str, Any] | None = None
        super().load_checkpoint()  # sets an attribute for each of the file's keys
        if self.stream_state is None:
            logger.warning(
                "No checkpoint for step %s of %s below %r: the training stream starts anew",
                self.curr_step,
                self.wandb_prepend,
                self.checkpoint_dir,
            )
            return
        self.stream_in(self.stream_state)


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
