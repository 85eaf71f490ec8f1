"""The tokens that a request costs: what a server tells of a reply, and what a plan expects."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31)]

BYTES_PER_TOKEN = 3.5
"""Of prompts, where no tokenizer counts. All tasks' have 3.5 with cl100k_base, as it is or with
single digits, and 3.8 with Claude 2's tokenizer; the questions of one task have 1.1 to 28."""

TOKENS_PER_MESSAGE = 8
"""What a chat template adds to a message: its role and its ends."""


class RequestUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one answered request, None where nobody tells.

    Attributes:
        completion_tokens: all that were generated, reasoning included.
        counted_by: who says so; None if nobody does.
    """

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    counted_by: Literal["server", "tokenizer"] | None = None


class RequestPlan(NamedTuple):
    """What the completions of one prompt will cost, if no request is repeated.

    Attributes:
        prompt_tokens: of all requests; `is_estimate` says that no tokenizer has counted them.
        max_completion_tokens: the most that the completions may have.
    """

    requests: int
    prompt_tokens: int
    max_completion_tokens: int
    is_estimate: bool


class WireUsage(msgspec.Struct):
    """The `usage` of a reply. Only the numbers that replies need are checked."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    total_tokens: Any = None
    completion_tokens_details: Any = None
    reasoning_tokens: Any = None  # SGLang has it here


class _Reply(msgspec.Struct):
    usage: WireUsage | None = None


def read_usage(body: bytes | memoryview) -> RequestUsage | None:
    """Return what a reply says about its tokens, even if the reply is otherwise invalid.

    Example:
        >>> read_usage(b'{"usage": {"prompt_tokens": 5, "completion_tokens": 7}}').completion_tokens
        7
    """
    try:
        usage = msgspec.json.decode(body, type=_Reply).usage
    except (msgspec.DecodeError, OverflowError, RecursionError, ValueError):
        return None
    if usage is None or usage.prompt_tokens is None or usage.completion_tokens is None:
        return None
    details = usage.completion_tokens_details
    reasoning = details.get("reasoning_tokens") if isinstance(details, dict) else None
    if reasoning is None:
        reasoning = usage.reasoning_tokens
    completion = usage.completion_tokens
    # xAI and Gemini count reasoning in the total alone.
    if isinstance(usage.total_tokens, int):
        completion = max(completion, usage.total_tokens - usage.prompt_tokens)
    return RequestUsage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=completion,
        reasoning_tokens=reasoning if isinstance(reasoning, int) else None,
        counted_by="server",
    )
