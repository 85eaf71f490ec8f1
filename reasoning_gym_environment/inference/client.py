"""Client for groups of completions: prompt, admission, and tokens with masks."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import ConfigurationError
from ..records import Completion
from ..scoring.channels import Channel, join_reasoning
from ..util.concurrency import gather_or_cancel, run_in_thread, run_in_thread_if_large
from ..util.outages import require_reachable
from ..util.retries import RetryPolicy
from ._negotiation import PROBE_TEXT, Requirements, negotiate
from .dialects import (
    ChatText,
    GenerationRequest,
    SamplingParams,
    TextSample,
    TokenSample,
)
from .errors import NO_ROOM, SEPARATE_THOUGHT, InferenceError, describe, is_transient
from .failover import THREE_ROUNDS, Failover, T
from .finish_reasons import INVALID_TOKEN
from .prompts import (
    PROBE_QUESTION,
    Prompt,
    Tokenizer,
    build_messages,
    completion_from_tokens,
    completions_from_texts,
    completions_without_tokens,
    end_of_turn,
    render_prompt,
    vocabulary_size,
)
from .servers import ServerClient, api_key
from .text_check import TextCheck
from .thoughts import ThoughtFormat
from .usage import (
    BYTES_PER_TOKEN,
    TOKENS_PER_MESSAGE,
    RequestPlan,
    RequestUsage,
)

logger = logging.getLogger(__name__)

MAX_EMPTY_REPLIES = 3
"""Replies without a completion after which a part of a group is given up."""


class InferenceClient:
    """Client for completions of one or several inference servers.

    Args:
        tokenizer: None requests text from chat endpoints and leaves counting tokens to them.
        own_markers: of thoughts, where the table of channels lacks them.
        template_kwargs: variables of the chat template, which chat endpoints get as well.
        stop_strings: which end a completion.
        max_n: completions per request; larger groups are several requests.

    Attributes:
        failover: chooses the server of each request.
        vocabulary: the number up to which token ids go; 0 without a tokenizer.
    """

    def __init__(
        self,
        servers: Sequence[ServerClient],
        tokenizer: Tokenizer | None,
        *,
        system_prompt: str,
        own_markers: Channel | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        stop_strings: Sequence[str] = (),
        max_n: int = 8,
    ) -> None:
        self._servers = servers
        self._tokenizer = tokenizer
        self.vocabulary = vocabulary_size(tokenizer) if tokenizer else 0
        self._system_prompt = system_prompt
        self._max_n = max_n
        self._refuses_thoughts = False
        self._turn_end = end_of_turn(tokenizer) if tokenizer else ()
        self._template_kwargs = dict(template_kwargs or {})
        self._stop_strings = list(stop_strings)
        self._thoughts = ThoughtFormat(tokenizer, own_markers)
        self._texts = TextCheck()
        self._decoding = asyncio.Lock()  # one group per iteration of the event loop
        self.failover = Failover(servers)
        self._rounds: dict[str, RetryPolicy] = {}  # by split
        self._prompts: dict[str, Prompt] = {}
        self._prompt_bytes = 0
        self._prompts_change = threading.Lock()

    @property
    def model(self) -> str:
        """The model's name at the first server."""
        return str(self._servers[0].config.model_name)

    @property
    def server_type(self) -> str:
        """The protocols of the servers."""
        return ", ".join(
            dict.fromkeys(str(server.config.server_type) for server in self._servers)
        )

    @property
    def keys(self) -> list[str]:
        """The API keys of the servers that have one, which must not be printed."""
        return [key for server in self._servers if (key := api_key(server.config))]

    @property
    def urls(self) -> list[str]:
        """The base URLs of the servers that have one."""
        return [url for server in self._servers if (url := server.config.base_url)]

    @property
    def refused(self) -> set[str]:
        """The parameters that a server refuses, as far as negotiation found out."""
        forms = (server.dialect for server in self._servers)
        return {
            name
            for form in forms
            if isinstance(form, ChatText)
            for name in form.left_out
        }

    @property
    def part_size(self) -> int:
        """How many completions a request has: a server may take fewer than a group has."""
        return int(min(self._max_n, *(server.max_n for server in self._servers)))

    @property
    def waiting(self) -> str:
        """Why no server is asked at the moment; usually empty."""
        return self.failover.waiting

    def give_up_after(self, seconds: float) -> None:
        """Retry failing requests until none has succeeded for that long; then fail all."""
        rounds = replace(THREE_ROUNDS, seconds=seconds)
        self._rounds = {"train": rounds, "eval": rounds}

    def retry_evaluation_for(self, seconds: float) -> None:
        """Retry failing requests of evaluations for that long, and others as before."""
        self._rounds["eval"] = replace(THREE_ROUNDS, seconds=seconds)

    async def close(self) -> None:
        """Close the connections to the servers."""
        await gather_or_cancel(server.close() for server in self._servers)

    def prompt(self, question: str) -> Prompt:
        """Return a question's prompt. The last ones are kept, as many as fit into 16 MiB."""
        prompt = self._prompts.get(question)
        if prompt is not None:
            return prompt
        messages = build_messages(self._system_prompt, question)
        text = ""
        tokens = array("i")
        if self._tokenizer is not None:
            text = render_prompt(self._tokenizer, messages)
            tokens = array("i", self._tokenizer.encode(text, add_special_tokens=False))
        prompt = Prompt(messages=messages, text=text, tokens=tokens)
        with self._prompts_change:  # threads ask for prompts, too
            if self._prompts.setdefault(question, prompt) is prompt:
                self._prompt_bytes += prompt.bytes
            while self._prompt_bytes > 2**24:
                oldest = next(iter(self._prompts))
                self._prompt_bytes -= self._prompts.pop(oldest).bytes
        return prompt

    async def has_room(self, question: str, length_limit: int) -> bool:
        """Return whether the prompt leaves room for a completion."""
        return await run_in_thread(lambda: self._room(question, length_limit) > 0)

    def _room(self, question: str, length_limit: int) -> int:
        """Return the number of tokens that the prompt leaves for a completion."""
        return (
            length_limit
            - len(self.prompt(question).tokens)
            - max(1, len(self._turn_end))
        )

    async def require_servers(
        self,
        seconds: float,
        *,
        length_limit: int,
        sampling: SamplingParams | None,
        evaluation: SamplingParams | None = None,
        serves: bool = False,
    ) -> None:
        """Wait for the servers, and negotiate what they return: see `Requirements`.

        Raises UnreachableError if none answers in `seconds`, and ConfigurationError if one refuses
        or doesn't meet the requirements.
        """
        if self.urls:
            await require_reachable(
                self.urls,
                what="the inference server",
                hint="start it, or set --openai.base_url",
                seconds=seconds,
            )
        self._refuses_thoughts = serves
        plain = SamplingParams(temperature=1.0, top_p=1.0, split="train")
        request = self._request(
            self.prompt(PROBE_QUESTION),
            n=2,
            max_tokens=1,
            sampling=plain,
        )
        requirements = Requirements(
            request=replace(request, candidates=1),
            text_ids=tuple(self._tokenizer.encode(PROBE_TEXT, add_special_tokens=False))
            if self._tokenizer
            else None,
            length_limit=length_limit,
            sampling=sampling,
            evaluation=evaluation,
            serves=serves,
        )
        await negotiate(self._servers, requirements, seconds)
        self._warn_of_hidden_markers(serves=serves)

    def _warn_of_hidden_markers(self, *, serves: bool) -> None:
        """Say that a server's text lacks the markers of thoughts; raise if `serves` trains on it.

        A server that returns only text leaves special tokens out.
        """
        hidden = self._thoughts.hidden_markers
        only_text = [one for one in self._servers if isinstance(one.dialect, ChatText)]
        if not hidden or not only_text:
            return
        reason = (
            f"the inference server at {only_text[0].config.base_url} returns only text, and leaves "
            f"{' and '.join(hidden[:2])} out of it, so that answers in a thought count: use a "
            "server that returns token ids"
        )
        if serves:
            raise ConfigurationError(reason)
        logger.warning("%s, or start it with a reasoning parser", reason)

    def _request(
        self,
        prompt: Prompt,
        *,
        n: int,
        max_tokens: int,
        sampling: SamplingParams,
    ) -> GenerationRequest:
        return GenerationRequest(
            model=self.model,
            prompt=prompt.tokens,
            messages=prompt.messages,
            n=n,
            max_tokens=max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            vocabulary=self.vocabulary,
            more={"stop": self._stop_strings} if self._stop_strings else {},
            template_kwargs=self._template_kwargs,
        )

    async def sample(
        self,
        question: str,
        *,
        n: int,
        length_limit: int,
        sampling: SamplingParams,
        record: Callable[[RequestUsage], None] | None = None,
    ) -> list[Completion]:
        """Return `n` completions of at most `length_limit` tokens, or raise InferenceError.

        Args:
            record: gets the tokens of each request that is answered, those that are repeated too.
        """
        prompt = self.prompt(question)
        room = self._room(question, length_limit)
        if room < 1:
            raise InferenceError(f"{NO_ROOM} in {length_limit} tokens")
        request = self._request(prompt, n=n, max_tokens=room, sampling=sampling)

        async def ask(server: ServerClient, n: int) -> list[Completion]:
            of_server = replace(request, n=n, model=server.config.model_name)
            if record is None:
                samples = await server.sample(of_server)
                return await self._completions(server, prompt, samples, length_limit)
            told: list[RequestUsage] = []
            try:
                samples = await server.sample(of_server, told.append)
            finally:  # a reply that is then refused has its cost, too
                for usage in told:
                    record(usage)
            completions = await self._completions(server, prompt, samples, length_limit)
            if not told:
                record(self._counted(prompt, completions))
            return completions

        return await self._gather(ask, n, sampling.split)

    def _counted(
        self, prompt: Prompt, completions: Sequence[Completion]
    ) -> RequestUsage:
        """Return the tokens of a request as the tokenizer counts them, if there is one."""
        if self._tokenizer is None:
            return RequestUsage()
        return RequestUsage(
            prompt_tokens=len(prompt.tokens),
            completion_tokens=sum(c.completion_tokens for c in completions),
            counted_by="tokenizer",
        )

    def plan(self, question: str, *, n: int, length_limit: int) -> RequestPlan:
        """Return what `sample` will request; nothing for a prompt without room."""
        prompt = self.prompt(question)
        room = max(0, self._room(question, length_limit))
        requests = math.ceil(n / self.part_size) if room else 0
        tokens = len(prompt.tokens)
        if self._tokenizer is None:
            size = sum(len(message["content"].encode()) for message in prompt.messages)
            tokens = round(size / BYTES_PER_TOKEN)
            tokens += TOKENS_PER_MESSAGE * len(prompt.messages)
        return RequestPlan(
            requests=requests,
            prompt_tokens=requests * tokens,
            max_completion_tokens=n * room,
            is_estimate=self._tokenizer is None,
        )

    def take_probe_usage(self) -> list[RequestUsage]:
        """Return the tokens of the probes since the last call, as far as servers tell."""
        usages: list[RequestUsage] = []
        for server in self._servers:
            usages += server.probe_usage
            server.probe_usage.clear()
        return usages

    async def sample_tokens(
        self, request: GenerationRequest, split: str
    ) -> list[TokenSample]:
        """Return the completions of a prompt's token ids, or raise InferenceError."""
        chats = [server.config.base_url for server in self._servers if server.is_chat]
        if chats:
            raise InferenceError(
                f"the inference server at {chats[0]} can't complete token ids, since its "
                "server_type is openai: set --openai.server_type to vllm or sglang, or request "
                "chat completions",
                is_transient=False,
            )

        async def ask(server: ServerClient, n: int) -> list[TokenSample]:
            of_server = replace(request, n=n, model=server.config.model_name)
            return [
                s for s in await server.sample(of_server) if isinstance(s, TokenSample)
            ]

        return await self._gather(ask, request.n, split)

    async def reply(
        self, path: str, body: Mapping[str, Any], split: str
    ) -> dict[str, Any]:
        """Return the reply of an OpenAI endpoint to a request's JSON, or raise InferenceError."""

        async def ask(
            server: ServerClient, n: int
        ) -> list[tuple[dict[str, Any], dict[str, Any]]]:
            of_server = {**body, "n": n, "model": server.config.model_name}
            reply = await server.reply(path, of_server)
            return [(reply, choice) for choice in reply["choices"]]

        choices = await self._gather(ask, body.get("n") or 1, split)
        replies = list({id(reply): reply for reply, _ in choices}.values())
        merged = dict(replies[0])
        merged["choices"] = []
        # Each reply has numbered its own from 0.
        for index, (_, choice) in enumerate(choices):
            merged["choices"].append({**choice, "index": index})
        usages = [
            reply["usage"] for reply in replies if isinstance(reply.get("usage"), dict)
        ]
        if usages:
            merged["usage"] = _sum_of_usages(usages)
        return merged

    async def _gather(
        self, ask: Callable[..., Coroutine[None, None, list[T]]], n: int, split: str
    ) -> list[T]:
        """Return the `n` results of concurrent requests; request missing ones again."""
        rounds = self._rounds.get(split, THREE_ROUNDS)

        async def part(size: int) -> list[T]:
            results = list[T]()
            empty_replies = 0
            while len(results) < size and empty_replies < MAX_EMPTY_REPLIES:
                rest = functools.partial(ask, n=size - len(results))
                reply = await self.failover.send(rest, split, rounds)
                results += reply
                if not reply:
                    empty_replies += 1
            return results[:size]

        part_size = self.part_size
        try:
            parts = await gather_or_cancel(
                part(min(part_size, n - begun)) for begun in range(0, n, part_size)
            )
        except Exception as error:
            raise InferenceError(
                describe(error), is_transient=is_transient(error)
            ) from error
        results = [result for part in parts for result in part]
        if len(results) != n:
            raise InferenceError(f"{len(results)} of {n} completions were returned")
        return results

    async def _completions(
        self,
        server: ServerClient,
        prompt: Prompt,
        samples: Sequence[TokenSample] | Sequence[TextSample],
        length_limit: int,
    ) -> list[Completion]:
        texts = [sample for sample in samples if isinstance(sample, TextSample)]
        if self._refuses_thoughts and any(sample.reasoning for sample in texts):
            at = f"the inference server at {server.config.base_url}"
            raise InferenceError(f"{at} {SEPARATE_THOUGHT}", is_transient=False)
        tokenizer = self._tokenizer
        thoughts = self._thoughts
        graded = functools.partial(thoughts.text, prompt=prompt.text)
        if tokenizer is None:
            return await run_in_thread(
                lambda: completions_without_tokens(prompt, texts, graded=graded)
            )
        if texts:
            encode = functools.partial(
                completions_from_texts,
                tokenizer,
                prompt.tokens,
                [join_reasoning(prompt.text, s.reasoning, s.content) for s in texts],
                endings=[sample.ending for sample in texts],
                turn_end=self._turn_end,
                length_limit=length_limit,
                graded=graded,
            )
            return await run_in_thread(encode)
        tokens = [sample for sample in samples if isinstance(sample, TokenSample)]

        def decode(sample: TokenSample) -> Completion:
            # transformers looks at each list item.
            ids: Any = np.asarray(sample.tokens, np.intc)
            url = str(server.config.base_url)
            is_whole = sample.ending.reason != INVALID_TOKEN
            if sample.text is not None and is_whole and self._texts.is_due(url):
                self._texts.require_same(url, sample.text, thoughts.plain(ids))
            return completion_from_tokens(
                graded(thoughts.decode(ids)),
                prompt.tokens,
                sample.tokens,
                sample.logprobs,
                ending=sample.ending,
            )

        async with self._decoding:
            await asyncio.sleep(0)
            size = sum(len(sample.tokens) for sample in tokens)
            return await run_in_thread_if_large(
                lambda: [decode(sample) for sample in tokens], tokens=size
            )


def _sum_of_usages(usages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the first reply's usage with the sums of all counts in place of its own."""
    total: dict[str, Any] = dict(usages[0])
    counts: Counter[str] = Counter()
    for usage in usages:
        for name, count in usage.items():
            if isinstance(count, int):  # there may be details, or null
                counts[name] += count
    return total | +counts
