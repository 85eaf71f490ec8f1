"""The requests and replies of the inference servers that Atropos speaks to, as plain JSON.

Each form is a pair of pure functions: what a request asks for, and how the reply looks. Between
them a policy's samples become token-level generations, cut to a budget.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..scoring.extraction import split_thought
from .policy import Policy
from .tokenizer import TURN_END, TURN_START

_USER_TURN = re.compile(
    rf"{re.escape(TURN_START)}user\n(.*?){re.escape(TURN_END)}", flags=re.DOTALL
)

_MOST_PROBABLE = -0.25
"""The logprob of the most probable token at temperature 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """What an inference server knows about one completion.

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


class Order(NamedTuple):
    """What a request asks for: `n` completions of at most `max_tokens` tokens per question.

    Attributes:
        max_tokens: None means any number.
        candidates: most probable tokens whose logprobs are asked for beside the sampled one's.
    """

    questions: list[str]
    n: int
    max_tokens: int | None
    temperature: float
    candidates: int


def last_question(prompt: str) -> str:
    """The last user turn of a rendered prompt; the whole prompt where there is none.

    Example:
        >>> last_question("<|im_start|>user\\n1 + 1?<|im_end|>\\n<|im_start|>assistant\\n")
        '1 + 1?'
    """
    turns = _USER_TURN.findall(prompt)
    return turns[-1] if turns else prompt


def generate(
    policy: Policy, tokenizer: Any, order: Order, *, raw_logprobs: bool
) -> list[Generation]:
    """Sample the completions of all questions in turn.

    Where candidates are asked for, each token is the most probable one of the same distribution.
    """
    return [
        generation
        for question in order.questions
        for generation in _generate(policy, tokenizer, question, order, raw_logprobs=raw_logprobs)
    ]


def _generate(
    policy: Policy, tokenizer: Any, question: str, order: Order, *, raw_logprobs: bool
) -> list[Generation]:
    most_probable = _MOST_PROBABLE * (1.0 if raw_logprobs else order.temperature)
    generations = []
    for sample in policy.sample(question, order.n):
        tokens = tokenizer.encode(sample.text, add_special_tokens=False)
        finish_reason = sample.finish_reason
        if finish_reason == "stop":
            tokens.append(tokenizer.eos_token_id)
        if order.max_tokens is not None and len(tokens) > order.max_tokens:
            tokens, finish_reason = tokens[: order.max_tokens], "length"
        generations.append(
            Generation(
                text=tokenizer.decode(tokens).removesuffix(TURN_END),
                tokens=tokens,
                logprobs=[
                    most_probable if order.candidates else -(1 + token % 10) / 10
                    for token in tokens
                ],
                finish_reason=finish_reason,
            )
        )
    return generations


def chat_order(body: dict[str, Any]) -> Order:
    """Of `/v1/chat/completions`."""
    users = [message for message in body["messages"] if message["role"] == "user"]
    max_tokens = body.get("max_tokens", body.get("max_completion_tokens"))
    candidates = body.get("top_logprobs", 0)
    return _order([users[-1]["content"]], {**body, "max_tokens": max_tokens}, candidates)


def completion_order(body: dict[str, Any], tokenizer: Any) -> Order:
    """Of `/v1/completions`, whose prompt may be token ids."""
    prompt = body["prompt"]
    text = prompt if isinstance(prompt, str) else tokenizer.decode(prompt)
    return _order([last_question(text)], body, body.get("logprobs"))


def vllm_order(body: dict[str, Any], tokenizer: Any) -> Order:
    """Of vLLM's `/generate`."""
    question = last_question(tokenizer.decode(body["prompt"]["prompt_token_ids"]))
    return _order([question], body, body.get("logprobs"))


def sglang_order(body: dict[str, Any], tokenizer: Any) -> Order:
    """Of SGLang's `/generate`."""
    sampling = body["sampling_params"]
    question = last_question(tokenizer.decode(body["input_ids"]))
    asked = {**sampling, "max_tokens": sampling.get("max_new_tokens")}
    return _order([question], asked, body.get("top_logprobs_num"))


def trl_order(body: dict[str, Any], tokenizer: Any) -> Order:
    """Of the `/generate/` of TRL's vllm-serve, whose prompts may be token ids."""
    prompts = [p if isinstance(p, str) else tokenizer.decode(p) for p in body["prompts"]]
    return _order([last_question(prompt) for prompt in prompts], body, body.get("logprobs"))


def _order(questions: list[str], body: dict[str, Any], candidates: int | None) -> Order:
    return Order(
        questions=questions,
        n=body.get("n", 1),
        max_tokens=body.get("max_tokens"),
        temperature=body.get("temperature", 1.0),
        candidates=candidates or 0,
    )


def chat_reply(
    generations: Sequence[Generation], model: str, *, splits_reasoning: bool
) -> dict[str, Any]:
    """With `splits_reasoning` the thought goes to `reasoning_content`, as reasoning parsers do."""
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
    """A chat reply as vLLM gives it on `return_token_ids` and `logprobs`."""
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
    """A completion reply as vLLM gives it on `return_token_ids` and `logprobs`."""
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
    """One entry for each position and candidate token, of which there is one."""
    return {
        "prompt_ids": prompt_ids,
        "completion_ids": [generation.tokens for generation in generations],
        "logprobs": [[[logprob] for logprob in g.logprobs] for g in generations],
        "logprob_token_ids": [[[token] for token in g.tokens] for g in generations],
    }


def _scored_tokens(generation: Generation) -> list[tuple[int, float]]:
    return list(zip(generation.tokens, generation.logprobs, strict=True))
