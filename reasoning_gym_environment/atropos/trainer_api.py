"""The client of Atropos's API server, which retries, and notices when the server was restarted.

The API keeps its environments in a list in memory. After a restart it gives our id to the next
environment and would take our groups under that name. So the client registers a restart probe: an
environment of hardly any weight with a unique name. An API that doesn't know the probe was
restarted.

The registration of a killed process stays connected: it lowers the weights of others, and no batch
comes without its `min_batch_allocation`. So a replica leaves a note to the next process of its
name: its id, and the name of a probe that it registered once at the API that gave the id. No other
API knows that name, for whoever asks one uses the note up first. A restarted API may know the
restart probe, from a verification.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

import aiohttp
from msgspec import Meta
from tenacity import RetryError  # which ends the retries of atroposlib

from ..errors import TRY_AGAIN, ConfigurationError, FixableError
from ..inference.errors import error_message, start_of_body
from ..rollouts.progress import progress_logger
from ..util.outages import (
    LOG_INTERVAL,
    LogThrottle,
    Outage,
    Retry,
    UnreachableError,
    is_loopback,
)
from ..util.values import convert
from .rows import pack

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
"""How long groups in flight and the goodbye have to arrive at the end of a run."""


class ApiRefusedError(FixableError):
    """The API, or a proxy in front of it, refused a request with a 4xx status."""


class LostStateError(FixableError):
    """The API was restarted and does not know this environment."""

    exit_status = TRY_AGAIN


class _FailingError(Exception):
    """A transient error status or an invalid reply."""


_COUNT: Any = Annotated[int, Meta(ge=0, lt=2**53)]

_LIMIT: Any = Annotated[int, Meta(ge=-1)]  # -1 for none

_REPLIES: Mapping[str, Mapping[str, Any]] = {
    "/wandb_info": {"group": str | None, "project": str | None},
    "/info": {"batch_size": _LIMIT, "max_token_len": _LIMIT},
    "/status-env": {
        **dict.fromkeys(("current_step", "queue_size", "self_queue_size"), _COUNT),
        "max_group_size": Annotated[int, Meta(ge=1)],
        "env_weight": Annotated[float, Meta(ge=0, le=1000)],
        "unallocated_fraction": Annotated[float, Meta(ge=0, le=1)],
    },
    "/register-env": {
        **dict.fromkeys(("env_id", "starting_step"), _COUNT),
        **dict.fromkeys(("checkpoint_interval", "num_steps"), int),
        "checkpoint_dir": Annotated[str, Meta(pattern="^[^\0]*$")],
        "wandb_name": Annotated[str, Meta(pattern="^[^\0]*_[0-9]{1,9}$")],
    },
}
"""Types of the values in the API's replies, by path."""

_TRANSIENT = (aiohttp.ClientError, OSError, asyncio.TimeoutError, _FailingError)


class TrainerApi:
    """A client that retries requests while a retry may help.

    Attributes:
        waiting: why the trainer waits, if it has taken no batch for a minute; else empty.
        note_probe: the registration that proves, when it is known, that an API was not restarted.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.patience = 60.0  # seconds after which a request fails for good
        # Raised by all once the API has lost its state.
        self.lost: LostStateError | None = None
        self._url = url  # without a trailing slash
        self._is_away = not is_loopback(urlsplit(url).hostname or "")
        self._outage = Outage(server=f"The Atropos API at {url}")
        self._restart_probe = zero_weight_registration(f"sentinel-{uuid.uuid4()}")
        self.note_probe = zero_weight_registration(f"witness-{uuid.uuid4()}")
        self._earlier_probes = 0
        self._unverified = False
        self._verifying = asyncio.Lock()
        self.waiting = ""
        self._clock = clock
        self._step: int | None = None  # at the last `status`
        self._step_since = 0.0
        self._weight = 1.0  # that of an environment alone

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | Mapping[str, Any] = b"{}",
        *,
        groups: int = 0,
    ) -> Any:
        """Send a request, which may have groups, until the API gives a valid reply; return that.

        Raises:
            ApiRefusedError: the status is 4xx, except 408 and 429.
            LostStateError: the API lost its state.
            UnreachableError: the API did not answer within `patience`.
        """
        content = body if isinstance(body, bytes) else pack(body)
        retry = Retry(self.patience)
        with self._outage.request() as this:
            while True:
                try:
                    await self._require_same_api()
                    return await self._ask(this, method, path, content)
                except _TRANSIENT as error:
                    self._unverified = bool(self._earlier_probes)
                    why = str(error) or f"no answer within {self.patience:g} s"
                    self._outage.record_failure(why, lost=0, request=this)
                    if not await retry.wait():
                        self._outage.lost += groups
                        raise UnreachableError(
                            f"the Atropos API at {self._url} has not answered for "
                            f"{self.patience:g} s ({why}): start it and its trainer, then this "
                            "environment again"
                        ) from error

    async def _ask(
        self,
        this: object,
        method: str,
        path: str,
        body: bytes,
    ) -> Any:
        """Send a request once; log it as failing while it hangs."""
        request = asyncio.ensure_future(self._once(method, path, body))
        try:
            await asyncio.wait({request}, timeout=8.0)
            if not request.done():
                self._outage.record_failure(
                    "it hangs",
                    lost=0,
                    already=8.0,
                    request=this,
                )
            reply = await request
        except ApiRefusedError:
            self._outage.end(this)
            raise
        finally:
            request.cancel()
        self._outage.end(this)
        return reply

    async def _once(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        """Send a request once; return its reply, whose values must have their types."""
        headers = {"Content-Type": "application/json"}
        # Level 1 of gzip: level 2 takes twice the time for a few percent.
        if len(body) >= 1024 and self._is_away:
            body = await asyncio.to_thread(gzip.compress, body, 1)
            headers["Content-Encoding"] = "gzip"
        url = self._url + path
        limit = aiohttp.ClientTimeout(total=self.patience)
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.request(
                method,
                url,
                data=io.BytesIO(body),
                headers=headers,
            ) as response,
        ):
            text = await start_of_body(response)
        if not response.ok:
            reason = f"{response.status} {response.reason}: {error_message(text)}"
            if response.status >= 500 or response.status in (408, 429):
                raise _FailingError(reason)
            hint = ""
            if response.status in (404, 405):  # run-api and vLLM share the port 8000
                hint = (
                    "; another server may listen there: set --env.rollout_server_url to the "
                    "address of `run-api`"
                )
            raise ApiRefusedError(f"the Atropos API refuses {url} with {reason}{hint}")
        try:
            reply = json.loads(text)
        except (RecursionError, ValueError) as error:
            raise _FailingError(f"no JSON: {error_message(text)}") from error
        name = ""
        try:
            values = convert(reply, dict[str, Any])
            # Until there is a trainer, the reply has none of the values.
            waits = path == "/register-env" and values.get("status") != "success"
            for name, expected in ({} if waits else _REPLIES.get(path, {})).items():
                convert(values.get(name), expected)
        except ValueError as error:
            place = f"{name}: " if name else ""
            raise _FailingError(f"invalid reply to {path}: {place}{error}") from error
        return values

    async def until_trainer(self, *request: Any, interval: float) -> dict[str, Any]:
        """Repeat a registration or question until there is a trainer; log the wait."""
        began = self._clock()
        throttle = LogThrottle(interval=interval)
        while True:
            reply: dict[str, Any] = await self.request(*request)
            if reply.get("status") == "success" or reply.get("project") is not None:
                return reply
            throttle.record_failure()
            if throttle.should_log:
                progress_logger.warning(
                    "Waiting for a trainer, %.0f s: start it with the Atropos API at %s; to try "
                    "without one, run `reasoning-gym-environment demo --trainer-only %s`",
                    self._clock() - began,
                    self._url,
                    self._url,
                )
            await asyncio.sleep(1)

    def note(self, env_id: int) -> str:
        """Return what `disconnect_stale_registration` needs if this process is killed."""
        return f"environment {env_id} {self.note_probe['desired_name']}"

    def warn_of_stale_registration(
        self, env_id: int, min_batch_allocation: float | None
    ) -> None:
        """Say what stays at the API if this process is killed, and the ways out."""
        logger.log(
            logging.DEBUG if min_batch_allocation is None else logging.WARNING,
            "If this process is killed, the Atropos API counts environment %d as connected: it "
            "lowers env_weight, and no batch comes without its min_batch_allocation. A restart "
            "under the same --env.replica disconnects it, where checkpoint folders have locks; "
            'else POST {"env_id": %d} to %s/disconnect-env',
            env_id,
            env_id,
            self._url,
        )

    async def disconnect_stale_registration(
        self, note: str, *, keep: Callable[[str], object]
    ) -> None:
        """Disconnect a former process's environment, unless the API was restarted since.

        `keep` gets the note of an API that knows it: the next process may need it. Failures are
        logged.
        """
        match = re.fullmatch(r"environment (\d+) (witness-[\w-]+)", note)
        if not match:
            return
        env_id = int(match[1])
        try:  # the probe is asked for once: a second time, each API knows it
            reply = await self._once(
                "POST", "/register-env", pack(zero_weight_registration(match[2]))
            )
            if earlier_registrations(reply) < 1:
                return
            keep(note)
            logger.info(
                "Disconnecting environment %d of this replica's last process", env_id
            )
            await self.request("POST", "/disconnect-env", {"env_id": env_id})
        except (*_TRANSIENT, FixableError) as error:
            self._warn_of_connected(env_id, error)

    async def status(
        self,
        env_id: int,
        *,
        group_size: int,
        batch_size: int,
        inference_weight: float,
        min_batch_allocation: float | None,
    ) -> dict[str, Any]:
        """Return an environment's status, and log what slows it down.

        Raises the errors of `request`; ConfigurationError if an only environment fills no batch.
        """
        status: dict[str, Any] = await self.request(
            "GET", "/status-env", {"env_id": env_id}
        )
        if self._step is None and batch_size > 0 and batch_size % group_size:
            reason = _unfilled(batch_size, group_size)
            if status["env_weight"] == 1:
                raise ConfigurationError(reason)
            logger.warning("%s", reason)
        if inference_weight == -1:
            status["env_weight"] = 1.0
        weight = round(status["env_weight"], 2)
        now = self._clock()
        if status["current_step"] != self._step:
            self._step = status["current_step"]
            self._step_since = now
        if weight < self._weight:
            logger.warning(
                "env_weight fell from %.2f to %.2f, and with it the requests at once: the API "
                "counts other environments as connected, killed ones included",
                self._weight,
                weight,
            )
        self._weight = weight
        seconds = now - self._step_since
        groups = status["queue_size"]
        self.waiting = ""
        if seconds >= LOG_INTERVAL and groups:
            self.waiting = (
                f"the trainer has taken no new batch for {seconds:.0f} s, since step "
                f"{self._step}: {groups} groups wait in its queue"
            )
            others = 1 - status["unallocated_fraction"] - (min_batch_allocation or 0)
            if others > 0.001:
                self.waiting += (
                    f", of which {others:.0%} must come from other environments, killed ones "
                    "included (min_batch_allocation)"
                )
        return status

    async def register_restart_probe(self) -> None:
        """Register the restart probe right after this environment; raises as `request` does."""
        reply = await self.request("POST", "/register-env", self._restart_probe)
        self._earlier_probes = earlier_registrations(reply) + 1
        if self._earlier_probes < 1:
            raise self.mark_lost("it was restarted while this environment registered")

    async def _require_same_api(self) -> None:
        """Raise LostStateError if the API no longer knows the probe after a failed request."""
        if self.lost:
            raise self.lost
        # Registrations are numbered: two could overtake each other.
        async with self._verifying:
            if not self._unverified:
                return
            reply = await self._once("POST", "/register-env", pack(self._restart_probe))
            number = earlier_registrations(reply)
            if number < self._earlier_probes:
                raise self.mark_lost("it does not know this environment")
            self._earlier_probes = number + 1
            self._unverified = False

    async def disconnect(self, env_id: int) -> None:
        """Tell the API that an environment leaves; failures are logged."""
        if self.lost:  # another environment may have our id
            return
        try:
            goodbye = self._once("POST", "/disconnect-env", pack({"env_id": env_id}))
            await asyncio.wait_for(goodbye, CLOSE_SECONDS)
        except (*_TRANSIENT, ApiRefusedError) as error:
            self._warn_of_connected(env_id, error)

    def _warn_of_connected(self, env_id: int, error: Exception) -> None:
        logger.warning(
            "Could not disconnect environment %d (%s): unless the Atropos API was restarted since, "
            'POST {"env_id": %d} to %s/disconnect-env',
            env_id,
            str(error) or "no answer",
            env_id,
            self._url,
        )

    def mark_lost(self, reason: str) -> LostStateError:
        """Fail all requests from now on; return the error that ends the run."""
        self.lost = self.lost or LostStateError(
            f"the Atropos API at {self._url} was restarted: {reason}; start this environment "
            "again, and it continues the checkpoint of the trainer's step"
        )
        return self.lost


def zero_weight_registration(name: str) -> dict[str, Any]:
    """Return the registration of an environment that takes no share of anything."""
    weight = 1e-30  # the API divides by the sum of all weights
    return {
        "desired_name": name,
        "max_token_length": 1,
        "weight": weight,
        "group_size": 1,
    }


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


def earlier_registrations(reply: Mapping[str, Any]) -> int:
    """Return how many environments of that name the API knew before; -1 without a trainer."""
    return int(reply.get("wandb_name", "_-1").rpartition("_")[2])


def stopped_answering(url: str, error: BaseException) -> UnreachableError:
    """Return what ends a run whose API answers no more; Atropos nests its retries in `error`."""
    cause = error
    while isinstance(cause, RetryError):
        inner = cause.last_attempt.exception()
        if inner is None:
            break
        cause = inner
    return UnreachableError(
        f"the Atropos API at {url} stopped answering ({cause}): restart it, the trainer and this "
        "environment"
    )
