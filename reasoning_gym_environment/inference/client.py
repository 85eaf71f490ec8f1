"""Client for groups of completions: prompt, admission, failover, and tokens with masks.

A request that fails goes to the next server. One that all refuse because of their rate limits
waits for its turn. A server at work on long completions sends nothing either, so after seconds
without a reply it is asked for a sign of life.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import threading
import time
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ..records import Completion
from ..scoring.extraction import opened_thought
from ..util.concurrency import gather_or_cancel, offload, run_in_thread
from ..util.outages import Outage, UnreachableError, backoff, require_reachable
from ._negotiation import PROBE_TEXT, Requirements, negotiate
from .dialects import ChatText, GenerationRequest, SamplingParams, TextSample, TokenSample
from .errors import NO_ROOM, SEPARATE_THOUGHT, HangingError, InferenceError, describe, is_transient
from .prompts import (
    PROBE_QUESTION,
    Prompt,
    Tokenizer,
    build_messages,
    completion_from_tokens,
    completions_from_texts,
    completions_without_tokens,
    end_of_turn,
    join_reasoning,
    render_prompt,
    text_of_tokens,
)
from .servers import ServerClient, api_key, is_rate_limited

logger = logging.getLogger(__name__)

T = TypeVar("T")


class HangDetector:
    """Awaits the replies of one server and abandons requests that will hardly get one.

    A server that shows no sign of life is silent. A server may also forget a request while it is
    alive. So a request is abandoned after ten times the seconds of the slowest of the last 256
    replies: at least after 60 s, or after 10 s while no request gets a reply. Until the first
    reply, the server's own `timeout` applies, which always is the most.

    Attributes:
        compares: whether requests are abandoned before `timeout`, by the time that others took.
        check_seconds: interval between two checks of a waiting request.
        silence_timeout: seconds without a sign of life after which requests are abandoned.
    """

    check_seconds = 1.0
    quiet_seconds = 4.0
    """Seconds without a reply after which a server is asked for a sign of life, for up to 4 s."""

    def __init__(self, server: ServerClient, clock: Callable[[], float] = time.monotonic) -> None:
        self.silence_timeout = 60.0
        self.compares = True
        self._server = server
        self._clock = clock
        self._started: dict[object, float] = {}
        self._last_sign = self._last_check = self._last_reply = -math.inf
        self._recent: deque[float] = deque(maxlen=256)
        name = f"The inference server at {server.config.base_url}"
        self._outage = Outage(clock, server=name, unit="requests given up")
        self._wait = Outage(clock)

    async def reply(self, request: asyncio.Future[T], check: Callable[[], None]) -> T:
        """Await the reply to a request; raise HangingError if it is abandoned.

        `check` is called while waiting; what it raises ends the wait.
        """
        self._started[request] = self._clock()
        try:
            while not (await asyncio.wait({request}, timeout=self.check_seconds))[0]:
                await self._check_alive()
                if request.done():
                    break
                check()
                self._log_wait()
                self._raise_if_hanging(self._clock() - self._started[request])
            answer = request.result()
        finally:
            started = self._started.pop(request)
            request.cancel()
        self._last_sign = self._last_reply = self._clock()
        self._recent.append(self._last_reply - started)
        self._outage.end()
        self._wait.end()
        return answer

    @property
    def is_silent(self) -> bool:
        """Whether the server has shown no sign of life for seconds."""
        return self._since(self._last_sign) >= self.quiet_seconds

    def _since(self, event: float) -> float:
        """Return the seconds since an event, or since the oldest waiting request if it is later."""
        return self._clock() - max(event, min(self._started.values()))

    def _log_wait(self) -> None:
        """Log once a minute that a live server lets all requests wait longer than usual."""
        seconds = self._since(self._last_reply)
        if not self._recent or seconds < max(8.0, 2 * max(self._recent)) or self.is_silent:
            return
        self._wait.record_failure(already=seconds)
        if self._wait.should_log:
            logger.warning(
                "No reply from %s for %.0f s: %d requests wait; the longest of the last replies "
                "took %.1f s",
                self._server.config.base_url,
                seconds,
                len(self._started),
                max(self._recent),
            )

    async def _check_alive(self) -> None:
        """Ask a silent server for a sign of life; log if there is none."""
        if not self.is_silent or self._clock() - self._last_check < self.quiet_seconds:
            return
        self._last_check = self._clock()
        if await self._server.is_alive():
            self._last_sign = self._clock()
            self._outage.end()
        else:
            silence = self._since(self._last_sign)
            why = f"{len(self._started)} requests in flight, no data for {silence:.0f} s"
            self._outage.record_failure(why, lost=0, already=silence)

    def _raise_if_hanging(self, age: float) -> None:
        at = self._server.config.base_url
        silence = self.silence_timeout
        if min(age, self._since(self._last_sign)) >= silence:
            self._outage.lost += 1
            raise HangingError(f"the inference server at {at} was silent for {silence:g} s")
        limit = self._server.config.timeout
        if self.compares and self._recent:
            usual = 10 * max(self._recent)
            stalled = self._since(self._last_reply) >= max(usual, 10.0)
            limit = min(limit, max(usual, 10.0 if stalled else 60.0))
        if age >= limit:
            self._outage.lost += 1
            longest = max(self._recent, default=0.0)
            raise HangingError(
                f"no reply from {at} after {age:.0f} s; the longest before took {longest:.1f} s"
            )


class Failover:
    """Sends requests to the least busy server, then to the next if it fails.

    A server that failed comes last for a while; then a single request tries it again.

    Attributes:
        outage_timeout: seconds of nothing but failures after which requests to a silent server
            fail as well, and retries end.
        detectors: one per server.
    """

    def __init__(
        self, servers: Sequence[ServerClient], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.outage_timeout = math.inf
        self.detectors = [HangDetector(server, clock) for server in servers]
        self._servers = servers
        self._clock = clock
        self._in_flight: Counter[int] = Counter()
        self._failed_at: dict[int, float] = {}
        self._failures = defaultdict[int, Outage](lambda: Outage(clock))
        self._outage = Outage(clock)
        self._first_failure = ""

    async def send(
        self,
        request: Callable[[ServerClient], Coroutine[None, None, T]],
        split: str = "train",
        *,
        retry_seconds: float = 0.0,
    ) -> T:
        """Return the result of the first server that does not fail.

        If all fail with transient errors, they are tried three times with growing pauses. Waiting
        for a rate limit is not a try.

        Args:
            retry_seconds: how long to try more often than that, counted from this request's start
                or from the first of nothing but failures.

        Raises:
            Exception: what the last server raised; a transient error takes precedence.
        """
        started = self._clock()
        attempts = 0
        pauses = backoff()
        while True:
            try:
                return await self._try_all(request, split)
            except Exception as error:
                if is_rate_limited(error):
                    continue  # the next attempt waits for its turn
                attempts += 1
                seconds = max(self._clock() - started, self._outage.seconds)
                enough = attempts >= 3 or isinstance(error, HangingError)
                is_last = enough and seconds >= min(retry_seconds, self.outage_timeout)
                if is_last or isinstance(error, UnreachableError) or not is_transient(error):
                    raise
            await asyncio.sleep(next(pauses))

    async def _try_all(
        self, request: Callable[[ServerClient], Coroutine[None, None, T]], split: str
    ) -> T:
        failures: list[Exception] = []
        for number in self._order():
            try:
                answer = await self._try_one(number, request, split)
            except Exception as error:  # noqa: BLE001 - raised below if no server answers
                failures.append(error)
                if is_rate_limited(error):
                    continue
                self._failed_at[number] = self._clock()
                self._failures[number].record_failure()
                if self._failures[number].should_log:  # once a minute for each
                    others = ", trying others" if len(self._servers) > 1 else ""
                    url = self._servers[number].config.base_url
                    why = describe(error)
                    logger.warning("The inference server at %s fails%s: %s", url, others, why)
            else:
                self._failed_at.pop(number, None)
                self._outage.end()
                return answer
        limited = next(filter(is_rate_limited, failures), None)
        if limited:
            raise limited
        worst = next(filter(is_transient, reversed(failures)), failures[-1])
        if not self._outage:
            self._first_failure = describe(worst)
        self._outage.record_failure()
        raise worst

    def _order(self) -> list[int]:
        """Return all servers' numbers, the one to try first in front."""
        now = self._clock()
        cooling = {n for n, at in self._failed_at.items() if now - at < 30.0}
        pauses = [server.rate_limit.pause for server in self._servers]
        order = sorted(
            range(len(self._servers)), key=lambda n: (n in cooling, pauses[n], self._in_flight[n])
        )
        if order[0] in self._failed_at:
            self._failed_at[order[0]] = now  # others wait for this request's result
        return order

    async def _try_one(
        self, number: int, request: Callable[[ServerClient], Coroutine[None, None, T]], split: str
    ) -> T:
        server = self._servers[number]
        detector = self.detectors[number]

        def check_outage() -> None:
            """Raise UnreachableError if all have failed for too long and the server is silent."""
            if detector.is_silent and self._outage.seconds > self.outage_timeout:
                raise UnreachableError(
                    f"no server has answered for {self.outage_timeout:g} s: {self._first_failure}"
                )

        self._in_flight[number] += 1
        try:
            # before the detector's clock starts: waiting for either is not the server's time
            async with server.admit(split), server.rate_limit.turn():
                return await detector.reply(asyncio.ensure_future(request(server)), check_outage)
        finally:
            self._in_flight[number] -= 1

    @property
    def waiting(self) -> str:
        """What requests wait for; empty unless all servers pause for their rate limits."""
        pauses = [str(server.rate_limit) for server in self._servers]
        return "; ".join(pauses) if all(pauses) else ""


class InferenceClient:
    """Client for completions of one or several inference servers.

    Args:
        tokenizer: None requests text from chat endpoints and leaves counting tokens to them.
        max_n: completions per request; larger groups are several requests.

    Attributes:
        failover: chooses the server of each request.
        retry_seconds: by split, how long failing requests are retried; at least three times.
    """

    def __init__(
        self,
        servers: Sequence[ServerClient],
        tokenizer: Tokenizer | None,
        *,
        system_prompt: str,
        max_n: int = 8,
    ) -> None:
        self._servers = servers
        self._tokenizer = tokenizer
        self._system_prompt = system_prompt
        self._max_n = max_n
        self._refuses_thoughts = False
        self._turn_end = end_of_turn(tokenizer) if tokenizer else ()
        self._decoding = asyncio.Lock()  # one group per iteration of the event loop
        self.failover = Failover(servers)
        self.retry_seconds: dict[str, float] = {}
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
        return ", ".join(dict.fromkeys(str(server.config.server_type) for server in self._servers))

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
        return {name for form in forms if isinstance(form, ChatText) for name in form.left_out}

    def give_up_after(self, seconds: float) -> None:
        """Retry failing requests until none has succeeded for that long; then fail all.

        No trainer waits, so a live server may take its whole `timeout` for a request: the first
        replies are the shortest, and tell little of the others.
        """
        for detector in self.failover.detectors:
            detector.compares = False
        self.failover.outage_timeout = seconds
        self.retry_seconds = {"train": seconds, "eval": seconds}

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
        return length_limit - len(self.prompt(question).tokens) - max(1, len(self._turn_end))

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
            vocabulary=len(self._tokenizer) if self._tokenizer else 0,
        )

    async def sample(
        self,
        question: str,
        *,
        n: int,
        length_limit: int,
        sampling: SamplingParams,
    ) -> list[Completion]:
        """Return `n` completions of at most `length_limit` tokens, or raise InferenceError."""
        prompt = self.prompt(question)
        room = self._room(question, length_limit)
        if room < 1:
            raise InferenceError(f"{NO_ROOM} in {length_limit} tokens")
        request = self._request(prompt, n=n, max_tokens=room, sampling=sampling)

        async def ask(server: ServerClient, n: int) -> list[Completion]:
            asked = replace(request, n=n, model=server.config.model_name)
            samples = await server.sample(asked)
            return await self._completions(server, prompt, samples, length_limit)

        return await self._gather(ask, n, sampling.split)

    async def sample_tokens(self, request: GenerationRequest, split: str) -> list[TokenSample]:
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
            asked = replace(request, n=n, model=server.config.model_name)
            return [s for s in await server.sample(asked) if isinstance(s, TokenSample)]

        return await self._gather(ask, request.n, split)

    async def reply(self, path: str, body: Mapping[str, Any], split: str) -> dict[str, Any]:
        """Return the reply of an OpenAI endpoint to a request's JSON, or raise InferenceError."""
        replies: list[dict[str, Any]] = []

        async def ask(server: ServerClient, n: int) -> list[dict[str, Any]]:
            asked = {**body, "n": n, "model": server.config.model_name}
            replies.append(await server.reply(path, asked))
            return list(replies[-1]["choices"])

        choices = await self._gather(ask, body.get("n") or 1, split)
        numbered = [{**choice, "index": index} for index, choice in enumerate(choices)]
        usages = [usage for r in replies if isinstance(usage := r.get("usage"), dict)]
        counts = [Counter({k: n for k, n in u.items() if isinstance(n, int)}) for u in usages]
        total = {"usage": {**usages[0], **sum(counts, Counter())}} if usages else {}
        return {**replies[0], "choices": numbered, **total}

    async def _gather(
        self, ask: Callable[..., Coroutine[None, None, list[T]]], n: int, split: str
    ) -> list[T]:
        """Return the `n` results of concurrent requests; request missing ones again."""

        seconds = self.retry_seconds.get(split, 0.0)

        async def part(size: int) -> list[T]:
            found = list[T]()
            empty = 0
            while len(found) < size and empty < 3:
                rest = functools.partial(ask, n=size - len(found))
                more = await self.failover.send(rest, split, retry_seconds=seconds)
                found += more
                empty += not more
            return found[:size]

        most = int(min(self._max_n, *(server.max_n for server in self._servers)))
        try:
            parts = await gather_or_cancel(
                part(min(most, n - begun)) for begun in range(0, n, most)
            )
        except Exception as error:
            raise InferenceError(describe(error), is_transient=is_transient(error)) from error
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
        opening = opened_thought(prompt.text)
        if tokenizer is None:
            return await run_in_thread(lambda: completions_without_tokens(prompt, texts))
        if texts:
            encode = functools.partial(
                completions_from_texts,
                tokenizer,
                prompt.tokens,
                [join_reasoning(prompt.text, s.reasoning, s.content) for s in texts],
                finish_reasons=[sample.finish_reason for sample in texts],
                turn_end=self._turn_end,
                length_limit=length_limit,
                opening=opening,
            )
            return await run_in_thread(encode)
        tokens = [sample for sample in samples if isinstance(sample, TokenSample)]

        def decode(sample: TokenSample) -> Completion:
            ids: Any = np.asarray(sample.tokens, np.intc)  # transformers looks at each list item
            return completion_from_tokens(
                opening + text_of_tokens(tokenizer, ids),
                prompt.tokens,
                sample.tokens,
                sample.logprobs,
                finish_reason=sample.finish_reason,
            )

        async with self._decoding:
            await asyncio.sleep(0)
            size = sum(len(sample.tokens) for sample in tokens)
            return await offload(lambda: [decode(sample) for sample in tokens], tokens=size)
