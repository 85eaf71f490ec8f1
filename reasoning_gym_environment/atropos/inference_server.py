"""An inference server as Atropos's programs see it, on top of this package's client."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from atroposlib.envs.server_handling.server_baseline import APIServer, ChatCompletion
from atroposlib.envs.server_handling.server_baseline import (
    Completion as CompletionReply,
)

from ..errors import ConfigurationError
from ..inference.client import InferenceClient
from ..inference.dialects import GenerationRequest
from ..inference.errors import InferenceError
from ..inference.reply_memory import ReplyMemory
from ..inference.servers import ServerClient
from ..settings import ServerSettings
from ..util.command_line import SERVER, build


class ClientBackedServer(APIServer):
    """Atropos's view of an inference client: weighted semaphores, timings, reasoning settings.

    A subclass of the environment gets completions as from Atropos's own servers, through the
    environment's client: with its retries, failover and limits. They raise InferenceError.

    Args:
        server_type: the type of the servers that Atropos makes of one configuration, in which it
            drops the type.
        memory: holds the replies of all servers; by default, of this one.
    """

    def __init__(
        self,
        config: Any,
        reasoning_config: Any = None,
        *,
        server_type: str = "",
        memory: ReplyMemory | None = None,
    ) -> None:
        config.server_type = server_type or config.server_type
        settings = {
            name: value for name, value in config if name in ServerSettings.model_fields
        }
        build(ServerSettings, settings, prefix=f"{SERVER}.")
        super().__init__(config, reasoning_config=reasoning_config)
        self._inference: InferenceClient | None = None
        self._tokenizer: Any = None
        timings = (
            "request_timings",
            "attempts_list",
            "eval_request_timings",
            "eval_attempts_list",
        )
        for name in timings:  # Atropos's own lists grow without end
            setattr(self, name, deque(maxlen=max(1, config.rolling_buffer_length)))
        self.client = ServerClient(
            config,
            admit=self._admit,
            adjust=self._add_reasoning if config.server_type == "openai" else dict,
            memory=memory,
        )

    def use(
        self, inference: InferenceClient, tokenizer: Any, reasoning_config: Any
    ) -> None:
        """Send requests through the environment's client, with its settings of reasoning."""
        self._inference = inference
        self._tokenizer = tokenizer
        self.reasoning_config = reasoning_config

    @property
    def inference(self) -> InferenceClient:
        """The environment's client; raises ConfigurationError before `setup`."""
        if self._inference is None:
            raise ConfigurationError(
                "the environment is not set up: await its `setup` before you request completions"
            )
        return self._inference

    @asynccontextmanager
    async def _admit(self, split: str) -> AsyncIterator[None]:
        """Hold one of the split's places, and record how long a request that succeeds takes."""
        trains = split == "train"
        async with self.sem if trains else self.eval_sem:
            begin = time.monotonic()
            yield
            seconds = time.monotonic() - begin
        (self.request_timings if trains else self.eval_request_timings).append(seconds)
        (self.attempts_list if trains else self.eval_attempts_list).append(1)

    def _add_reasoning(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a request with Atropos's settings of reasoning."""
        changed = self._inject_reasoning_kwargs(dict(body))
        added = changed.pop("extra_body", {})
        return {**changed, **added}

    async def chat_completion(self, **kwargs: Any) -> ChatCompletion:
        """Return chat completions with the settings of reasoning, or `skip_reasoning`."""
        with_reasoning = self._inject_reasoning_kwargs(kwargs)
        reply = await self._reply("/v1/chat/completions", with_reasoning)
        return ChatCompletion.construct(**reply)

    async def completion(self, **kwargs: Any) -> CompletionReply:
        """Return completions of a prompt."""
        reply = await self._reply("/v1/completions", kwargs)
        return CompletionReply.construct(**reply)

    async def _reply(self, path: str, kwargs: dict[str, Any]) -> dict[str, Any]:
        split = kwargs.pop("split", "train")
        body = dict(kwargs)
        # The openai package's client reads these; no server does.
        for name in ("timeout", "extra_headers", "extra_query"):
            body.pop(name, None)
        body |= body.pop("extra_body", None) or {}
        return await self.inference.reply(path, body, split)

    async def tokens_and_logprobs_completion(
        self, **kwargs: Any
    ) -> tuple[list[int], list[list[int]], list[list[float]], list[str]]:
        """Return a prompt's tokens, and of each completion tokens, logprobs and finish reason.

        A managed server calls this. Without a limit a completion has 16 tokens, as in vLLM.
        """
        if self._tokenizer is None:
            raise InferenceError(
                "token ids need the model's tokenizer: set --env.tokenizer_name",
                is_transient=False,
            )
        prompt = kwargs.pop("prompt", "")
        ids = kwargs.pop("input_ids", None)
        ids = self._tokenizer.encode(prompt) if ids is None else list(ids)
        if (
            ids[:2] == [self._tokenizer.bos_token_id] * 2
        ):  # the template has one already
            del ids[0]
        names = ("max_tokens", "max_completion_tokens", "max_new_tokens")
        limits = [kwargs.pop(name, None) for name in names]
        split = kwargs.pop("split", "train")
        request = GenerationRequest(
            model=kwargs.pop("model", self.config.model_name),
            prompt=tuple(ids),
            messages=(),
            n=kwargs.pop("n", None) or 1,
            max_tokens=next(filter(None, limits), 16),
            temperature=kwargs.pop("temperature", 1.0),
            top_p=kwargs.pop("top_p", 1.0),
            vocabulary=self.inference.vocabulary,
            more=kwargs,
        )
        samples = await self.inference.sample_tokens(request, split)
        return (
            ids,
            [sample.tokens.tolist() for sample in samples],
            [sample.logprobs.tolist() for sample in samples],
            [sample.ending.reason for sample in samples],
        )

    async def check_server_status_task(self, chat_completion: bool = True) -> None:
        """Check once whether the server answers."""
        self.server_healthy = await self.client.is_alive()

    _chat_completion_wrapper = chat_completion
    _completion_wrapper = completion
    _tokens_and_logprobs_completion_wrapper = tokens_and_logprobs_completion
