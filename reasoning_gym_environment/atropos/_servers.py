"""Inference clients in the shape that Atropos's server manager expects."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from atroposlib.envs.server_handling.server_baseline import APIServer
from atroposlib.envs.server_handling.server_manager import ServerManager
from multidict import CIMultiDict, CIMultiDictProxy
from openai import APIStatusError
from tenacity import RetryError
from yarl import URL

from ..inference.dialects import GenerationRequest, TextSample
from ..inference.errors import error_message
from ..inference.servers import ServerClient


class AtroposServer(APIServer):
    """Atropos's view of an inference client: weighted semaphores, timings, reasoning settings.

    Attributes:
        client: sends the requests.
    """

    def __init__(self, server_type: str, config: Any, reasoning_config: Any = None) -> None:
        super().__init__(config, reasoning_config=reasoning_config)
        self.client = ServerClient(
            config,
            server_type,
            admit=self._admit,
            adjust=self._add_reasoning if server_type == "openai" else dict,
        )

    @asynccontextmanager
    async def _admit(self, split: str) -> AsyncIterator[None]:
        """Hold one of the split's places, and record how long a request that succeeds takes."""
        trains = split == "train"
        async with self.sem if trains else self.eval_sem:
            begin = time.time()
            yield
            seconds = time.time() - begin
        (self.request_timings if trains else self.eval_request_timings).append(seconds)
        (self.attempts_list if trains else self.eval_attempts_list).append(1)

    def _add_reasoning(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a request with Atropos's settings of reasoning."""
        changed = self._inject_reasoning_kwargs(dict(body))
        added = changed.pop("extra_body", {})
        return {**changed, **added}

    async def _unsupported(self, **_: Any) -> Any:
        raise NotImplementedError("ask `inference` of the environment for completions")

    check_server_status_task = _unsupported
    _chat_completion_wrapper = _completion_wrapper = _unsupported
    _tokens_and_logprobs_completion_wrapper = _unsupported


class CustomServerClient(ServerClient):
    """Client for an environment's own `server_cls`, which is asked for chats as text."""

    negotiates = False

    def __init__(self, server: APIServer) -> None:
        super().__init__(server.config, "openai")
        server.config.health_check = False  # failed requests take the place of health checks
        self._server = server

    async def sample(self, request: GenerationRequest, split: str) -> list[TextSample]:
        try:
            reply = await self._server.chat_completion(
                messages=request.messages,
                n=request.n,
                max_tokens=request.max_tokens,
                temperature=request.temperature,
                top_p=request.top_p,
                split=split,
            )
        except RetryError as error:
            raise as_refusal(root_cause(error)) from error
        return [
            TextSample(
                choice.message.content or "",
                getattr(choice.message, "reasoning_content", None),
                choice.finish_reason,
            )
            for choice in reply.choices
        ]

    async def close(self) -> None:
        if client := getattr(self._server, "openai", None):
            await client.close()


def as_refusal(error: BaseException) -> BaseException:
    """Return the error status of OpenAI's client as our own clients raise it."""
    if not isinstance(error, APIStatusError):
        return error
    url, headers = URL(str(error.request.url)), CIMultiDict(error.response.headers.items())
    return aiohttp.ClientResponseError(
        aiohttp.RequestInfo(url, error.request.method, CIMultiDictProxy(CIMultiDict()), url),
        (),
        status=error.status_code,
        message=error_message(error.response.text),
        headers=CIMultiDictProxy(headers),
    )


def clients_of(manager: ServerManager) -> list[ServerClient]:
    """Return the clients of a manager's servers."""
    return [
        server.client if isinstance(server, AtroposServer) else CustomServerClient(server)
        for server in manager.servers
    ]


def root_cause(error: BaseException) -> BaseException:
    """Return what failed beneath nested retries of Atropos."""
    while isinstance(error, RetryError):
        inner = error.last_attempt.exception()
        if inner is None:
            break
        error = inner
    return error
