"""A client for one inference server: HTTP, admission, and decoding off the event loop."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import aiohttp

from ..errors import ConfigurationError
from ..util.command_line import KEY_VARIABLE
from ..util.concurrency import offload
from ._rate_limit import RateLimit
from .dialects import (
    ChatText,
    ChatTokens,
    Dialect,
    GenerationRequest,
    Sample,
    SglangGenerate,
    TextSample,
    VllmCompletions,
    VllmGenerate,
    parse,
)
from .errors import CONNECT_SECONDS, ReplyError, require_ok

logger = logging.getLogger(__name__)

_BYTES_PER_TOKEN = 32
"""In replies, at least."""
_MAX_BYTES_PER_TOKEN = 1024
"""In replies, on average at most: 80 to 250 with logprobs."""
_MAX_SMALL_BYTES = 2**24
"""Of any reply; more only by its tokens."""
_ALIVE_SECONDS = 4.0
PROBE_SECONDS = 60.0
"""How long the reply to a small request may take."""
_KEEPALIVE_SECONDS = 4.0
"""Less than the 5 s of uvicorn: a server that closes a connection first fails a request."""


class ServerConfig(Protocol):
    """Settings of an inference server; Atropos's `APIServerConfig` has them."""

    base_url: str | None
    api_key: str | None
    model_name: str
    timeout: float
    server_type: str
    num_max_requests_at_once: int
    num_requests_for_eval: int
    n_kwarg_is_ignored: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerType:
    """What servers of one `server_type` have in common.

    Attributes:
        dialects: those that return tokens, the likeliest first.
        is_chat: whether it is a chat endpoint: `base_url` has any version in its path, and the
            server may return only text.
    """

    dialects: tuple[Dialect, ...]
    is_chat: bool = False


SERVER_TYPES = MappingProxyType(
    {
        "openai": ServerType(dialects=(ChatTokens(),), is_chat=True),
        "sglang": ServerType(dialects=(SglangGenerate(),)),
        "trl": ServerType(dialects=(VllmCompletions(),)),
        "vllm": ServerType(dialects=(VllmCompletions(), VllmGenerate())),
    }
)


def api_key(config: ServerConfig) -> str:
    """Return the configured key, or else that of the environment variable; empty for none.

    Raises:
        ConfigurationError: the variable is named and not set.
    """
    named: str = getattr(config, "api_key_var", "")  # Atropos's own class lacks it
    default = KEY_VARIABLE if config.server_type == "openai" else ""
    key = config.api_key or os.environ.get(named or default, "").strip()
    if named and not key:
        raise ConfigurationError(
            f"--openai.api_key_var names the environment variable {named}, which is not set: set "
            "it to the server's API key"
        )
    return key


class ReplyBuffers:
    """Reusable buffers for the bodies of a few replies at a time.

    Allocating 10 MB for a long group's reply takes as long as reading it. Replies beyond `AT_ONCE`
    wait in their connections.
    """

    AT_ONCE = 4
    _KEPT_BYTES = 2**26

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(self.AT_ONCE)
        self._free: list[bytearray] = []

    @asynccontextmanager
    async def filled(self, chunks: AsyncIterator[bytes], most: int) -> AsyncIterator[memoryview]:
        """Yield the body that the chunks make up; its bytes are reused afterwards.

        Raises:
            ReplyError: there are more than `most` bytes.
        """
        async with self._slots:
            buffer = self._free.pop() if self._free else bytearray()
            size = 0
            async for chunk in chunks:
                if size + len(chunk) > most:
                    raise ReplyError(f"a reply has more than {most} bytes")
                buffer[size : size + len(chunk)] = chunk
                size += len(chunk)
            with memoryview(buffer) as whole, whole[:size] as body:
                yield body
            if len(self._free) < self.AT_ONCE and len(buffer) <= self._KEPT_BYTES:
                self._free.append(buffer)


class ServerClient:
    """Client for one inference server, which keeps its connections until `close`.

    Args:
        server_type: the configured one by default.
        admit: returns the context that a split's request holds; by default, semaphores of the
            configured sizes.
        adjust: changes the JSON of requests for completions.

    Attributes:
        dialect: set by negotiation.
        rate_limit: holds the requests back that `sample` sends; `probe` and `json` keep to it.
        negotiates: whether negotiation can determine the dialect.
    """

    negotiates = True
    dialect: Dialect | ChatText

    def __init__(
        self,
        config: ServerConfig,
        server_type: str | None = None,
        *,
        admit: Callable[[str], AbstractAsyncContextManager[Any]] | None = None,
        adjust: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    ) -> None:
        self.config = config
        self.type = SERVER_TYPES[server_type or config.server_type]
        self.dialect = self.text if self.type.is_chat else self.type.dialects[0]
        self.rate_limit = RateLimit(self.url(""))
        self._admit = admit or _semaphores(config).__getitem__
        self._adjust = adjust
        self._buffers = ReplyBuffers()
        self._key = api_key(config)

    @property
    def text(self) -> ChatText:
        """How text is requested, as far as the settings tell."""
        return ChatText().without("n") if self.config.n_kwarg_is_ignored else ChatText()

    @property
    def max_n(self) -> float:
        """The most completions that one request returns."""
        takes_one = isinstance(self.dialect, ChatText) and "n" in self.dialect.left_out
        return 1 if takes_one else math.inf

    async def sample(
        self, request: GenerationRequest, split: str
    ) -> list[Sample] | list[TextSample]:
        """Return completions, perhaps fewer or more than requested.

        Raises:
            ReplyError: the reply is malformed.
            Exception: what `json` raises.
        """
        async with self._admit(split):
            if isinstance(self.dialect, ChatText):
                return await self._sample_texts(self.dialect, request)
            return await self._sample_tokens(self.dialect, request)

    async def _sample_tokens(self, dialect: Dialect, request: GenerationRequest) -> list[Sample]:
        async with self._generated(dialect, request) as body:
            return await offload(
                functools.partial(dialect.samples, body, request),
                tokens=len(body) // _BYTES_PER_TOKEN,
            )

    async def _sample_texts(self, form: ChatText, request: GenerationRequest) -> list[TextSample]:
        async with self._generated(form, request) as reply:
            samples = form.samples(reply)
        if len(samples) == 1 < request.n and "n" not in form.left_out:
            logger.warning("The inference server at %s ignores n", self.config.base_url)
            self.dialect = form.without("n")
        return samples

    async def probe(self, dialect: Dialect | ChatText, request: GenerationRequest) -> bytes:
        """Return the bytes of a small reply, requested outside of admission."""
        return await self._small(lambda: self._generated(dialect, request))

    async def json(self, method: str, path: str, body: Any = None) -> Any:
        """Send a small request and return the reply's JSON.

        Raises:
            aiohttp.ClientResponseError: the server refused, with its own message.
            aiohttp.ClientError, asyncio.TimeoutError: there was no complete reply.
            ReplyError: the reply is not valid JSON.
        """
        return parse(await self._small(lambda: self._reply(method, path, body)), path)

    async def _small(self, reply: Callable[[], AbstractAsyncContextManager[memoryview]]) -> bytes:
        """Return the bytes of a reply that takes at most a minute once it is not refused."""

        async def received() -> bytes:
            async with reply() as body:
                return bytes(body)

        return await self.rate_limit.until_answered(
            lambda: asyncio.wait_for(received(), PROBE_SECONDS)
        )

    async def is_alive(self) -> bool:
        """Return whether the server answers within seconds, with any status."""
        limit = aiohttp.ClientTimeout(total=_ALIVE_SECONDS)
        try:
            async with self._session.get(self.url("/health"), timeout=limit, allow_redirects=False):
                return True
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError):
            return False

    async def token_ids(self, text: str) -> list[int] | None:
        """Return the server's token ids of a text, or None if it does not report them."""
        body = {"model": self.config.model_name, "prompt": text, "add_special_tokens": False}
        try:
            return list((await self.json("POST", "/tokenize", body))["tokens"])
        except (aiohttp.ClientResponseError, KeyError, ReplyError, TypeError):
            return None

    def url(self, path: str) -> str:
        """Return a path's URL, whether or not `base_url` ends with `/v1`.

        A chat endpoint's `base_url` already has its version, if there is one.
        """
        base = self.config.base_url
        if base is None and self.type.is_chat:
            base = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
        root = str(base).rstrip("/")
        if self.type.is_chat and path.startswith("/v1/"):
            return root + path.removeprefix("/v1")
        return root.removesuffix("/v1") + path

    async def close(self) -> None:
        """Close the connections."""
        if "_session" in self.__dict__:
            await self._session.close()

    @functools.cached_property
    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),  # cookies may bind all requests to one replica
            timeout=aiohttp.ClientTimeout(total=self.config.timeout, sock_connect=CONNECT_SECONDS),
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
        most = _MAX_SMALL_BYTES + _MAX_BYTES_PER_TOKEN * tokens
        return self._reply("POST", dialect.path, self._adjust(dialect.body(request)), most)

    @asynccontextmanager
    async def _reply(
        self, method: str, path: str, body: Any, most: int = _MAX_SMALL_BYTES
    ) -> AsyncIterator[memoryview]:
        """Yield the reply's bytes, at most so many, which are reused afterwards."""
        try:
            response = await self._session.request(
                method, self.url(path), json=body, allow_redirects=False
            )
        except aiohttp.ClientResponseError as error:  # not HTTP, or a header above 8 kB
            raise ReplyError(f"the reply to {path} is invalid: {error.message}") from error
        async with response:
            await require_ok(response)
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding != "identity":
                raise ReplyError(f"the reply to {path} has the encoding {encoding!r:.30}")
            async with self._buffers.filled(response.content.iter_any(), most) as reply:
                yield reply


def _semaphores(config: ServerConfig) -> Mapping[str, AbstractAsyncContextManager[None]]:
    return {
        "train": asyncio.Semaphore(config.num_max_requests_at_once),
        "eval": asyncio.Semaphore(config.num_requests_for_eval),
    }
