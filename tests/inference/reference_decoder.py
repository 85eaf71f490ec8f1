"""Decodes replies from all of their JSON, number by number: the reference for the dialects."""

import json
import math
from itertools import takewhile
from typing import Any

from reasoning_gym_environment.inference.dialects import (
    ChatTokens,
    Dialect,
    GenerationRequest,
    SglangGenerate,
    VllmCompletions,
)
from reasoning_gym_environment.inference.errors import ReplyError
from reasoning_gym_environment.inference.finish_reasons import read_ending


def decode_by_reference(
    dialect: Dialect, body: bytes, request: GenerationRequest
) -> Any:
    """Tokens, logprobs and finish reason of each completion; None if one is invalid."""
    try:
        rows = ROWS[type(dialect)](json.loads(body), request)
        return [sound(*row, request) for row in rows]
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        ReplyError,
        TypeError,
        ValueError,
    ):
        return None


def sound(tokens: Any, logprobs: Any, reason: Any, request: GenerationRequest) -> Any:
    require(len(items(tokens)) == len(items(logprobs)) <= request.max_tokens)
    require(all(type(token) is int and 0 <= token < 2**63 for token in tokens))
    require(
        all(
            type(p) in (int, float) and math.isfinite(p) and p <= 1e-3 for p in logprobs
        )
    )
    require(isinstance(reason, str | None))
    ending = read_ending(reason)
    reason = (ending.at_limit() if len(tokens) >= request.max_tokens else ending).reason
    valid = [*takewhile(lambda token: token < request.vocabulary, tokens)]
    if len(valid) < len(tokens):
        reason = "invalid_token"
    return valid, [min(float(p), 0.0) for p in logprobs[: len(valid)]], reason


def require_text(holder: Any) -> None:
    require(isinstance(holder.get("text"), str | None))


def require(holds: bool) -> None:
    if not holds:
        raise ValueError


def items(value: Any) -> list[Any]:
    require(isinstance(value, list))
    return list(value)


def require_prompt(prompt: Any, request: GenerationRequest) -> None:
    """Require our own; true and 1.0 equal 1 in Python, and are no token ids."""
    require(items(prompt) == list(request.prompt))
    require({*map(type, prompt)} <= {int})


def vllm(reply: Any, request: GenerationRequest) -> Any:
    for choice in items(reply["choices"]):
        require_prompt(choice["prompt_token_ids"], request)
        require_text(choice)
    return [
        (c["token_ids"], c["logprobs"]["token_logprobs"], c.get("finish_reason"))
        for c in items(reply["choices"])
    ]


def sglang(reply: Any, request: GenerationRequest) -> Any:
    results = reply if isinstance(reply, list) else [reply]
    for result in results:
        require_text(result)
    metas = [result["meta_info"] for result in results]
    return [
        (
            [entry[1] for entry in items(meta["output_token_logprobs"])],
            [entry[0] for entry in items(meta["output_token_logprobs"])],
            meta["finish_reason"]["type"],
        )
        for meta in metas
    ]


def chat(reply: Any, request: GenerationRequest) -> Any:
    for choice in items(reply["choices"]):
        prompt = choice.get("prompt_token_ids", reply.get("prompt_token_ids"))
        require_prompt(prompt, request)
        require_text(choice)
    return [
        (
            choice.get("token_ids", choice.get("response_token_ids")),
            [entry["logprob"] for entry in items(choice["logprobs"]["content"])],
            choice.get("finish_reason"),
        )
        for choice in items(reply["choices"])
    ]


ROWS: dict[type[Dialect], Any] = {
    VllmCompletions: vllm,
    SglangGenerate: sglang,
    ChatTokens: chat,
}
