"""Requests to Atropos's API server, which are repeated, and notice when the server was restarted.

The API keeps its environments in a list in memory. After a restart it gives our id to the next
environment and would take our groups under that name. So the client registers a restart probe: an
environment of hardly any weight with a unique name, whose registrations the API numbers. An API
that knows fewer of them than it was sent was restarted.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

import aiohttp
from msgspec import Meta

from ..errors import TRY_AGAIN, FixableError
from ..inference.errors import error_message, start_of_body
from ..util import keep_alive
from ..util.outages import Outage, UnreachableError, is_loopback
from ..util.retries import Retry, RetryPolicy
from ..util.values import convert
from .rows import pack

HANG_SECONDS = 8.0
"""A request without a reply for this long is logged as hanging; a status takes milliseconds."""


class ApiRefusedError(FixableError):
    """The API, or a proxy in front of it, refused a request with a 4xx status."""


class LostStateError(FixableError):
    """The API was restarted and does not know this environment."""

    exit_status = TRY_AGAIN


class FailingError(Exception):
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

TRANSIENT = (aiohttp.ClientError, OSError, asyncio.TimeoutError, FailingError)


class ApiClient:
    """Sends requests to the API and repeats them while that may help.

    Attributes:
        url: of the API, without a trailing slash.
        patience: seconds after which a request fails for good.
        lost: raised by all requests once the API has lost its state.
        probe_name: the name under which the restart probe is registered.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.patience = 60.0
        self.lost: LostStateError | None = None
        self.probe_name = f"restart-probe-{uuid.uuid4()}"
        self._probes = 0  # registrations of the probe that the API must know
        self._unverified = False
        # Registrations are numbered: two at once could overtake each other.
        self._probing = asyncio.Lock()
        self._is_away = not is_loopback(urlsplit(url).hostname or "")
        self._outage = Outage(server=f"The Atropos API at {url}")

    @property
    def is_failing(self) -> bool:
        """Whether requests fail now."""
        return bool(self._outage)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | Mapping[str, Any] = b"{}",
        *,
        groups: int = 0,
    ) -> dict[str, Any]:
        """Send a request, which may have groups, until the API gives a valid reply; return that.

        Raises:
            ApiRefusedError: the status is 4xx, except 408 and 429.
            LostStateError: the API lost its state.
            UnreachableError: the API did not answer within `patience`.
        """
        content = body if isinstance(body, bytes) else pack(body)

        async def ask(outage_key: object) -> dict[str, Any]:
            return await self._ask(outage_key, method, path, content)

        return await self._repeat(ask, groups=groups)

    async def register_probe(self) -> dict[str, Any]:
        """Register the restart probe; return the API's reply, and raise as `request` does."""

        async def ask(outage_key: object) -> dict[str, Any]:
            async with self._probing:
                return await self._register_probe()

        return await self._repeat(ask)

    async def _repeat(
        self, ask: Callable[[object], Awaitable[dict[str, Any]]], *, groups: int = 0
    ) -> dict[str, Any]:
        """Ask until there is a valid reply, for `patience` seconds at most."""
        retry = Retry(RetryPolicy(seconds=self.patience))
        with self._outage.request() as outage_key:
            while True:
                try:
                    await self._require_same_api()
                    return await ask(outage_key)
                except TRANSIENT as error:
                    self._unverified = bool(self._probes)
                    why = str(error) or f"no answer within {self.patience:g} s"
                    self._outage.record_failure(why, losses=0, request=outage_key)
                    if not await retry.wait():
                        self._outage.add_losses(groups)
                        raise UnreachableError(
                            f"the Atropos API at {self.url} has not answered for "
                            f"{self.patience:g} s ({why}): start it and its trainer, then this "
                            "environment again"
                        ) from error

    async def _ask(
        self,
        outage_key: object,
        method: str,
        path: str,
        body: bytes,
    ) -> dict[str, Any]:
        """Send a request once; log it as failing while it hangs."""
        request = asyncio.ensure_future(self.ask_once(method, path, body))
        try:
            await asyncio.wait({request}, timeout=HANG_SECONDS)
            if not request.done():
                self._outage.record_failure(
                    "it hangs",
                    losses=0,
                    already=HANG_SECONDS,
                    request=outage_key,
                )
            reply = await request
        except ApiRefusedError:
            self._outage.end(outage_key)
            raise
        finally:
            request.cancel()
        self._outage.end(outage_key)
        return reply

    async def ask_once(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        """Send a request once; return its reply, whose values must have their types."""
        headers = {"Content-Type": "application/json"}
        # Level 1 of gzip: level 2 takes twice the time for a few percent.
        if len(body) >= 1024 and self._is_away:
            body = await asyncio.to_thread(gzip.compress, body, 1)
            headers["Content-Encoding"] = "gzip"
        url = self.url + path
        limit = aiohttp.ClientTimeout(total=self.patience)
        async with (
            aiohttp.ClientSession(
                connector=keep_alive.connector(), timeout=limit
            ) as session,
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
                raise FailingError(reason)
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
            raise FailingError(f"no JSON: {error_message(text)}") from error
        name = ""
        try:
            values = convert(reply, dict[str, Any])
            # Until there is a trainer, the reply has none of the values.
            waits = path == "/register-env" and values.get("status") != "success"
            for name, expected in ({} if waits else _REPLIES.get(path, {})).items():
                convert(values.get(name), expected)
        except ValueError as error:
            place = f"{name}: " if name else ""
            raise FailingError(f"invalid reply to {path}: {place}{error}") from error
        return values

    async def _require_same_api(self) -> None:
        """Raise LostStateError if the API no longer knows the probe after a failed request."""
        if self.lost:
            raise self.lost
        async with self._probing:
            if self._unverified:
                await self._register_probe()

    async def _register_probe(self) -> dict[str, Any]:
        """Register the probe once; raise LostStateError if the API has forgotten it."""
        body = pack(zero_weight_registration(self.probe_name))
        reply = await self.ask_once("POST", "/register-env", body)
        earlier = earlier_registrations(reply)
        if self._probes and earlier < self._probes:
            raise self.mark_lost("it does not know this environment")
        self._probes = earlier + 1
        self._unverified = False
        return reply

    def mark_lost(self, reason: str) -> LostStateError:
        """Fail all requests from now on; return the error that ends the run."""
        self.lost = self.lost or LostStateError(
            f"the Atropos API at {self.url} was restarted: {reason}; start this environment "
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


def earlier_registrations(reply: Mapping[str, Any]) -> int:
    """Return how many environments of that name the API knew before; -1 without a trainer."""
    return int(reply.get("wandb_name", "_-1").rpartition("_")[2])
