"""From a policy's samples to token-level generations, cut to a budget."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .policy import Policy
from .tokenizer import TURN_END, TURN_START

_USER_TURN = re.compile(
    rf"{re.escape(TURN_START)}user\n(.*?){re.escape(TURN_END)}", flags=re.DOTALL
)


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


def last_question(prompt: str) -> str:
    """The last user turn of a rendered prompt; the whole prompt where there is none.

    Example:
        >>> last_question("<|im_start|>user\\n1 + 1?<|im_end|>\\n<|im_start|>assistant\\n")
        '1 + 1?'
    """
    turns = _USER_TURN.findall(prompt)
    return turns[-1] if turns else prompt


def generate(
    policy: Policy, tokenizer: Any, question: str, *, n: int, max_tokens: int | None
) -> list[Generation]:
    """Sample `n` completions of at most `max_tokens` tokens (None: any number)."""
    generations = []
    for sample in policy.sample(question, n):
        tokens = tokenizer.encode(sample.text, add_special_tokens=False)
        finish_reason = sample.finish_reason
        if finish_reason == "stop":
            tokens.append(tokenizer.eos_token_id)
        if max_tokens is not None and len(tokens) > max_tokens:
            tokens, finish_reason = tokens[:max_tokens], "length"
        generations.append(
            Generation(
                text=tokenizer.decode(tokens).removesuffix(TURN_END),
                tokens=tokens,
                logprobs=[-(1 + token % 10) / 10 for token in tokens],
                finish_reason=finish_reason,
            )
        )
    return generations
