"""A group as Atropos's API and trainer want it, and as wandb shows it."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from ..records import Attempt, GroupResult, Status
from ..util.text import replace_surrogates


def overrides(attempt: Attempt, *, mask_truncated: bool) -> dict[str, Any]:
    """Rollouts that must not move the policy: unscored and empty ones, truncated ones if asked."""
    unscored = attempt.verdict.status is Status.UNSCORED
    empty = not attempt.completion.completion_tokens
    if unscored or empty or (mask_truncated and attempt.completion.truncated):
        return {"set_advantage_to_zero": True}
    return {}


def to_scored_data_group(
    group: GroupResult,
    prompt: list[dict[str, str]],
    *,
    generation_params: Mapping[str, Any],
    mask_truncated: bool,
    include_messages: bool,
) -> dict[str, Any]:
    """All attempts as rows, in their order: a group with fewer rows would be dropped whole.

    `inference_logprobs` is empty, not None, where the server gives none: Atropos's example
    trainer takes the length of it. Rows of numbers are lists; arrays where completions have them.
    """
    completions = [attempt.completion for attempt in group.attempts]
    return {
        "tokens": [_row(c.tokens) for c in completions],
        "masks": [_row(c.masks) for c in completions],
        "scores": list(group.rewards),
        "inference_logprobs": [_row(c.logprobs) for c in completions if c.logprobs is not None],
        "overrides": [overrides(a, mask_truncated=mask_truncated) for a in group.attempts],
        "generation_params": dict(generation_params),
        "messages": [
            [*prompt, {"role": "assistant", "content": replace_surrogates(c.text)[0]}]
            for c in completions
        ]
        if include_messages
        else None,
        "statuses": [attempt.verdict.status.value for attempt in group.attempts],
    }


def _row(numbers: Sequence[float]) -> Sequence[float]:
    return numbers if isinstance(numbers, array) else list(numbers)
