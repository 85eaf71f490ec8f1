"""A client for the reward service, for trainers that score in several processes."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import re
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from msgspec import Struct

from ..errors import ConfigurationError
from ..records import Score, Status
from ..util.retries import Retry, RetryPolicy
from ..util.values import convert, replace_surrogates, shorten

logger = logging.getLogger(__name__)

ReplyT = TypeVar("ReplyT")

TOKEN_VARIABLE = "REASONING_GYM_REWARDS_TOKEN"
"""The variable of the token that the service requires and its clients send."""

MAX_REPLY_BYTES = 64 * 2**20

STREAM_NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""A regular expression for the names of streams."""


class _Scores(Struct):
    scores: list[Score]

    def __post_init__(self) -> None:
        for index, each in enumerate(self.scores):
            if each.score is not None and not 0 <= each.score <= 1:
                raise ValueError(
                    f"scores[{index}].score must be in [0, 1], got {each.score}"
                )
            if not 0 <= each.seconds < math.inf:
                raise ValueError(
                    f"scores[{index}].seconds must be ≥ 0, got {each.seconds}"
                )
            if each.solved and not each.score:
                raise ValueError(
                    f"scores[{index}] is solved and has the score {each.score}"
                )
            if (each.score is None) != (each.status is Status.UNSCORED):
                raise ValueError(
                    f"scores[{index}] is {each.status.value} and has the score {each.score}"
                )


@dataclass(frozen=True, slots=True)
class StreamedProblem:
    """A question, the recipe that scores it, and whether the stream asked it before."""

    recipe: dict[str, Any]
    question: str
    asked_again: bool


@dataclass(frozen=True, slots=True)
class ProblemsReply:
    """The next problems of the stream, what their choice brought, and digests of modules.

    `note` says what is wrong with the stream's options; it is usually empty.
    """

    problems: list[StreamedProblem]
    sampling: dict[str, float]
    modules: dict[str, str] = field(default_factory=dict)
    note: str = ""


class ServiceUnavailableError(RuntimeError):
    """A reward service that cannot be reached, or cannot reply now."""

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RewardClient:
    """A blocking client for a reward service; threads and forks may share one.

    Args:
        url: of the service, such as http://127.0.0.1:8080 or http://token:TOKEN@host; without a
            token there, the one of REASONING_GYM_REWARDS_TOKEN is sent.
        patience: seconds to repeat a request while the service cannot be reached or is busy.
        timeout: seconds for one request and its whole reply; the service lets completions wait for
            90 and scores them.

    Attributes:
        url: of the service, without a token.

    Example:
        client = RewardClient("http://127.0.0.1:8080")
        [score] = client.score(recipe, ["<answer>42</answer>"])
    """

    def __init__(
        self, url: str, *, patience: float = 120.0, timeout: float = 300.0
    ) -> None:
        address = r"(https?)://(?:([^/?#]*)@)?(.*)"
        if not isinstance(url, str) or not (match := re.fullmatch(address, url)):
            raise ConfigurationError(
                f"url must begin with http:// or https://, got {shorten(url)}"
            )
        scheme, user, host = match.groups(default="")
        self.url = f"{scheme}://{host}".rstrip("/")
        self._token = unquote(user.partition(":")[2])
        # aiohttp's `trust_env` would also read netrc, and send its password instead of the token.
        self._proxy = (
            None if proxy_bypass(host.partition("/")[0]) else getproxies().get(scheme)
        )
        self._patience = patience
        self._timeout = timeout
        self._noted: set[str] = set()  # streams whose note was logged

    def score(
        self,
        recipe: Mapping[str, Any],
        completions: Sequence[str],
        *,
        stream: str | None = None,
    ) -> list[Score]:
        """Score completions of a problem; the stream that handed it out learns the scores once."""
        body = {
            "recipe": dict(recipe),
            "completions": list(completions),
            "stream": stream,
            "idempotency_key": uuid.uuid4().hex,
        }
        scores = self._post("/score", body, _Scores).scores
        if len(scores) != len(completions):
            raise ServiceUnavailableError(
                f"{self.url} scored {len(scores)} of {len(completions)} completions"
            )
        return scores

    def problems(
        self, stream: str, count: int = 1, options: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return the next problems of a stream, which `options` start, with question and recipe."""
        body = {"stream": stream, "count": count, "options": options and dict(options)}
        reply = self._post("/problems", body, ProblemsReply)
        if reply.note and stream not in self._noted:
            self._noted.add(stream)
            logger.warning("Stream %s: %s", stream, reply.note)
        problems = reply.problems
        if len(problems) != count:
            raise ServiceUnavailableError(
                f"{self.url} sent {len(problems)} of {count} problems"
            )
        return [asdict(each) for each in problems]

    def observe(
        self,
        stream: str,
        recipe: Mapping[str, Any],
        *,
        solved: int,
        attempts: int,
    ) -> None:
        """Tell a stream the result of a problem; 0 attempts drop it without a result."""
        result = {"recipe": dict(recipe), "solved": solved, "attempts": attempts}
        self._post("/observe", {"stream": stream, "results": [result]}, dict[str, Any])

    def _post(self, route: str, body: Mapping[str, Any], reply: type[ReplyT]) -> ReplyT:
        """Post JSON, again while that may succeed later; raises what `score` raises."""
        retry = Retry(RetryPolicy(seconds=self._patience))
        # The service refuses lone surrogates.
        sent, _ = replace_surrogates(json.dumps(body, ensure_ascii=False))
        while True:
            try:
                text = self._attempt(route, sent.encode())
            except ServiceUnavailableError as error:
                pause = retry.next_pause(at_least=error.retry_after)
                if pause is None:
                    raise
                time.sleep(pause)
            else:
                break
        try:
            return convert(json.loads(text), reply)
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(
                f"{self.url}{route} is not a reward service's: its reply is invalid: {error}"
            ) from error

    def _attempt(self, route: str, body: bytes) -> bytes:
        """Post once; in a thread, since the caller's may run an event loop."""
        reply: Future[bytes] = Future()

        def ask() -> None:
            try:
                reply.set_result(asyncio.run(self._ask(self.url + route, body)))
            except Exception as error:  # noqa: BLE001 - raised to the caller, as by executors
                reply.set_exception(error)

        threading.Thread(target=ask, daemon=True).start()
        return reply.result()

    async def _ask(self, url: str, body: bytes) -> bytes:
        import aiohttp  # slow; urllib has no timeout for a whole reply

        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        # The variable may hold several tokens, one a line.
        of_service = os.environ.get(TOKEN_VARIABLE, "").strip().splitlines()
        token = self._token or next(iter(of_service), "")
        if token:
            headers["Authorization"] = f"Bearer {token}"
        limit = aiohttp.ClientTimeout(total=self._timeout)
        text = bytearray()
        session = aiohttp.ClientSession(timeout=limit, auto_decompress=False)
        try:
            posted = session.post(
                url,
                data=body,
                headers=headers,
                proxy=self._proxy,
                # The token goes to the configured address alone.
                allow_redirects=False,
            )
            async with session, posted as reply:
                async for chunk in reply.content.iter_any():
                    text += chunk
                    if len(text) > MAX_REPLY_BYTES:
                        raise aiohttp.ClientPayloadError(
                            f"more than {MAX_REPLY_BYTES} bytes"
                        )
        except (OSError, aiohttp.ClientError, asyncio.TimeoutError) as error:
            why = str(error) or f"no whole reply within {self._timeout:g} s"
            raise ServiceUnavailableError(
                f"{self.url} does not reply: {why}; start `reasoning-gym-environment rewards` "
                "there, or correct the url"
            ) from error
        if reply.status >= 300:
            raise _refusal(
                url, reply.status, bytes(text), reply.headers.get("Retry-After", "")
            )
        return bytes(text)


def _refusal(url: str, status: int, body: bytes, seconds: str) -> Exception:
    """Return the exception of a reply that is an error; `seconds` is its Retry-After."""
    text = body.decode(errors="replace")
    try:
        text = json.loads(text)["error"]
    except (ValueError, RecursionError, KeyError, TypeError):
        text = shorten(text)
    message = f"{url} replied with status {status}: {text}"
    if seconds.isdigit():
        return ServiceUnavailableError(message, retry_after=float(seconds))
    later = status >= 500 or status in (408, 429)
    return ServiceUnavailableError(message) if later else ConfigurationError(message)


def split_stream_url(url: str) -> tuple[str, str]:
    """Return the service's address and the stream's name.

    Example:
        >>> split_stream_url("http://127.0.0.1:8080/run-1")
        ('http://127.0.0.1:8080', 'run-1')
    """
    text = url if isinstance(url, str) else ""  # of a row, which may hold anything
    scheme, place, path, query, fragment = urlsplit(text)
    valid = scheme in ("http", "https") and place and not query and not fragment
    if not valid or not re.fullmatch(f"/{STREAM_NAME}", path):
        raise ConfigurationError(
            "curriculum_url must be the address of a reward service and a stream's name, such as "
            f"http://127.0.0.1:8080/run-1, got {shorten(re.sub('//.*@', '//', str(url)))}"
        )
    return urlunsplit((scheme, place, "", "", "")), path[1:]
