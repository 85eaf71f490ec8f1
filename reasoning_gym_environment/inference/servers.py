"""A client for one inference server: HTTP, rate limits, admission and decoding."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import MappingProxyType
from typing import Any

import aiohttp

from ..errors import ConfigurationError
from ..util import keep_alive
from ..util.command_line import KEY_VARIABLE
from ..util.concurrency import run_in_thread_if_large
from .dialects import (
    ChatText,
    ChatTokens,
    Dialect,
    GenerationRequest,
    SglangGenerate,
    TextSample,
    TokenSample,
    VllmCompletions,
    parse,
)
from .errors import CONNECT_SECONDS, ReplyError, require_ok
from .finish_reasons import UnknownWords
from .rate_limit import RateLimit
from .reply_memory import ReplyMemory
from .usage import RequestUsage, read_usage

logger = logging.getLogger(__name__)


PROBE_SECONDS = 60.0
"""How long the reply to a small request may take."""


_SMALL_REPLY = 2**24
"""Maximum bytes of a reply without tokens."""


SERVER_TYPES: MappingProxyType[str, Dialect] = MappingProxyType(
    {
        "openai": ChatTokens(),
        "sglang": SglangGenerate(),
        "trl": VllmCompletions(),
        "vllm": VllmCompletions(),
    }
)
"""The dialect that returns tokens, by `server_type`. An `openai` server may return only text."""


def api_key(config: Any) -> str:
    """Return the API key; empty for none; raise ConfigurationError if a named variable is unset."""
    named: str = getattr(config, "api_key_var", "")  # Atropos's own class lacks it
    default = KEY_VARIABLE if config.server_type == "openai" else ""
    key: str = config.api_key or os.environ.get(named or default, "").strip()
    if named and not key:
        raise ConfigurationError(
            f"--openai.api_key_var names the environment variable {named}, which is not set: set "
            "it to the server's API key"
        )
    return key


class ServerClient:
    """Client for one inference server, which keeps its connections until `close`.

    Args:
        config: settings of Atropos's `APIServerConfig`.
        admit: returns the context that a split's request holds; by default, semaphores of the
            configured sizes.
        adjust: changes the JSON of requests for completions.
        memory: holds the bytes of replies, perhaps of other servers too; by default of this one.

    Attributes:
        admit: as given; whoever calls `sample` or `reply` holds its context.
        is_chat: whether it is a chat endpoint: `base_url` has any version in its path, and the
            server may return only text.
        tokens: how token ids are requested.
        dialect: how completions are requested; set by negotiation.
        rate_limit: holds the requests back that `sample` sends; `probe` and `json` keep to it.
        probe_usage: what the replies to probes say about their tokens.
    """

    def __init__(
        self,
        config: Any,
        *,
        admit: Callable[[str], AbstractAsyncContextManager[Any]] | None = None,
        adjust: Callable[[dict[str, Any]], dict[str, Any]] = dict,
        memory: ReplyMemory | None = None,
    ) -> None:
        self.config = config
        self.is_chat = config.server_type == "openai"
        self.tokens = SERVER_TYPES[config.server_type]
        self.dialect: Dialect | ChatText = self.text if self.is_chat else self.tokens
        self.rate_limit = RateLimit(self.url(""))
        semaphores = {
            "train": asyncio.Semaphore(config.num_max_requests_at_once),
            "eval": asyncio.Semaphore(config.num_requests_for_eval),
        }
        self.admit = admit or semaphores.__getitem__
        self.probe_usage: list[RequestUsage] = []
        self._adjust = adjust
        self._memory = memory or ReplyMemory()
        self._unknown_words = UnknownWords()
        self._unknown_parts = UnknownWords()
        self._key = api_key(config)

    @property
    def text(self) -> ChatText:
        """How text is requested, as far as the settings tell."""
        return ChatText().without("n") if self.config.n_kwarg_is_ignored else ChatText()

    @property
    def has_key(self) -> bool:
        return bool(self._key)

    @property
    def max_n(self) -> float:
        """The most completions that one request returns."""
        takes_one = isinstance(self.dialect, ChatText) and "n" in self.dialect.left_out
        return 1 if takes_one else math.inf

    async def sample(
        self,
        request: GenerationRequest,
        tell: Callable[[RequestUsage], None] | None = None,
    ) -> list[TokenSample] | list[TextSample]:
        """Return completions, perhaps fewer or more than requested; raise what `json` raises.

        Args:
            tell: gets what a reply of text says about its tokens, whether or not it is valid.
        """
        dialect = self.dialect
        async with self._generated(dialect, request) as body:
            if not isinstance(dialect, ChatText):
                # a token takes at least 32 bytes of a reply
                decode = functools.partial(dialect.samples, body, request)
                of_tokens = await run_in_thread_if_large(decode, tokens=len(body) // 32)
                self._tell_unknown_words(of_tokens)
                return of_tokens
            usage = read_usage(body) if tell is not None else None
            if tell is not None and usage is not None:
                tell(usage)
            samples = dialect.samples(body, request)
        self._tell_unknown_words(samples)
        self._tell_unknown_parts(samples)
        if len(samples) == 1 < request.n and "n" not in dialect.left_out:
            logger.warning("The inference server at %s ignores n", self.config.base_url)
            self.dialect = dialect.without("n")
        return samples

    def _tell_unknown_words(
        self, samples: Sequence[TokenSample] | Sequence[TextSample]
    ) -> None:
        """Log a word for the end of a completion that is taken for a normal end, once."""
        words = [s.ending.word for s in samples if s.ending.is_presumed]
        for word in self._unknown_words.new(filter(None, words)):
            logger.warning(
                "The inference server at %s ends completions with the finish reason %r: taken for "
                "a normal end, like stop, unless the completion has as many tokens as it may have",
                self.url(""),
                word,
            )

    def _tell_unknown_parts(self, samples: Sequence[TextSample]) -> None:
        """Log an unknown type of a message's parts, once."""
        types = [name for sample in samples for name in sample.unknown_parts]
        for name in self._unknown_parts.new(types):
            logger.warning(
                "The inference server at %s replies with parts of the type %r: taken for the reply "
                "where there is no part of the type 'text', else left out",
                self.url(""),
                name,
            )

    async def reply(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return an OpenAI reply with at least one choice; raise what `json` raises."""
        tokens = body["n"] * (
            body.get("max_tokens") or body.get("max_completion_tokens") or 2**15
        )
        if body["n"] == 1 or self.max_n == 1:
            del body["n"]  # some endpoints refuse it
        max_bytes = _SMALL_REPLY + 1024 * tokens
        async with self._reply("POST", path, body, max_bytes) as received:
            reply = parse(received, path)
        choices = reply.get("choices") if isinstance(reply, dict) else None
        if not isinstance(choices, list) or {type(choice) for choice in choices} != {
            dict
        }:
            raise ReplyError(f"the reply to {path} is invalid: it has no choices")
        return dict(reply)

    async def probe(
        self, dialect: Dialect | ChatText, request: GenerationRequest
    ) -> bytes:
        """Return the bytes of a small reply, requested outside of admission."""
        body = await self._small(lambda: self._generated(dialect, request))
        usage = read_usage(body)
        if usage is not None:
            self.probe_usage.append(usage)
        return body

    async def json(self, method: str, path: str, body: Any = None) -> Any:
        """Send a small request and return the reply's JSON.

        Raises:
            aiohttp.ClientResponseError: the server refused, with its own message.
            aiohttp.ClientError, asyncio.TimeoutError: there was no complete reply.
            ReplyError: the reply is not valid JSON.
        """
        return parse(await self._small(lambda: self._reply(method, path, body)), path)

    async def _small(
        self, reply: Callable[[], AbstractAsyncContextManager[memoryview]]
    ) -> bytes:
        """Return the bytes of a reply that takes at most a minute once it is not refused."""

        async def received() -> bytes:
            async with reply() as body:
                return bytes(body)

        return await self.rate_limit.until_answered(
            lambda: asyncio.wait_for(received(), PROBE_SECONDS)
        )

    async def is_alive(self) -> bool:
        """Return whether the server answers within seconds, with any status."""
        limit = aiohttp.ClientTimeout(total=4.0)
        try:
            async with self._session.get(
                self.url("/health"), timeout=limit, allow_redirects=False
            ):
                return True
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError):
            return False

    async def token_ids(self, text: str) -> list[int] | None:
        """Return the server's token ids of a text, or None if it does not report them."""
        body = {
            "model": self.config.model_name,
            "prompt": text,
            "add_special_tokens": False,
        }
        try:
            return list((await self.json("POST", "/tokenize", body))["tokens"])
        except (aiohttp.ClientResponseError, KeyError, ReplyError, TypeError):
            return None

    def url(self, path: str) -> str:
        """Return a path's URL, whether or not `base_url` ends with `/v1`.

        A chat endpoint's `base_url` already has its version, if there is one.
        """
        base = self.config.base_url
        if base is None and self.is_chat:
            base = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
        root = str(base).rstrip("/")
        if self.is_chat and path.startswith("/v1/"):
            return root + path.removeprefix("/v1")
        return root.removesuffix("/v1") + path

    async def close(self) -> None:
        """Close the connections."""
        if "_session" in self.__dict__:
            await self._session.close()

    @functools.cached_property
    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            # 4 s are less than uvicorn's 5: a server that closes a connection first fails a request
            connector=keep_alive.connector(limit=0, keepalive_timeout=4.0),
            # Cookies may bind all requests to one replica.
            cookie_jar=aiohttp.DummyCookieJar(),
            # `Liveness` ends a request at `timeout`, and says so.
            timeout=aiohttp.ClientTimeout(
                total=self.config.timeout + 5.0, sock_connect=CONNECT_SECONDS
            ),
            headers={
                "Accept-Encoding": "identity",
                **({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            },
            auto_decompress=False,  # a few bytes could inflate to any number
        )

    def _generated(
        self, dialect: Dialect | ChatText, request: GenerationRequest
    ) -> AbstractAsyncContextManager[memoryview]:
        tokens = request.n * (len(request.prompt) + request.max_tokens)
        # A token with logprobs takes 80 to 250 bytes.
        max_bytes = _SMALL_REPLY + 1024 * tokens
        return self._reply(
            "POST", dialect.path, self._adjust(dialect.body(request)), max_bytes
        )

    @asynccontextmanager
    async def _reply(
        self,
        method: str,
        path: str,
        body: Any,
        most: int = _SMALL_REPLY,
    ) -> AsyncIterator[memoryview]:
        """Yield the reply's bytes, at most `most`; the buffer is reused afterwards."""
        try:
            response = await self._session.request(
                method,
                self.url(path),
                json=body,
                allow_redirects=False,
            )
        except aiohttp.ClientResponseError as error:  # not HTTP, or a header above 8 kB
            raise ReplyError(
                f"the reply to {path} is invalid: {error.message}"
            ) from error
        async with response:
            await require_ok(response)
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding != "identity":
                raise ReplyError(
                    f"the reply to {path} has the encoding {encoding!r:.30}"
                )
            async with self._memory.hold() as reply:
                async for chunk in response.content.iter_any():
                    if reply.size + len(chunk) > most:
                        raise ReplyError(f"a reply has more than {most} bytes")
                    await reply.append(chunk)
                with reply.view() as received:
                    yield received
