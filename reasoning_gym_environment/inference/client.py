"""From messages to completions, on all of Atropos's server types."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from atroposlib.envs.server_handling.server_manager import ServerManager

from ..records import Completion
from ..util.concurrency import gather_or_cancel, offload, run_in_thread
from ..util.outages import require_reachable
from .errors import InferenceError, heals, sentence
from .failover import Failover
from .negotiation import Needs, agree
from .prompts import (
    build_messages,
    completion_from_tokens,
    completions_from_texts,
    end_of_turn,
    join_reasoning,
    render_prompt,
    text_of_tokens,
)
from .requests import Ask, Prompt, SamplingParams
from .servers import TokenClient

KNOWN_TEXT = "Sort 3, 14 and 159: x = [3, 14, 159]\n\té 日本 🎉 <think></think>"
"""Hardly two tokenizers encode it alike: digits, white space, accents, emoji, tags."""

_KEPT_PROMPTS = 1024
_ROUNDS = 3
"""So often a server is asked for what is missing of its completions."""


class Inference:
    """Asks the inference servers for completions.

    Args:
        server: Atropos's server manager.
        server_type: of its first server, which decides for all.
        system_prompt: its text.

    Attributes:
        failover: decides which server is asked.
        persistence: by split, seconds for which requests that fail are asked again; without,
            three times.
    """

    def __init__(
        self, server: ServerManager, tokenizer: Any, *, server_type: str, system_prompt: str
    ) -> None:
        self._server = server
        self._tokenizer = tokenizer
        self._gives_tokens = server_type != "openai"  # those are asked at the start
        self._system_prompt = system_prompt
        self._known: dict[str, Any] = {
            "vocabulary": len(tokenizer),
            "stops": frozenset(tokenizer.all_special_ids),
        }
        self._turn_end = end_of_turn(tokenizer)
        self._decoding = asyncio.Lock()  # one group a turn: many at once would stall the loop
        self.failover = Failover(server.servers)
        self.persistence: dict[str, float] = {}
        self.prompt = functools.lru_cache(_KEPT_PROMPTS)(self._render)

    def _render(self, question: str) -> Prompt:
        messages = build_messages(self._system_prompt, question)
        text = render_prompt(self._tokenizer, messages)
        tokens = tuple(self._tokenizer.encode(text, add_special_tokens=False))
        return Prompt(messages=messages, text=text, tokens=tokens)

    async def has_room(self, question: str, max_length: int) -> bool:
        """Whether the prompt leaves room for a completion."""
        return await run_in_thread(lambda: self.room(question, max_length) > 0)

    def room(self, question: str, max_length: int) -> int:
        """Completion tokens that the prompt leaves of `max_length`; below 1 there is no room."""
        return max_length - len(self.prompt(question).tokens) - max(1, len(self._turn_end))

    async def sample(
        self, question: str, *, n: int, max_length: int, sampling: SamplingParams
    ) -> list[Completion]:
        """Exactly `n` completions of at most `max_length` tokens with their prompt.

        Raises:
            InferenceError: the servers failed, or there is no room.
        """
        prompt, room = self.prompt(question), self.room(question, max_length)
        if room < 1:
            raise InferenceError(f"the prompt leaves no room in {max_length} tokens")
        request = {
            "messages": prompt.messages,
            "max_tokens": room,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "split": sampling.split,
        }
        try:
            parts = await gather_or_cancel(
                self._part(prompt, {**request, "n": part}, max_length) for part in self._parts(n)
            )
        except Exception as error:
            raise InferenceError(sentence(error), heals=heals(error)) from error
        completions = [completion for part in parts for completion in part]
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

    async def require_server(
        self, seconds: float, *, max_length: int, sampling: SamplingParams | None
    ) -> None:
        """Find out what the servers give.

        Args:
            seconds: how long to wait for one that answers.
            max_length: tokens of prompt and completion.
            sampling: None where nothing will train on the completions.

        Raises:
            UnreachableError: no server answers within that time.
            ConfigurationError: a server refuses, or can't give what the run needs.
        """
        if self.urls:
            await require_reachable(
                self.urls,
                what="the inference server",
                way_out="start it, or set --openai.base_url",
                seconds=seconds,
            )
        if clients := [s for s in self._server.servers if isinstance(s, TokenClient)]:
            needs = self._needs(max_length=max_length, sampling=sampling)
            self._gives_tokens = await agree(clients, needs, seconds)

    def _needs(self, *, max_length: int, sampling: SamplingParams | None) -> Needs:
        prompt = self.prompt("What is 2 + 2?")
        ask = Ask(
            model=self.model,
            prompt=prompt.tokens,
            messages=prompt.messages,
            n=2,
            max_tokens=1,
            temperature=1.0,
            top_p=1.0,
            candidates=1,
            **self._known,
        )
        return Needs(
            ask=ask,
            text=KNOWN_TEXT,
            text_ids=tuple(self._tokenizer.encode(KNOWN_TEXT, add_special_tokens=False)),
            max_length=max_length,
            sampling=sampling,
        )

    async def close(self) -> None:
        """Close the servers' connections."""
        for server in self._server.servers:
            if client := getattr(server, "openai", None):
                await client.close()

    def _parts(self, n: int) -> list[int]:
        """Into how many completions a request of `n` is split: Atropos has a most."""
        most = self._server.max_n_completions
        return [min(most, n - begun) for begun in range(0, n, most)]

    async def _part(
        self, prompt: Prompt, request: dict[str, Any], max_length: int
    ) -> list[Completion]:
        """What some server gives, perhaps another than that of the group's other parts.

        What is missing of a reply is asked for again; what is too much is left out.
        """
        ask = self._sample_tokens if self._gives_tokens else self._sample_text
        n, completions = request["n"], list[Completion]()
        for _ in range(_ROUNDS):
            rest = {**request, "n": n - len(completions)}
            completions += await self.failover.ask(
                functools.partial(ask, prompt=prompt, request=rest, max_length=max_length),
                persistence=self.persistence.get(request["split"], 0.0),
            )
            if len(completions) >= n:
                break
        return completions[:n]

    async def _sample_text(
        self, server: Any, prompt: Prompt, request: dict[str, Any], max_length: int
    ) -> list[Completion]:
        reply = await server.chat_completion(**request)
        return await run_in_thread(
            functools.partial(self._encode, prompt, reply.choices, max_length)
        )

    def _encode(self, prompt: Prompt, choices: Sequence[Any], max_length: int) -> list[Completion]:
        said = [choice.message for choice in choices]
        return completions_from_texts(
            self._tokenizer,
            prompt.tokens,
            [join_reasoning(prompt.text, _reasoning(m), m.content or "") for m in said],
            finish_reasons=[choice.finish_reason for choice in choices],
            turn_end=self._turn_end,
            max_length=max_length,
        )

    async def _sample_tokens(
        self, server: Any, prompt: Prompt, request: dict[str, Any], max_length: int
    ) -> list[Completion]:
        _, *columns = await server.tokens_and_logprobs_completion(
            input_ids=list(prompt.tokens),
            **self._known,
            **request,
        )
        decode = functools.partial(self._decode, prompt, columns)
        async with self._decoding:
            await asyncio.sleep(0)
            return await offload(decode, tokens=sum(map(len, columns[0])))

    def _decode(self, prompt: Prompt, columns: Sequence[Sequence[Any]]) -> list[Completion]:
        return [
            completion_from_tokens(
                self._text(tokens), prompt.tokens, tokens, logprobs, finish_reason=finish_reason
            )
            for tokens, logprobs, finish_reason in zip(*columns, strict=True)
        ]

    def _text(self, tokens: Sequence[int]) -> str:
        ids: Any = np.asarray(tokens, np.intc)  # of a list transformers looks at each number
        return text_of_tokens(self._tokenizer, ids)


def _reasoning(message: Any) -> str | None:
    """The thought, where the server keeps it apart; the field has two names in the wild."""
    return getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
