"""A policy behind the HTTP endpoints of inference servers, and a small tokenizer."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from ..inference.prompts import PROBE_QUESTION
from .policy import Policy, ScriptedPolicy
from .site import LocalSite

TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"


class PolicyServer:
    """An inference server for a policy: `async with` on 127.0.0.1, or `start` and `close`.

    It speaks OpenAI (`/v1/chat/completions`), vLLM (`/v1/completions`, `/tokenize`) and SGLang
    (`/generate`). Probes never reach the policy and are not counted.

    Args:
        tokenizer: of transformers, with a ChatML template.

    Attributes:
        url: without a trailing slash; set once it serves.
        requests: received so far.
    """

    def __init__(self, policy: Policy, tokenizer: Any) -> None:
        self.url = ""
        self.requests = 0
        self._policy = policy
        self._tokenizer = tokenizer

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> PolicyServer:
        """Start to serve at a port, for callers without `async with`, such as a notebook."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/health", self._health),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completion),
                web.post("/tokenize", self._tokenize),
                web.post("/generate", self._generate),
            ]
        )
        self._site = LocalSite(app)
        self.url = await self._site.start(port, host)
        return self

    async def close(self) -> None:
        await self._site.close()

    async def __aenter__(self) -> PolicyServer:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def _complete(self, request: PolicyRequest) -> list[Generation]:
        """Return the completions of a request."""
        if is_probe(request):
            return generate(ScriptedPolicy(["ok"]), self._tokenizer, request)
        self.requests += 1
        return generate(self._policy, self._tokenizer, request)

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        users = [message for message in body["messages"] if message["role"] == "user"]
        max_tokens = body.get("max_tokens", body.get("max_completion_tokens"))
        limited = {**body, "max_tokens": max_tokens}
        parsed = _parse(users[-1]["content"], limited, body.get("top_logprobs"))
        generations = await self._complete(parsed)
        return web.json_response(self._chat_reply(body, generations))

    def _chat_reply(
        self, body: dict[str, Any], generations: Sequence[Generation]
    ) -> dict[str, Any]:
        messages = [
            {"role": "assistant", "content": generation.text}
            for generation in generations
        ]
        choices = [{"message": message} for message in messages]
        return _openai_reply("chat.completion", body["model"], choices, generations)

    async def _completion(self, request: web.Request) -> web.Response:
        body = await request.json()
        prompt = body["prompt"]
        text = prompt if isinstance(prompt, str) else self._tokenizer.decode(prompt)
        parsed = _parse(last_question(text), body, body.get("logprobs"))
        generations = await self._complete(parsed)
        choices = [{"text": generation.text} for generation in generations]
        reply = _openai_reply("text_completion", body["model"], choices, generations)
        if body.get("return_token_ids"):
            prompt_ids = self._ids(prompt)
            for choice, generation in zip(reply["choices"], generations, strict=True):
                choice["token_ids"] = generation.tokens
                choice["prompt_token_ids"] = prompt_ids
                choice["logprobs"] = {
                    "token_logprobs": generation.logprobs,
                    "top_logprobs": [{"": logprob} for logprob in generation.logprobs],
                }
        return web.json_response(reply)

    def _ids(self, prompt: str | list[int]) -> list[int]:
        return self._tokenizer.encode(prompt) if isinstance(prompt, str) else prompt

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response({"tokens": self._ids(body["prompt"])})

    async def _generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        sampling = body["sampling_params"]
        candidates = body.get("top_logprobs_num")
        question = last_question(self._tokenizer.decode(body["input_ids"]))
        settings = {**sampling, "max_tokens": sampling.get("max_new_tokens")}
        generations = await self._complete(_parse(question, settings, candidates))
        reply = []
        for generation in generations:
            pairs = zip(generation.logprobs, generation.tokens, strict=True)
            entries = [[logprob, token, None] for logprob, token in pairs]
            meta = {
                "finish_reason": {"type": generation.finish_reason},
                "completion_tokens": len(generation.tokens),
                "output_token_logprobs": entries,
                "output_top_logprobs": [[entry] for entry in entries],
            }
            reply.append({"text": generation.text, "meta_info": meta})
        return web.json_response(reply)


class Generation(NamedTuple):
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


class PolicyRequest(NamedTuple):
    """A request for `n` completions of a question, of at most `max_tokens` tokens.

    Attributes:
        max_tokens: None means any number.
        candidates: number of most probable tokens to return logprobs of.
    """

    question: str
    n: int
    max_tokens: int | None
    temperature: float
    candidates: int


def is_probe(request: PolicyRequest) -> bool:
    """Return whether a request is one of the start of a run, or a health probe of one token."""
    return request.max_tokens == 1 or request.question == PROBE_QUESTION


def last_question(prompt: str) -> str:
    """Return the last user turn of a rendered prompt, or the whole prompt.

    Example:
        >>> last_question("<|im_start|>user\\n1 + 1?<|im_end|>\\n<|im_start|>assistant\\n")
        '1 + 1?'
    """
    user = re.escape(f"{TURN_START}user\n")
    end = re.escape(TURN_END)
    turns = re.findall(f"{user}(.*?){end}", prompt, flags=re.DOTALL)
    return turns[-1] if turns else prompt


def generate(
    policy: Policy, tokenizer: Any, request: PolicyRequest
) -> list[Generation]:
    """Sample completions; if the request asks for candidates, each token is the most probable."""
    completions = []
    for sample in policy.sample(request.question, request.n):
        tokens = tokenizer.encode(sample.text, add_special_tokens=False)
        finish_reason = sample.finish_reason
        if finish_reason == "stop":
            tokens.append(tokenizer.eos_token_id)
        if request.max_tokens is not None and len(tokens) > request.max_tokens:
            tokens = tokens[: request.max_tokens]
            finish_reason = "length"
        logprobs = [-(1 + token % 10) / 10 for token in tokens]
        if request.candidates:
            logprobs = [-0.25 * request.temperature] * len(tokens)
        text = tokenizer.decode(tokens).removesuffix(TURN_END)
        completions.append(Generation(text, tokens, logprobs, finish_reason))
    return completions


def _parse(
    question: str, body: dict[str, Any], candidates: int | None
) -> PolicyRequest:
    return PolicyRequest(
        question=question,
        n=body.get("n", 1),
        max_tokens=body.get("max_tokens"),
        temperature=body.get("temperature", 1.0),
        candidates=candidates or 0,
    )


def _openai_reply(
    kind: str,
    model: str,
    choices: Sequence[dict[str, Any]],
    generations: Sequence[Generation],
) -> dict[str, Any]:
    return {
        "id": uuid.uuid4().hex,
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "choices": [
            {
                "index": index,
                "finish_reason": generation.finish_reason,
                "logprobs": None,
                **choice,
            }
            for index, (choice, generation) in enumerate(
                zip(choices, generations, strict=True)
            )
        ],
    }


_CORPUS = """
Work through the problem before you answer. Put your reasoning between <think> and </think>.
After that, give your final answer once, between <answer> and </answer>. Your task is to find
the value of each number in the list below, given the following rules and an example of the
input and the output. How many steps are needed, and which of these are true or false? Please
return only the result, in the same format as the question asks for; do not write anything
else. system user assistant. If there is no solution, say so. Sort the words in the given
order, then count the letters that appear more than once. Solve for x: 2 * x + 10 = 100 - 25.
"""


def build_tokenizer(folder: Path) -> Path:
    """Save a tokenizer for `AutoTokenizer.from_pretrained(folder)` and return `folder`.

    It is a small BPE over bytes, the same on every call, that encodes any text without loss. Its
    chat template is ChatML, and `<|im_end|>` ends a turn.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast  # slow, and a server does without

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        show_progress=False,
        special_tokens=["<|pad|>", TURN_START, TURN_END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator([_CORPUS], trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token=TURN_END,
        additional_special_tokens=[TURN_START],
        chat_template=(
            "{% for message in messages %}"
            "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
            "{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
        ),
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
    return folder
