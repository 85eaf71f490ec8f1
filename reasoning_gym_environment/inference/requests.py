"""What a request for token ids asks for, and its reply, checked before anything else sees it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from .columns import are_finite, are_ids

_ODD = (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError)
"""What a value that isn't as expected may raise where a reply is read."""

ROUNDING = 1e-3
"""How far above 0 a logprob may be: kernels in bfloat16 round. It is then taken as 0."""

REASONS = ("stop", "length")
"""Why a completion may have ended."""


class ReplyError(Exception):
    """A server's reply is not what was asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """What one request asks for.

    Attributes:
        prompt: token ids; `messages` are what they were rendered from.
        vocabulary: how many token ids there are.
        stops: token ids that end a turn, for servers that don't say why a completion ended.
        candidates: most probable tokens whose logprobs are asked for beside the sampled one's.
    """

    model: str
    prompt: tuple[int, ...]
    messages: Sequence[Mapping[str, str]]
    n: int
    max_tokens: int
    temperature: float
    top_p: float
    vocabulary: int
    stops: frozenset[int]
    candidates: int = 0


class Sampled(NamedTuple):
    """One completion: its token ids, stop token included, and as many logprobs."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    finish_reason: str


class Dialect(Protocol):
    """One way to ask.

    Attributes:
        path: below the server's root.
        processed_by: what makes the server give the logprobs of the distribution it samples.
    """

    name: str
    path: str
    processed_by: str

    def body(self, ask: Ask) -> dict[str, Any]: ...

    def gives_tokens(self, reply: Any) -> bool:
        """Whether the reply has token ids and logprobs at all."""
        ...

    def samples(self, reply: Any, ask: Ask) -> list[Sampled]:
        """The completions, unchecked; raises ReplyError for another prompt than the one sent."""
        ...

    def best(self, reply: Any) -> float:
        """The logprob of the most probable first token, where `candidates` were asked for."""
        ...


def _checked(sampled: Sampled, ask: Ask) -> Sampled:
    tokens, logprobs, reason = sampled
    if len(tokens) != len(logprobs):
        raise ReplyError(f"{len(tokens)} token ids came with {len(logprobs)} logprobs")
    if len(tokens) > ask.max_tokens:
        raise ReplyError(f"{len(tokens)} tokens came where {ask.max_tokens} were asked for")
    if not are_ids(tokens, ask.vocabulary):
        _refuse_non_id(tokens, ask.vocabulary)
    if not are_finite(logprobs) or max(logprobs, default=0.0) > 0:
        logprobs = [min(_logprob(p), 0.0) for p in logprobs]
    if reason not in REASONS:
        raise ReplyError(f"a completion ended with {reason!r}")
    return Sampled(list(tokens), list(map(float, logprobs)), reason)


def _refuse_non_id(tokens: Sequence[Any], vocabulary: int) -> None:
    for token in tokens:
        if type(token) is not int or not 0 <= token < vocabulary:
            raise ReplyError(f"{token!r} is no token id of a vocabulary of {vocabulary}")


def _logprob(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and value <= ROUNDING):
        raise ReplyError(f"{value!r} is no logprob")
    return float(value)


def read(
    dialect: Dialect, reply: Any, ask: Ask, check: Callable[[Sampled, Ask], Sampled] = _checked
) -> list[Sampled]:
    """The reply's completions, each checked.

    Args:
        check: takes a completion as it came and gives it as it is to be, or raises ReplyError.

    Raises:
        ReplyError: something is missing, of unequal length or out of range, or the prompt isn't
            the one that was sent.
    """
    try:
        return [check(sampled, ask) for sampled in dialect.samples(reply, ask)]
    except _ODD as error:
        raise ReplyError(
            f"the reply to {dialect.name} can't be read ({type(error).__name__}: {error})"
        ) from error


def require_prompt(prompt: Sequence[int], ask: Ask) -> None:
    """Raises ReplyError when a server's prompt isn't the one that was sent."""
    if list(prompt) != list(ask.prompt):
        at = next(
            (i for i, (a, b) in enumerate(zip(prompt, ask.prompt, strict=False)) if a != b),
            min(len(prompt), len(ask.prompt)),
        )
        raise ReplyError(
            f"its prompt of {len(prompt)} tokens isn't ours of {len(ask.prompt)}, from token {at} "
            "on: its chat template is another than that of tokenizer_name"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """One question as the model sees it; `tokens` are those of `text`."""

    messages: list[dict[str, str]]
    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How completions are sampled: `split` is "train" or "eval", and decides whose turn it is."""

    temperature: float
    top_p: float
    split: str

    @property
    def distribution(self) -> dict[str, float]:
        """What of it changes the distribution, under the names that trainers use."""
        return {"temperature": self.temperature, "top_p": self.top_p}
