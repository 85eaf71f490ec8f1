"""From messages to completions, on all of Atropos's server types."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Any

from atroposlib.envs.server_handling.server_manager import ServerManager

from ..records import Completion
from ..rollouts.prompts import (
    MASKED,
    build_messages,
    completion_from_text,
    end_of_turn,
    join_reasoning,
    render_prompt,
    text_of_tokens,
)
from ..rollouts.rollouts import InferenceError, Prompt, SamplingParams
from ..util.reachability import require_reachable
from .failover import Failover
from .failures import heals, sentence

TOKEN_SERVERS = frozenset({"vllm", "sglang", "trl"})
"""Server types that return tokens and logprobs; the others return text alone."""

_KEPT_PROMPTS = 1024


class Inference:
    """Asks the inference servers for completions.

    Args:
        server: Atropos's server manager.
        server_type: of its first server, which decides for all.
        system_prompt: its text.

    Attributes:
        failover: decides which server is asked.
    """

    def __init__(
        self, server: ServerManager, tokenizer: Any, *, server_type: str, system_prompt: str
    ) -> None:
        self._server = server
        self._tokenizer = tokenizer
        self._gives_tokens = server_type in TOKEN_SERVERS
        self._system_prompt = system_prompt
        self._turn_end = end_of_turn(tokenizer)
        self._encoding = asyncio.Lock()  # one group a turn: many at once would stall the loop
        self.failover = Failover(server)
        self.prompt = functools.lru_cache(_KEPT_PROMPTS)(self._render)

    def _render(self, question: str) -> Prompt:
        messages = build_messages(self._system_prompt, question)
        text = render_prompt(self._tokenizer, messages)
        tokens = tuple(self._tokenizer.encode(text, add_special_tokens=False))
        return Prompt(messages=messages, text=text, tokens=tokens)

    async def has_room(self, question: str, max_length: int) -> bool:
        """Whether the prompt leaves room for a completion."""
        async with self._encoding:
            await asyncio.sleep(0)
            return self.room(question, max_length) > 0

    def room(self, question: str, max_length: int) -> int:
        """Completion tokens that the prompt leaves of `max_length`; below 1 there is no room."""
        return max_length - len(self.prompt(question).tokens) - max(1, len(self._turn_end))

    async def sample(
        self, question: str, *, n: int, max_length: int, sampling: SamplingParams
    ) -> list[Completion]:
        """Exactly `n` completions of at most `max_length` tokens with their prompt.

        Raises:
            InferenceError: the servers failed, after Atropos's own retries, or there is no room.
        """
        prompt, room = self.prompt(question), self.room(question, max_length)
        if room < 1:
            raise InferenceError(f"the prompt leaves no room in {max_length} tokens")
        request = {
            "messages": prompt.messages,
            "n": n,
            "max_tokens": room,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "split": sampling.split,
        }
        ask = self._sample_tokens if self._gives_tokens else self._sample_text
        try:
            completions = await self.failover.ask(
                lambda server: ask(server, prompt, request, max_length)
            )
        except Exception as error:
            raise InferenceError(sentence(error), heals=heals(error)) from error
        if len(completions) != n:
            raise InferenceError(f"{len(completions)} completions where {n} were asked for")
        return completions

    @property
    def model(self) -> str:
        """The model's name at the first server."""
        return str(self._server.servers[0].config.model_name)

    @property
    def urls(self) -> list[str]:
        """The servers' base URLs, where they have any."""
        configs = [getattr(server, "config", None) for server in self._server.servers]
        return [url for url in (getattr(config, "base_url", None) for config in configs) if url]

    async def require_server(self, seconds: float) -> None:
        """Raises UnreachableError when no server answers within that time."""
        if self.urls:
            await require_reachable(
                self.urls,
                what="the inference server",
                way_out="start it, or set --openai.base_url",
                seconds=seconds,
            )

    async def close(self) -> None:
        """End the servers' health checks and close their connections."""
        for server in self._server.servers:
            if check := getattr(server, "check_task", None):
                check.cancel()
                await asyncio.gather(check, return_exceptions=True)
            if client := getattr(server, "openai", None):
                await client.close()

    async def _sample_text(
        self, server: ServerManager, prompt: Prompt, request: dict[str, Any], max_length: int
    ) -> list[Completion]:
        reply = await server.chat_completion(**request)
        async with self._encoding:
            await asyncio.sleep(0)
            return self._encode(prompt, reply.choices, max_length)

    def _encode(self, prompt: Prompt, choices: Sequence[Any], max_length: int) -> list[Completion]:
        return [
            completion_from_text(
                self._tokenizer,
                prompt.tokens,
                join_reasoning(
                    prompt.text, _reasoning(choice.message), choice.message.content or ""
                ),
                finish_reason=choice.finish_reason,
                turn_end=self._turn_end,
                max_length=max_length,
            )
            for choice in choices
        ]

    async def _sample_tokens(
        self, server: ServerManager, prompt: Prompt, request: dict[str, Any], max_length: int
    ) -> list[Completion]:
        async with server.managed_server(tokenizer=self._tokenizer) as managed:
            reply = await managed.chat_completion(**request)
            nodes = managed.get_state()["nodes"]
        return [
            Completion(
                text=text_of_tokens(
                    self._tokenizer,
                    [mask for mask in node.masked_tokens if mask != MASKED],
                    choice.message.content or "",
                ),
                tokens=tuple(node.tokens[:max_length]),
                masks=tuple(node.masked_tokens[:max_length]),
                logprobs=tuple(node.logprobs[:max_length]),
                finish_reason="length" if len(node.tokens) > max_length else choice.finish_reason,
            )
            for choice, node in zip(reply.choices, nodes, strict=True)
        ]


def _reasoning(message: Any) -> str | None:
    """The thought, where the server keeps it apart; the field has two names in the wild."""
    return getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
