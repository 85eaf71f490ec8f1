"""A client of Atropos's API that retries, and notices when the API was restarted.

The API keeps its environments in a list in memory. After a restart it gives our id to the next
environment and would take our groups under that name. So the client registers a sentinel: an
environment of weight 0 with a unique name. An API that doesn't know the sentinel was restarted.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from ..errors import TRY_AGAIN, FixableError
from ..inference.errors import error_message
from ..util.outages import FailingRequests, UnreachableError, is_loopback
from .scored_data import pack

logger = logging.getLogger(__name__)

_SILENT_SECONDS = 8.0
"""Silence after which a request is logged as hanging."""
_PAUSE_SECONDS = 1.0
_GOODBYE_SECONDS = 5.0
_COMPRESSED_FROM = 1024
_LEVEL = 1
"""Compression level: the next one takes twice the time for a few percent."""
_TRANSIENT = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_JSON = {"Content-Type": "application/json"}


class ApiRefusedError(FixableError):
    """The API, or a proxy in front of it, refused a request with a 4xx status."""


class LostStateError(FixableError):
    """The API was restarted and does not know this environment."""

    exit_status = TRY_AGAIN


class _FailingError(Exception):
    """A transient error status or an invalid reply."""


class TrainerApi:
    """A client that retries requests while a retry may help.

    Args:
        url: without a trailing slash.
        clock: gives the time in seconds.

    Attributes:
        patience: seconds after which a request fails for good.
        lost: the error that every request raises once the API was found to have lost its state.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.patience = 60.0
        self.lost: LostStateError | None = None
        self._url = url
        self._is_away = not is_loopback(urlsplit(url).hostname or "")
        self._clock = clock
        self._outage = FailingRequests(f"The Atropos API at {url}", clock)
        self._sentinel = {
            "desired_name": f"sentinel-{uuid.uuid4()}",
            "max_token_length": 1,
            "weight": 0.0,
            "group_size": 1,
        }
        self._sentinels = 0
        self._unverified = False
        self._verifying = asyncio.Lock()

    async def get(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the reply's JSON; raises as `request`."""
        return await self.request("GET", path, pack(body or {}))

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the reply's JSON; raises as `request`."""
        return await self.request("POST", path, pack(body))

    async def request(self, method: str, path: str, body: bytes, *, groups: int = 0) -> Any:
        """Send a request until the API answers; return the reply's JSON.

        Args:
            groups: number of groups that are lost if the request fails.

        Raises:
            ApiRefusedError: the status is 4xx, except 408 and 429.
            LostStateError: the API lost its state.
            UnreachableError: the API did not answer within `patience`.
        """
        this, give_up = object(), self._clock() + self.patience
        try:
            while True:
                try:
                    await self._require_same_api()
                    return await self._ask(this, method, path, body)
                except (aiohttp.ClientError, OSError, asyncio.TimeoutError, _FailingError) as error:
                    self._unverified = bool(self._sentinels)
                    why = str(error) or f"no answer within {self.patience:g} s"
                    self._outage.fails(this, why)
                    if self._clock() + _PAUSE_SECONDS >= give_up:
                        self._outage.dropped(this, lost=groups)
                        raise UnreachableError(
                            f"the Atropos API at {self._url} has not answered for "
                            f"{self.patience:g} s ({why}): start it and its trainer, then this "
                            "environment again"
                        ) from error
                await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            self._outage.dropped(this)

    async def _ask(self, this: object, method: str, path: str, body: bytes) -> Any:
        """Send a request once; log it as failing while it hangs."""
        asked = asyncio.ensure_future(self._once(method, path, body))
        try:
            await asyncio.wait({asked}, timeout=_SILENT_SECONDS)
            if not asked.done():
                self._outage.fails(this, "it hangs", already=_SILENT_SECONDS)
            reply = await asked
        except ApiRefusedError:
            self._outage.answered(this)
            raise
        finally:
            asked.cancel()
        self._outage.answered(this)
        return reply

    async def _once(self, method: str, path: str, body: bytes) -> Any:
        headers = _JSON
        if len(body) >= _COMPRESSED_FROM and self._is_away:
            body = await asyncio.to_thread(gzip.compress, body, _LEVEL)
            headers = {**_JSON, "Content-Encoding": "gzip"}
        url, limit = self._url + path, aiohttp.ClientTimeout(total=self.patience)
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.request(method, url, data=io.BytesIO(body), headers=headers) as response,
        ):
            text = await response.text()
        if not response.ok:
            reason = f"{response.status} {response.reason}: {error_message(text)}"
            if response.status >= 500 or response.status in _TRANSIENT:
                raise _FailingError(reason)
            raise ApiRefusedError(f"the Atropos API refuses {url} with {reason}")
        try:
            return json.loads(text)
        except ValueError as error:
            raise _FailingError(f"no JSON: {error_message(text)}") from error

    async def register_sentinel(self) -> None:
        """Register the sentinel, right after this environment.

        Raises:
            LostStateError: the API has no trainer any more.
            ApiRefusedError, UnreachableError: as `request`.
        """
        reply = await self.post("/register-env", self._sentinel)
        self._sentinels = _number_of_namesakes(reply) + 1
        if self._sentinels < 1:
            raise self.mark_lost("it was restarted while this environment registered")

    async def _require_same_api(self) -> None:
        """After a failed request, raise LostStateError unless the API knows the sentinel."""
        if self.lost:
            raise self.lost
        async with self._verifying:  # registrations are numbered: two could overtake each other
            if not self._unverified:
                return
            reply = await self._once("POST", "/register-env", pack(self._sentinel))
            number = _number_of_namesakes(reply)
            if number < self._sentinels:
                raise self.mark_lost("it does not know this environment")
            self._sentinels = number + 1
            self._unverified = False

    async def disconnect(self, env_id: int) -> None:
        """Tell the API that an environment leaves; a failure is logged."""
        if self.lost:  # another environment may have our id
            return
        timeout, body = aiohttp.ClientTimeout(total=_GOODBYE_SECONDS), {"env_id": env_id}
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(f"{self._url}/disconnect-env", json=body) as response,
            ):
                response.raise_for_status()
        except (aiohttp.ClientError, asyncio.TimeoutError) as error:
            logger.warning("Could not disconnect from the Atropos API at %s: %s", self._url, error)

    def mark_lost(self, reason: str) -> LostStateError:
        """Fail all requests from here on; return the error that ends the run."""
        self.lost = self.lost or LostStateError(
            f"the Atropos API at {self._url} was restarted: {reason}; start this environment "
            "again, and it continues the checkpoint of the trainer's step"
        )
        return self.lost


def _number_of_namesakes(reply: Mapping[str, Any]) -> int:
    """Return how many environments of that name the API knew before; -1 without a trainer."""
    return int(str(reply.get("wandb_name", "_-1")).rpartition("_")[2])
