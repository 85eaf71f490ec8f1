"""What the start finds out about an inference server, and what it means: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..rollouts.rollouts import SamplingParams
from .failures import WAYS_OUT
from .replies import Ask, Dialect

_NOISE = 0.25
"""By what share of it a logprob differs between two equal requests at the most (bfloat16)."""

_CERTAIN = -1e-5
"""A logprob that is 0 but for rounding."""

_SHOWN_IDS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """What a run needs of its servers.

    Attributes:
        ask: for two completions of one token at temperature 1, with the most probable one.
        text, text_ids: any text, and our token ids of it.
        max_length: tokens of prompt and completion.
        sampling: None where nothing will train on the completions.
    """

    ask: Ask
    text: str
    text_ids: tuple[int, ...]
    max_length: int
    sampling: SamplingParams | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What one server has shown.

    Attributes:
        dialect: None where the server gives text alone.
        text_ids: its token ids of the text; None where it doesn't tell.
        context: tokens of prompt and completion it takes; None where it doesn't tell.
        prompt_tokens: how many it counts in the prompt of the request; None where it doesn't tell.
        raw: whether logprobs are those before temperature and top_p; None where that can't be seen.
    """

    url: str
    dialect: Dialect | None
    text_ids: tuple[int, ...] | None = None
    context: int | None = None
    prompt_tokens: int | None = None
    raw: bool | None = None


def objection(found: Found, needs: Needs) -> str | None:
    """Why no run can begin with this server, and the way out; None where one can."""
    at, sampling = f"the inference server at {found.url}", needs.sampling
    if found.text_ids is not None and not same_text(found.text_ids, needs.text_ids):
        return (
            f"{at} has another tokenizer: its token ids of a text begin {_shown(found.text_ids)}, "
            f"ours {_shown(needs.text_ids)}; set --env.tokenizer_name to its model's tokenizer"
        )
    if found.context is not None and found.context < needs.max_length:
        return (
            f"{at} takes {found.context} tokens and max_token_length is {needs.max_length}: lower "
            "--env.max_token_length, or start the server with a longer context"
        )
    if found.dialect and found.raw and sampling and {sampling.temperature, sampling.top_p} != {1}:
        return (
            f"{at} gives raw logprobs, those before temperature and top_p, so that importance "
            f"ratios at temperature {sampling.temperature:g} and top_p {sampling.top_p:g} would be "
            f"wrong: {found.dialect.processed_by}, or set --env.temperature 1 --env.top_p 1"
        )
    return None


def doubt(found: Found, needs: Needs) -> str | None:
    """Why training may see other tokens than the model did; None where nothing speaks for it.

    No objection, since some endpoints count in tokens that aren't their model's.
    """
    counted, ours = found.prompt_tokens, len(needs.ask.prompt)
    if found.dialect or needs.sampling is None or counted in (None, ours):
        return None
    return (
        f"The inference server at {found.url} counts {counted} tokens in a prompt that has {ours} "
        "by tokenizer_name and its chat template: unless it is its way of counting, the trainer "
        "would see other tokens than the model; set --env.tokenizer_name to its model's tokenizer"
    )


def description(found: Found) -> str:
    """What the server gives, in words, for the log."""
    if found.dialect is None:
        return "gives text alone: tokens are encoded from it, and there are no logprobs"
    logprobs = {
        True: "raw (before temperature and top_p)",
        False: "of the distribution that is sampled",
        None: "of a kind that could not be found out",
    }
    return f"gives token ids through {found.dialect.name}; its logprobs are {logprobs[found.raw]}"


def refusal(url: str, status: int, words: str) -> str:
    """One sentence with the status, the server's own words and the way out."""
    otherwise = "check --openai.server_type and --openai.model_name"
    said = words.rstrip(".")
    return (
        f"the inference server at {url} refuses requests with status {status} ({said}): "
        f"{WAYS_OUT.get(status, otherwise)}"
    )


def same_text(theirs: Sequence[int], ours: Sequence[int]) -> bool:
    """Whether the ids are ours, perhaps after a token that begins a text."""
    return list(ours) in (list(theirs), list(theirs[1:]))


def are_raw(at_one: float, at_two: float) -> bool | None:
    """Whether the most probable token's logprobs at temperatures 1 and 2 are the same number.

    None where it is certain: they would be equal either way. A temperature of 2 multiplies any
    other token's: even the 0.01 of an all but certain one, since all others gain.

    Example:
        >>> are_raw(-0.7, -0.7), are_raw(-0.7, -2.9), are_raw(-0.01, -0.01), are_raw(0.0, 0.0)
        (True, False, True, None)
    """
    if min(at_one, at_two) > _CERTAIN:
        return None
    return abs(at_one - at_two) < _NOISE * abs(at_one)


def _shown(ids: Sequence[int]) -> str:
    return f"{list(ids[:_SHOWN_IDS])} of {len(ids)}"
