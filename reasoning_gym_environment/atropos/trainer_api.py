"""What a run says to its trainer through Atropos's API: registration, status, groups, goodbye.

The registration of a killed process stays connected: it lowers the weights of others, and no batch
comes without its `min_batch_allocation`. So a replica leaves a note to the next process of its
name: its id at the API, and the name of its restart probe, which it registers before and after
itself. The next process registers that probe once more. An API that gave the id knows the probe
twice at least. A restarted API knows it once at most, from the killed process's own check, and its
ids belong to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigurationError, FixableError
from ..rollouts.progress import progress_logger
from ..util.concurrency import LARGE, run_in_thread_if_large
from ..util.log_throttle import LOG_INTERVAL, LOG_PAUSES, LogPauses, Reminders
from .api_client import (
    TRANSIENT,
    ApiClient,
    ApiRefusedError,
    LostStateError,
    earlier_registrations,
    zero_weight_registration,
)
from .rows import pack

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
"""How long groups in flight and the goodbye have to arrive at the end of a run."""

LARGE_BODIES = 8
"""Groups of LARGE tokens or more that are packed at once: each has some 4 MB, and they wait in
memory while the API is slow."""

NOTE = r"environment (\d+) (restart-probe-[\w-]+)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Registration:
    """What the API answered when it took in this environment, and what its trainer demands.

    Attributes:
        env_id: the environment's number at the API.
        name: of this replica, `wandb_prepend` in Atropos.
        checkpoint_dir: the trainer's folder.
        checkpoint_interval: steps between checkpoints; none at 0 or less.
        starting_step: the trainer's step at the time.
        trainer_steps: steps after which the trainer ends; -1 if it does not say.
        batch_size: rows of the trainer's batch; -1 if it does not say.
        max_token_len: tokens that no row may reach; no limit at 0 or less.
    """

    env_id: int
    name: str
    checkpoint_dir: str
    checkpoint_interval: int
    starting_step: int
    trainer_steps: int
    batch_size: int
    max_token_len: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchShare:
    """What an environment asks of the trainer's batches; fields are named as the options."""

    group_size: int
    inference_weight: float
    min_batch_allocation: float | None


class TrainerApi:
    """Speaks to the trainer for one environment.

    Args:
        share: what the environment asks of the batches.
        log_pauses: between lines about the wait for a trainer.

    Attributes:
        client: sends the requests.
        waiting: why the trainer waits, if it has taken no batch for a minute; else empty.
    """

    def __init__(
        self,
        client: ApiClient,
        share: BatchShare,
        *,
        log_pauses: LogPauses = LOG_PAUSES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = client
        self.waiting = ""
        self._share = share
        self._log_pauses = log_pauses
        self._clock = clock
        self._step: int | None = None  # at the last `status`
        self._step_since = 0.0
        self._weight = 1.0  # that of an environment alone
        self._large_bodies = asyncio.Semaphore(LARGE_BODIES)

    # The start.

    async def wandb_run(self) -> dict[str, Any]:
        """Return the trainer's wandb `project` and `group`, once there is a trainer."""
        return await self._until_trainer(
            functools.partial(self.client.request, "GET", "/wandb_info")
        )

    async def trainer_folder(self) -> str:
        """Return the trainer's folder of checkpoints, once there is a trainer."""
        reply = await self._until_trainer(self.client.register_probe)
        return str(reply["checkpoint_dir"])

    async def register(
        self,
        *,
        desired_name: str,
        max_token_length: int,
        checkpoint_dir: str,
        claimed_name: str = "",
    ) -> Registration:
        """Register this environment.

        Args:
            claimed_name: of the replica; by default, the API's.
            checkpoint_dir: what `trainer_folder` returned.

        Raises:
            LostStateError: the API was restarted since then.
        """
        order = {
            "max_token_length": max_token_length,
            "desired_name": desired_name,
            "weight": self._share.inference_weight,
            "min_batch_allocation": self._share.min_batch_allocation,
            "group_size": self._share.group_size,
        }
        reply = await self._until_trainer(
            functools.partial(self.client.request, "POST", "/register-env", order)
        )
        try:
            if reply["checkpoint_dir"] != checkpoint_dir:
                raise LostStateError(
                    "another trainer has begun: start this environment again"
                )
            await self.client.register_probe()
            info = await self.client.request("GET", "/info")
        except BaseException:
            await self.disconnect(reply["env_id"])
            raise
        return Registration(
            env_id=reply["env_id"],
            name=claimed_name or reply["wandb_name"],
            checkpoint_dir=checkpoint_dir,
            checkpoint_interval=reply["checkpoint_interval"],
            starting_step=reply["starting_step"],
            trainer_steps=reply["num_steps"],
            batch_size=info["batch_size"],
            max_token_len=info["max_token_len"],
        )

    async def _until_trainer(
        self, ask: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        """Repeat a registration or question until there is a trainer; log the wait."""
        began = self._clock()
        reminders = Reminders(self._log_pauses, clock=self._clock)
        while True:
            reply = await ask()
            if reply.get("status") == "success" or reply.get("project") is not None:
                return reply
            url = self.client.url
            if reminders.is_due():
                progress_logger.info(
                    "Waiting for a trainer, %.0f s: start it with the Atropos API at %s; to try "
                    "without one, run `reasoning-gym-environment demo --trainer-only %s`",
                    self._clock() - began,
                    url,
                    url,
                )
            await asyncio.sleep(1)

    # Processes that were killed.

    def note(self, env_id: int) -> str:
        """Return what `disconnect_killed` needs if this process is killed."""
        return f"environment {env_id} {self.client.probe_name}"

    async def disconnect_killed(
        self, note: str, *, keep: Callable[[str], object]
    ) -> None:
        """Disconnect a killed process's environment, unless the API was restarted since.

        Args:
            note: of the process; another text disconnects nothing.
            keep: gets the note of an API that gave its id, since the next process may need it.

        Failures are logged.
        """
        match = re.fullmatch(NOTE, note)
        if not match:
            return
        env_id = int(match[1])
        probe = pack(zero_weight_registration(match[2]))
        try:
            reply = await self.client.ask_once("POST", "/register-env", probe)
            if earlier_registrations(reply) < 2:
                return
            keep(note)
            logger.info(
                "Disconnecting environment %d of this replica's last process", env_id
            )
            await self.client.request("POST", "/disconnect-env", {"env_id": env_id})
        except (*TRANSIENT, FixableError) as error:
            self._warn_of_connected(env_id, error)

    def warn_of_killed(self, env_id: int) -> None:
        """Say what stays at the API if this process is killed, and the ways out."""
        delays_batches = self._share.min_batch_allocation is not None
        logger.log(
            logging.WARNING if delays_batches else logging.DEBUG,
            "If this process is killed, the Atropos API counts environment %d as connected: it "
            "lowers env_weight, and no batch comes without its min_batch_allocation. A restart "
            "under the same --env.replica disconnects it, where checkpoint folders have locks; "
            'else POST {"env_id": %d} to %s/disconnect-env',
            env_id,
            env_id,
            self.client.url,
        )

    def _warn_of_connected(self, env_id: int, error: Exception) -> None:
        logger.warning(
            "Could not disconnect environment %d (%s): unless the Atropos API was restarted since, "
            'POST {"env_id": %d} to %s/disconnect-env',
            env_id,
            str(error) or "no answer",
            env_id,
            self.client.url,
        )

    # While serving.

    async def status(self, env_id: int, *, batch_size: int) -> dict[str, Any]:
        """Return an environment's status, and log what slows it down.

        Raises:
            ConfigurationError: an only environment fills no batch.
            FixableError: as `ApiClient.request`.
        """
        status = await self.client.request("GET", "/status-env", {"env_id": env_id})
        if self._step is None:
            self._require_batches_filled(batch_size, status["env_weight"])
        if self._share.inference_weight == -1:
            status["env_weight"] = 1.0
        step = status["current_step"]
        if step != self._step:
            self._step = step
            self._step_since = self._clock()
        self._warn_of_lower_weight(round(status["env_weight"], 2))
        self.waiting = self._why_waiting(status)
        return status

    def _require_batches_filled(self, batch_size: int, env_weight: float) -> None:
        group_size = self._share.group_size
        if batch_size <= 0 or batch_size % group_size == 0:
            return
        reason = _unfilled(batch_size, group_size)
        if env_weight == 1:
            raise ConfigurationError(reason)
        logger.warning("%s", reason)

    def _warn_of_lower_weight(self, weight: float) -> None:
        if weight < self._weight:
            logger.warning(
                "env_weight fell from %.2f to %.2f, and with it the requests at once: the API "
                "counts other environments as connected, killed ones included",
                self._weight,
                weight,
            )
        self._weight = weight

    def _why_waiting(self, status: Mapping[str, Any]) -> str:
        seconds = self._clock() - self._step_since
        groups = status["queue_size"]
        if seconds < LOG_INTERVAL or not groups:
            return ""
        reason = (
            f"the trainer has taken no new batch for {seconds:.0f} s, since step "
            f"{self._step}: {groups} groups wait in its queue"
        )
        own_share = self._share.min_batch_allocation or 0
        others = 1 - status["unallocated_fraction"] - own_share
        if others > 0.001:  # more than rounding
            reason += (
                f", of which {others:.0%} must come from other environments, killed ones "
                "included (min_batch_allocation)"
            )
        return reason

    async def send(self, group: Mapping[str, Any]) -> None:
        """Send a group of rows, which names its `env_id`.

        Raises:
            ApiRefusedError, TypeError, ValueError: the group is refused, or has no JSON.
            LostStateError: the API lost its state, or has given our id to another environment.
            UnreachableError: the API did not answer.
        """
        tokens = sum(map(len, group["tokens"]))
        is_large = tokens >= LARGE
        async with self._large_bodies if is_large else contextlib.nullcontext():
            body = await run_in_thread_if_large(
                functools.partial(pack, group), tokens=tokens
            )
            reply = await self.client.request("POST", "/scored_data", body, groups=1)
        has_own_size = "group_size" in (group["group_overrides"] or {})
        # The API buffers groups of another size, and the registered one is ours.
        if reply.get("status") == "buffered" and not has_own_size:
            raise self.client.mark_lost("it has our id for another environment")

    async def disconnect(self, env_id: int) -> None:
        """Tell the API that an environment leaves; failures are logged."""
        if self.client.lost:  # another environment may have our id
            return
        goodbye = self.client.ask_once(
            "POST", "/disconnect-env", pack({"env_id": env_id})
        )
        try:
            await asyncio.wait_for(goodbye, CLOSE_SECONDS)
        except (*TRANSIENT, ApiRefusedError) as error:
            self._warn_of_connected(env_id, error)


def _unfilled(batch_size: int, group_size: int) -> str:
    """Say that groups fill no batch, and which sizes do."""
    divisors = [n for n in range(2, batch_size + 1) if batch_size % n == 0]
    fitting = sorted(sorted(divisors, key=lambda n: abs(n - group_size))[:2])
    below = batch_size // group_size * group_size
    return (
        f"groups of {group_size} can't fill the trainer's batch of {batch_size}, and smaller ones "
        "of other environments fill the rest by chance at most: set --env.group_size to "
        f"{' or '.join(map(str, fitting))}, or the trainer's batch size to {below} or "
        f"{below + group_size}"
    )
