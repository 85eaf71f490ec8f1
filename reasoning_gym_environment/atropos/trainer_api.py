"""Speaks with Atropos's API, which hands groups to the trainer: waits, and knows it by a mark.

The API keeps its environments in memory, as a list. Started anew it gives our id to whoever comes
first, and would take our groups under that name. So a mark is left there: one more environment,
of weight 0 and with a name that nobody else has. Only an API that still knows it is ours.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import itertools
import json
import time
import uuid
from array import array
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from ..errors import TRY_AGAIN, FixableError
from ..inference.columns import are_finite
from ..inference.errors import own_words
from ..util.outages import FailingRequests, UnreachableError, is_loopback
from .validation import COLUMNS, as_list

_SILENT_SECONDS = 8.0
"""So long without an answer is said."""
_PAUSE_SECONDS = 1.0
_COMPRESSED_FROM = 1024
_LEVEL = 1
"""Of compression: the next one takes twice the time for a few percent."""
_HEALING = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_JSON = {"Content-Type": "application/json"}


class ApiRefusedError(FixableError):
    """The API, or a proxy before it, refused a request with a status of 4xx."""


class LostStateError(FixableError):
    """The API is no longer the one that this environment registered at."""

    exit_status = TRY_AGAIN


class _FailingError(Exception):
    """An answer that may be another one later."""


def pack(body: Mapping[str, Any]) -> bytes:
    """Write strict JSON.

    Raises:
        ValueError, TypeError: a number is not finite, a text no Unicode, or a value no JSON.
    """
    columns = {name: body[name] for name in COLUMNS if body.get(name)}
    if not columns or not all(map(_are_numbers, itertools.chain(*columns.values()))):
        return _strict(body)
    numbers = msgspec.json.encode(columns, enc_hook=as_list)
    if b"null" in numbers:  # what isn't finite
        return _strict(body)
    rest = _strict({name: value for name, value in body.items() if name not in columns})
    begin = rest[:-1] + b"," if len(rest) > 2 else b"{"
    return b"".join([begin, memoryview(numbers)[1:]])


def _are_numbers(row: Any) -> bool:
    return isinstance(row, array) or are_finite(row)


def _strict(body: Any) -> bytes:
    return json.dumps(body, allow_nan=False, ensure_ascii=False, default=as_list).encode()


class TrainerApi:
    """Asks the API, and asks again while that may help.

    Args:
        url: without a trailing slash.
        clock: gives the time in seconds.

    Attributes:
        patience: seconds after which a request without an answer is given up.
        lost: whether the API has been found to be another one than that of the registration.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.patience = 60.0
        self.lost = False
        self._url = url
        self._is_away = not is_loopback(urlsplit(url).hostname or "")
        self._clock = clock
        self._outage = FailingRequests(f"The Atropos API at {url}", clock)
        self._mark = {
            "desired_name": f"mark-{uuid.uuid4()}",
            "max_token_length": 1,
            "weight": 0.0,
            "group_size": 1,
        }
        self._marks = 0
        self._doubtful = False
        self._looking = asyncio.Lock()

    async def get(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The reply's JSON; raises what `request` raises."""
        return await self.request("GET", path, pack(body or {}))

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The reply's JSON; raises what `request` raises."""
        return await self.request("POST", path, pack(body))

    async def request(self, method: str, path: str, body: bytes, *, groups: int = 0) -> Any:
        """Send a request until it is answered, and return the reply's JSON.

        Args:
            groups: how many are lost where it is given up.

        Raises:
            ApiRefusedError: a status of 4xx, but for 408 and 429.
            LostStateError: after a failure the API didn't know this environment any more.
            UnreachableError: there was no answer within `patience`.
        """
        this, give_up = object(), self._clock() + self.patience
        try:
            while True:
                try:
                    await self._require_same()
                    return await self._ask(this, method, path, body)
                except (aiohttp.ClientError, OSError, asyncio.TimeoutError, _FailingError) as error:
                    self._doubtful = bool(self._marks)
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
        """One try, which is said to fail as long as it takes too long."""
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
            reason = f"{response.status} {response.reason}: {own_words(text)}"
            if response.status >= 500 or response.status in _HEALING:
                raise _FailingError(reason)
            raise ApiRefusedError(f"the Atropos API refuses {url} with {reason}")
        try:
            return json.loads(text)
        except ValueError as error:
            raise _FailingError(f"no JSON: {own_words(text)}") from error

    async def leave_mark(self) -> None:
        """Leave the mark by which the API is known again, right after the registration.

        Raises:
            LostStateError: there is no trainer any more.
            ApiRefusedError, UnreachableError: as of `request`.
        """
        self._marks = self._number(await self.post("/register-env", self._mark)) + 1
        if self._marks < 1:
            raise self.loses("it was started anew while this environment registered")

    async def _require_same(self) -> None:
        """Raises LostStateError where the API has failed and doesn't know the mark since."""
        async with self._looking:  # marks are numbered: those of two requests could overtake
            if not self._doubtful:
                return
            number = self._number(await self._once("POST", "/register-env", pack(self._mark)))
            if number < self._marks:
                raise self.loses("it doesn't know this environment any more")
            self._marks = number + 1
            self._doubtful = False

    @staticmethod
    def _number(reply: Mapping[str, Any]) -> int:
        """How many environments the API knew under the name before; -1 without a trainer."""
        return int(str(reply.get("wandb_name", "_-1")).rpartition("_")[2])

    def loses(self, why: str) -> LostStateError:
        """Take the API for another one from here on; gives the error that ends the run."""
        self.lost = True
        return LostStateError(
            f"the Atropos API at {self._url} is not the one it was: {why}; start this environment "
            "again, and it goes on from the checkpoint of the trainer's step"
        )
