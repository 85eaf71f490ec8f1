"""A policy behind the HTTP endpoints of the inference servers that Atropos supports."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiohttp import web

from ..inference.prompts import PROBE_QUESTION
from .policy import Policy, Sample, ScriptedPolicy
from .tokenizer import TURN_END, TURN_START

_PROBE = ScriptedPolicy(["ok"])
"""Answers probes."""

_SHUTDOWN_SECONDS = 0.5
"""Time for in-flight requests when the server closes."""


class PolicyServer:
    """An inference server for a policy on 127.0.0.1: `async with`, or `start` and `close`.

    It speaks OpenAI (`/v1/chat/completions`), stock vLLM (`/v1/completions`, `/tokenize`), SGLang
    and atroposlib's vLLM (`/generate`), and TRL before 1.11 (`/generate/`). Probes never
    reach the policy and are not counted.

    Args:
        tokenizer: of transformers, with a ChatML template.
        port: 0 takes a free one.

    Attributes:
        url: without a trailing slash; set once it serves.
        requests: received so far.
    """

    def __init__(self, policy: Policy, tokenizer: Any, *, port: int = 0) -> None:
        self.url = ""
        self.requests = 0
        self._policy = policy
        self._tokenizer = tokenizer
        self._port = port

    async def start(self) -> PolicyServer:
        """Start to serve, for callers that can't use `async with`, such as a notebook."""
        app = web.Application()
        app.add_routes(self._routes())
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self.url = "http://{}:{}".format(*self._runner.addresses[0])
        return self

    def _routes(self) -> list[web.RouteDef]:
        return [
            web.get("/health", self._health),
            web.post("/v1/chat/completions", self._chat),
            web.post("/v1/completions", self._completion),
            web.post("/tokenize", self._tokenize),
            web.post("/generate", self._generate),
            web.post("/generate/", self._trl_generate),
        ]

    async def close(self) -> None:
        await self._runner.cleanup()

    async def __aenter__(self) -> PolicyServer:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def _complete(self, request: GenerationRequest) -> list[Generation]:
        """Return the completions of all questions."""
        if is_probe(request):
            return generate(_PROBE, self._tokenizer, request)
        self.requests += 1
        return generate(self._policy, self._tokenizer, request)

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        generations = await self._complete(parse_chat(body))
        return web.json_response(self._chat_reply(body, generations))

    def _chat_reply(
        self, body: dict[str, Any], generations: Sequence[Generation]
    ) -> dict[str, Any]:
        messages = [{"role": "assistant", "content": one.text} for one in generations]
        choices = [{"message": message} for message in messages]
        return _openai_reply("chat.completion", body["model"], choices, generations)

    async def _completion(self, request: web.Request) -> web.Response:
        body = await request.json()
        generations = await self._complete(parse_completion(body, self._tokenizer))
        choices = [{"text": generation.text} for generation in generations]
        reply = _openai_reply("text_completion", body["model"], choices, generations)
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


def is_probe(request: GenerationRequest) -> bool:
    """Return whether a request is one of the start of a run, or a health probe of one token."""
    return request.max_tokens == 1 or request.questions == [PROBE_QUESTION]


def last_question(prompt: str) -> str:
    """Return the last user turn of a rendered prompt, or the whole prompt.

    Example:
        >>> last_question("<|im_start|>user\\n1 + 1?<|im_end|>\\n<|im_start|>assistant\\n")
        '1 + 1?'
    """
    turns = _USER_TURN.findall(prompt)
    return turns[-1] if turns else prompt


def generate(policy: Policy, tokenizer: Any, request: GenerationRequest) -> list[Generation]:
    """Sample the completions of all questions in turn.

    If the request asks for candidates, each token is the most probable one.
    """
    return [
        _to_generation(sample, tokenizer, request)
        for question in request.questions
        for sample in policy.sample(question, request.n)
    ]


def _to_generation(sample: Sample, tokenizer: Any, request: GenerationRequest) -> Generation:
    tokens = tokenizer.encode(sample.text, add_special_tokens=False)
    finish_reason = sample.finish_reason
    if finish_reason == "stop":
        tokens.append(tokenizer.eos_token_id)
    if request.max_tokens is not None and len(tokens) > request.max_tokens:
        tokens, finish_reason = tokens[: request.max_tokens], "length"
    if request.candidates:
        logprobs = [_MOST_PROBABLE * request.temperature] * len(tokens)
    else:
        logprobs = [-(1 + token % 10) / 10 for token in tokens]
    text = tokenizer.decode(tokens).removesuffix(TURN_END)
    return Generation(text=text, tokens=tokens, logprobs=logprobs, finish_reason=finish_reason)


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
