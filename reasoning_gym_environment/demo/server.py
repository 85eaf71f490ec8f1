"""A policy behind the HTTP endpoints of the inference servers that Atropos supports."""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
import uuid
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from aiohttp import web

from ..scoring.extraction import split_thought
from .policy import Policy, ScriptedPolicy
from .tokenizer import TURN_END, TURN_START

_PROBE = ScriptedPolicy(["ok"])
"""Answers requests for one token: health probes, and the probe at the start of a run."""

_SHUTDOWN_SECONDS = 0.5
"""Time for in-flight requests when the server closes."""

T = TypeVar("T")


class PolicyServer:
    """An inference server for a policy on 127.0.0.1: `async with`, or `start` and `close`.

    It speaks OpenAI (`/v1/chat/completions`), stock vLLM (`/v1/completions`, `/tokenize`), SGLang
    and atroposlib's vLLM (`/generate`), and TRL before 1.11 (`/generate/`). Requests for a single
    token are probes: they never fail, never reach the policy and are not counted.

    Args:
        tokenizer: of transformers, with a ChatML template.
        port: 0 takes a free one.
        latency: seconds before each reply.
        failure_rate: share of requests answered with HTTP 500, in [0, 1].
        seed: of the failures.
        splits_reasoning: return the thought of chat completions in `reasoning_content`.
        ignores_n: return one completion per request, like some hosted endpoints.
        chat_tokens: return token ids and logprobs of chat completions on request, like vLLM.
        stock_vllm: serve the paths of `vllm serve`, not only those of atroposlib's vLLM.
        raw_logprobs: return logprobs before temperature, like vLLM by default.

    Attributes:
        url: without a trailing slash; set once it serves.
        requests: received so far, failures included.
        failures: answered with HTTP 500 so far.
    """

    def __init__(
        self,
        policy: Policy,
        tokenizer: Any,
        *,
        port: int = 0,
        latency: float = 0.0,
        failure_rate: float = 0.0,
        seed: int = 0,
        splits_reasoning: bool = False,
        ignores_n: bool = False,
        chat_tokens: bool = False,
        stock_vllm: bool = True,
        raw_logprobs: bool = False,
    ) -> None:
        self.url = ""
        self.requests = 0
        self.failures = 0
        self._policy = policy
        self._tokenizer = tokenizer
        self._port = port
        self._latency = latency
        self._failure_rate = failure_rate
        self._rng = random.Random(seed)
        self._splits_reasoning = splits_reasoning
        self._ignores_n = ignores_n
        self._chat_tokens = chat_tokens
        self._stock_vllm = stock_vllm
        self._raw_logprobs = raw_logprobs

    async def start(self) -> PolicyServer:
        """Start to serve, for callers that can't use `async with`, such as a notebook."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/health", self._health),
                web.post("/v1/chat/completions", self._chat),
                *(self._stock_routes() if self._stock_vllm else []),
                web.post("/generate", self._generate),
                web.post("/generate/", self._trl_generate),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self.url = "http://{}:{}".format(*self._runner.addresses[0])
        return self

    def _stock_routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/completions", self._completion),
            web.post("/tokenize", self._tokenize),
        ]

    async def close(self) -> None:
        await self._runner.cleanup()

    async def __aenter__(self) -> PolicyServer:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def _complete(self, request: GenerationRequest) -> list[Generation]:
        """Return the completions of all questions; raises HTTP 500 for the share that fails."""
        policy = self._policy
        if request.max_tokens == 1:
            policy = _PROBE
        else:
            self.requests += 1
            await asyncio.sleep(self._latency)
            if self._rng.random() < self._failure_rate:
                self.failures += 1
                raise web.HTTPInternalServerError(text="a failure that was asked for")
        if self._ignores_n:
            request = request._replace(n=1)
        return generate(policy, self._tokenizer, request, raw_logprobs=self._raw_logprobs)

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        generations = await self._complete(parse_chat(body))
        reply = chat_reply(generations, body["model"], splits_reasoning=self._splits_reasoning)
        if self._chat_tokens and body.get("return_token_ids"):
            reply = with_chat_tokens(reply, generations, self._prompt_ids(body["messages"]))
        return web.json_response(reply)

    def _prompt_ids(self, messages: list[dict[str, str]]) -> list[int]:
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return list(self._tokenizer.encode(text))

    async def _completion(self, request: web.Request) -> web.Response:
        body = await request.json()
        generations = await self._complete(parse_completion(body, self._tokenizer))
        reply = completion_reply(generations, body["model"])
        if body.get("return_token_ids"):
            reply = with_completion_tokens(reply, generations, self._ids(body["prompt"]))
        return web.json_response(reply)

    def _ids(self, prompt: str | list[int]) -> list[int]:
        return self._tokenizer.encode(prompt) if isinstance(prompt, str) else prompt

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response({"tokens": self._ids(body["prompt"])})

    async def _generate(self, request: web.Request) -> web.Response:
        """Answer vLLM's and SGLang's requests, which share the path."""
        body = await request.json()
        if "input_ids" in body:
            generations = await self._complete(parse_sglang(body, self._tokenizer))
            return web.json_response(sglang_reply(generations))
        generations = await self._complete(parse_vllm(body, self._tokenizer))
        return web.json_response(vllm_reply(generations))

    async def _trl_generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        generations = await self._complete(parse_trl(body, self._tokenizer))
        prompt_ids = [self._ids(prompt) for prompt in body["prompts"]]
        return web.json_response(trl_reply(generations, prompt_ids))


@contextmanager
def serve_in_thread(server: PolicyServer) -> Iterator[PolicyServer]:
    """Serve from an event loop in a thread, for synchronous callers."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="policy-server")
    thread.start()

    def wait_for(coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    try:
        wait_for(server.start())
        try:
            yield server
        finally:
            wait_for(server.close())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


_USER_TURN = re.compile(
    rf"{re.escape(TURN_START)}user\n(.*?){re.escape(TURN_END)}", flags=re.DOTALL
)

_MOST_PROBABLE = -0.25
"""The logprob of the most probable token at temperature 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """A completion at token level.

    Attributes:
        text: without the end-of-turn token.
        tokens: ends with the end-of-turn token unless it was cut.
        logprobs: as long as `tokens`.
        finish_reason: "stop" or "length".
    """

    text: str
    tokens: list[int]
    logprobs: list[float]
    finish_reason: str


class GenerationRequest(NamedTuple):
    """A request for `n` completions of at most `max_tokens` tokens per question.

    Attributes:
        max_tokens: None means any number.
        candidates: number of most probable tokens to return logprobs of.
    """

    questions: list[str]
    n: int
    max_tokens: int | None
    temperature: float
    candidates: int


def last_question(prompt: str) -> str:
    """Return the last user turn of a rendered prompt, or the whole prompt.

    Example:
        >>> last_question("<|im_start|>user\\n1 + 1?<|im_end|>\\n<|im_start|>assistant\\n")
        '1 + 1?'
    """
    turns = _USER_TURN.findall(prompt)
    return turns[-1] if turns else prompt


def generate(
    policy: Policy, tokenizer: Any, request: GenerationRequest, *, raw_logprobs: bool
) -> list[Generation]:
    """Sample the completions of all questions in turn.

    If the request asks for candidates, each token is the most probable one.
    """
    return [
        generation
        for question in request.questions
        for generation in _generate(policy, tokenizer, question, request, raw_logprobs=raw_logprobs)
    ]


def _generate(
    policy: Policy, tokenizer: Any, question: str, request: GenerationRequest, *, raw_logprobs: bool
) -> list[Generation]:
    most_probable = _MOST_PROBABLE * (1.0 if raw_logprobs else request.temperature)
    generations = []
    for sample in policy.sample(question, request.n):
        tokens = tokenizer.encode(sample.text, add_special_tokens=False)
        finish_reason = sample.finish_reason
        if finish_reason == "stop":
            tokens.append(tokenizer.eos_token_id)
        if request.max_tokens is not None and len(tokens) > request.max_tokens:
            tokens, finish_reason = tokens[: request.max_tokens], "length"
        generations.append(
            Generation(
                text=tokenizer.decode(tokens).removesuffix(TURN_END),
                tokens=tokens,
                logprobs=[
                    most_probable if request.candidates else -(1 + token % 10) / 10
                    for token in tokens
                ],
                finish_reason=finish_reason,
            )
        )
    return generations


def parse_chat(body: dict[str, Any]) -> GenerationRequest:
    """Parse the body of `/v1/chat/completions`."""
    users = [message for message in body["messages"] if message["role"] == "user"]
    max_tokens = body.get("max_tokens", body.get("max_completion_tokens"))
    candidates = body.get("top_logprobs", 0)
    return _parse([users[-1]["content"]], {**body, "max_tokens": max_tokens}, candidates)


def parse_completion(body: dict[str, Any], tokenizer: Any) -> GenerationRequest:
    """Parse the body of `/v1/completions`; the prompt may be token ids."""
    prompt = body["prompt"]
    text = prompt if isinstance(prompt, str) else tokenizer.decode(prompt)
    return _parse([last_question(text)], body, body.get("logprobs"))


def parse_vllm(body: dict[str, Any], tokenizer: Any) -> GenerationRequest:
    """Parse the body of vLLM's `/generate`."""
    question = last_question(tokenizer.decode(body["prompt"]["prompt_token_ids"]))
    return _parse([question], body, body.get("logprobs"))


def parse_sglang(body: dict[str, Any], tokenizer: Any) -> GenerationRequest:
    """Parse the body of SGLang's `/generate`."""
    sampling = body["sampling_params"]
    question = last_question(tokenizer.decode(body["input_ids"]))
    asked = {**sampling, "max_tokens": sampling.get("max_new_tokens")}
    return _parse([question], asked, body.get("top_logprobs_num"))


def parse_trl(body: dict[str, Any], tokenizer: Any) -> GenerationRequest:
    """Parse the body of TRL's `/generate/`; the prompts may be token ids."""
    prompts = [p if isinstance(p, str) else tokenizer.decode(p) for p in body["prompts"]]
    return _parse([last_question(prompt) for prompt in prompts], body, body.get("logprobs"))


def _parse(questions: list[str], body: dict[str, Any], candidates: int | None) -> GenerationRequest:
    return GenerationRequest(
        questions=questions,
        n=body.get("n", 1),
        max_tokens=body.get("max_tokens"),
        temperature=body.get("temperature", 1.0),
        candidates=candidates or 0,
    )


def chat_reply(
    generations: Sequence[Generation], model: str, *, splits_reasoning: bool
) -> dict[str, Any]:
    """Return a chat reply, with the thought in `reasoning_content` if `splits_reasoning`."""
    choices = []
    for generation in generations:
        message = {"role": "assistant", "content": generation.text}
        if splits_reasoning:
            message["reasoning_content"], message["content"] = split_thought(generation.text)
        choices.append({"message": message})
    return _openai_reply("chat.completion", model, choices, generations)


def with_chat_tokens(
    reply: dict[str, Any], generations: Sequence[Generation], prompt_ids: list[int]
) -> dict[str, Any]:
    """Add what vLLM returns for `return_token_ids` and `logprobs`."""
    for choice, generation in zip(reply["choices"], generations, strict=True):
        choice["token_ids"] = generation.tokens
        choice["logprobs"] = {
            "content": [
                {
                    "token": "",
                    "logprob": logprob,
                    "top_logprobs": [{"token": "", "logprob": logprob}],
                }
                for logprob in generation.logprobs
            ]
        }
    return {**reply, "prompt_token_ids": prompt_ids}


def completion_reply(generations: Sequence[Generation], model: str) -> dict[str, Any]:
    choices = [{"text": generation.text} for generation in generations]
    return _openai_reply("text_completion", model, choices, generations)


def with_completion_tokens(
    reply: dict[str, Any], generations: Sequence[Generation], prompt_ids: list[int]
) -> dict[str, Any]:
    """Add what vLLM returns for `return_token_ids` and `logprobs`."""
    for choice, generation in zip(reply["choices"], generations, strict=True):
        choice["token_ids"] = generation.tokens
        choice["prompt_token_ids"] = prompt_ids
        choice["logprobs"] = {
            "token_logprobs": generation.logprobs,
            "top_logprobs": [{"": logprob} for logprob in generation.logprobs],
        }
    return reply


def _openai_reply(
    kind: str, model: str, choices: Sequence[dict[str, Any]], generations: Sequence[Generation]
) -> dict[str, Any]:
    return {
        "id": uuid.uuid4().hex,
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "choices": [
            {"index": index, "finish_reason": generation.finish_reason, "logprobs": None, **choice}
            for index, (choice, generation) in enumerate(zip(choices, generations, strict=True))
        ],
    }


def vllm_reply(generations: Sequence[Generation]) -> dict[str, Any]:
    return {
        "text": [generation.text for generation in generations],
        "finish_reasons": [generation.finish_reason for generation in generations],
        "logprobs": [
            [[{token: logprob}] for token, logprob in _scored_tokens(generation)]
            for generation in generations
        ],
    }


def sglang_reply(generations: Sequence[Generation]) -> list[dict[str, Any]]:
    return [
        {
            "text": generation.text,
            "meta_info": {
                "finish_reason": {"type": generation.finish_reason},
                "completion_tokens": len(generation.tokens),
                "output_token_logprobs": [
                    [logprob, token, None] for token, logprob in _scored_tokens(generation)
                ],
                "output_top_logprobs": [
                    [[logprob, token, None]] for token, logprob in _scored_tokens(generation)
                ],
            },
        }
        for generation in generations
    ]


def trl_reply(generations: Sequence[Generation], prompt_ids: list[list[int]]) -> dict[str, Any]:
    """Return one candidate for each position."""
    return {
        "prompt_ids": prompt_ids,
        "completion_ids": [generation.tokens for generation in generations],
        "logprobs": [[[logprob] for logprob in g.logprobs] for g in generations],
        "logprob_token_ids": [[[token] for token in g.tokens] for g in generations],
    }


def _scored_tokens(generation: Generation) -> list[tuple[int, float]]:
    return list(zip(generation.tokens, generation.logprobs, strict=True))
