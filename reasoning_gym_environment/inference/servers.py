"""Clients of atroposlib that get token ids and logprobs, one for each server type."""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import aiohttp
from atroposlib.envs.server_handling.openai_server import OpenAIServer
from atroposlib.envs.server_handling.server_baseline import APIServer
from openai import AsyncClient, Timeout
from openai.types.chat import ChatCompletion
from tenacity import stop_after_attempt

from ..util.concurrency import offload
from .dialects import (
    ChatText,
    ChatTokens,
    SglangGenerate,
    TrlGenerate,
    VllmCompletions,
    VllmGenerate,
)
from .errors import CONNECT_SECONDS, require_ok
from .requests import Ask, Dialect, ReplyError
from .wire import Buffers, parsed, read_body

_BYTES_A_TOKEN = 32
"""Of a reply, about, where it says little of each."""
_THERE_SECONDS = 4.0
_ONCE: dict[str, Any] = {"stop": stop_after_attempt(1), "reraise": True}
"""Instead of Atropos's own retries: `Failover` decides who is asked again, and when."""


class TokenClient:
    """What the clients share: one JSON request in a dialect, and its checked reply.

    Attributes:
        dialects: those a server of this type may speak, the likeliest first.
        dialect: the one it speaks, as the start has found out.
        needs_tokens: whether a server that gives text alone is of no use.
    """

    dialects: ClassVar[tuple[Dialect, ...]]
    needs_tokens: ClassVar[bool] = True
    config: Any
    _tokens_and_logprobs_comp = APIServer._tokens_and_logprobs_comp.retry_with(**_ONCE)
    _tokens_and_logprobs_comp_eval = APIServer._tokens_and_logprobs_comp_eval.retry_with(**_ONCE)

    def url(self, path: str) -> str:
        """Where a path is; the configured URL may end with `/v1` or not."""
        root = str(self.config.base_url).rstrip("/").removesuffix("/v1")
        return f"{root}{path}"

    @property
    def dialect(self) -> Dialect:
        return getattr(self, "_dialect", self.dialects[0])

    @dialect.setter
    def dialect(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def session(self) -> aiohttp.ClientSession:
        """A session with the configured key and time limit."""
        key = self.config.api_key
        return aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self.config.timeout, sock_connect=CONNECT_SECONDS),
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )

    def more(self, body: dict[str, Any]) -> dict[str, Any]:
        """The request as this client's configuration wants it."""
        return body

    async def ask(self, dialect: Dialect, ask: Ask) -> Any:
        """The reply's JSON; raises what `request` raises."""
        return await self.request("POST", dialect.path, self.more(dialect.body(ask)))

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request and return the reply's JSON.

        Raises:
            aiohttp.ClientResponseError: the server refused; its message is the server's own words.
            aiohttp.ClientError, asyncio.TimeoutError: there was no whole reply.
            ReplyError: the reply is no JSON.
        """
        async with self._reply(method, path, body) as reply:
            return parsed(reply, path)

    @functools.cached_property
    def _buffers(self) -> Buffers:
        return Buffers()

    @asynccontextmanager
    async def _reply(self, method: str, path: str, body: Any) -> AsyncIterator[memoryview]:
        """The reply's bytes, until the context closes."""
        async with (
            self.session() as session,
            session.request(method, self.url(path), json=body) as response,
        ):
            await require_ok(response)
            async with self._buffers.filled(response.content.iter_any()) as reply:
                yield reply

    async def is_there(self) -> bool:
        """Whether anything answers within seconds, whatever it says."""
        limit = aiohttp.ClientTimeout(total=_THERE_SECONDS)
        try:
            async with self.session() as session, session.get(self.url("/health"), timeout=limit):
                return True
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError):
            return False

    async def token_ids(self, text: str) -> list[int] | None:
        """The server's token ids of a text; None where it doesn't tell."""
        body = {"model": self.config.model_name, "prompt": text, "add_special_tokens": False}
        try:
            tokens = (await self.request("POST", "/tokenize", body))["tokens"]
        except (aiohttp.ClientResponseError, KeyError, ReplyError, TypeError):
            return None
        return list(tokens)

    async def _tokens_and_logprobs_completion_wrapper(
        self, **kwargs: Any
    ) -> tuple[list[int], list[list[int]], list[list[float]], list[str]]:
        """Prompt tokens, and per completion its tokens, logprobs and finish reason.

        `kwargs` are the fields of an `Ask`, its prompt under Atropos's name.
        """
        prompt = kwargs.pop("input_ids")
        ask = Ask(prompt=tuple(prompt), **kwargs)
        dialect = self.dialect
        async with self._reply("POST", dialect.path, self.more(dialect.body(ask))) as reply:
            samples = await offload(
                functools.partial(read_body, dialect, reply, ask),
                tokens=len(reply) // _BYTES_A_TOKEN,
            )
        tokens, logprobs, reasons = zip(*samples, strict=True) if samples else ((), (), ())
        return prompt, list(tokens), list(logprobs), list(reasons)


class TokenServer(TokenClient, APIServer):
    """A server that is asked for tokens alone."""

    async def check_server_status_task(self, chat_completion: bool = True) -> None:
        """Do nothing: the base class wants the method, and `Failover` turns the checks off."""

    async def _chat_completion_wrapper(self, **kwargs: Any) -> Any:
        raise NotImplementedError("it is asked for tokens")

    async def _completion_wrapper(self, **kwargs: Any) -> Any:
        raise NotImplementedError("it is asked for tokens")


class VllmServer(TokenServer):
    """Stock `vllm serve`, or atroposlib's own server around vLLM."""

    dialects = (VllmCompletions(), VllmGenerate())


class SglangServer(TokenServer):
    """SGLang's native API."""

    dialects = (SglangGenerate(),)


class TrlServer(TokenServer):
    """`trl vllm-serve`: stock vLLM from TRL 1.11 on, a server of its own before."""

    dialects = (VllmCompletions(), TrlGenerate())

    async def token_ids(self, text: str) -> list[int] | None:
        """Those of a prompt where no other way is; a token that begins a text may be in front."""
        if (ids := await super().token_ids(text)) is not None:
            return ids
        reply = await self.request("POST", "/generate/", {"prompts": [text], "max_tokens": 1})
        return list(reply["prompt_ids"][0])


class ChatServer(TokenClient, OpenAIServer):
    """Any chat completions endpoint; those that give token ids on request are asked for them."""

    dialects = (ChatTokens(), ChatText())
    needs_tokens = False
    openai: AsyncClient
    chat_completion = APIServer.chat_completion.retry_with(**_ONCE)
    _chat_comp = APIServer._chat_comp.retry_with(**_ONCE)
    _chat_eval = APIServer._chat_eval.retry_with(**_ONCE)

    def __init__(self, config: Any, reasoning_config: Any = None) -> None:
        super().__init__(config, reasoning_config)
        limits = Timeout(config.timeout, connect=CONNECT_SECONDS)
        self.openai = self.openai.with_options(max_retries=0, timeout=limits)

    async def _chat_completion_wrapper(self, **kwargs: Any) -> ChatCompletion:
        """The completions that came, which may be fewer than were asked for."""
        reply: ChatCompletion
        if self.config.n_kwarg_is_ignored:
            reply = await super()._chat_completion_wrapper(**kwargs)
            return reply
        reply = await self.openai.chat.completions.create(**kwargs)
        if len(reply.choices) == 1 < kwargs["n"]:
            warnings.warn("n kwarg is ignored by the API, setting to True", stacklevel=2)
            self.config.n_kwarg_is_ignored = True
        return reply

    def url(self, path: str) -> str:
        """Where OpenAI's own client looks: some endpoints have no `/v1`, or more after it."""
        if path.startswith("/v1/"):
            return str(self.openai.base_url).rstrip("/") + path.removeprefix("/v1")
        return super().url(path)

    def more(self, body: dict[str, Any]) -> dict[str, Any]:
        """With what Atropos's settings of reasoning add."""
        added = self._inject_reasoning_kwargs(dict(body))
        extra = added.pop("extra_body", {})
        return {**added, **extra}


CLIENTS: dict[str, type[TokenClient]] = {
    "openai": ChatServer,
    "sglang": SglangServer,
    "trl": TrlServer,
    "vllm": VllmServer,
}
"""By Atropos's `server_type`."""
