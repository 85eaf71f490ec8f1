"""Groups as Atropos's API takes them: conversion, validation and JSON.

The API accepts nearly anything, and a bad group then costs a whole batch. 128,000 tokens with
logprobs are 9 MB of Python numbers, which the garbage collector looks at one by one; as arrays they
are 1.5 MB that it never sees.
"""

from __future__ import annotations

import contextlib
import json
import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ..records import MASKED, Attempt, GroupResult, Status
from ..util.text import replace_surrogates

COLUMNS = ("tokens", "masks", "inference_logprobs")
"""The parts of a group that have a row of numbers for each completion."""

_ZEROED = "set_advantage_to_zero"
_POWERS = np.array([float(10**decimals) for decimals in range(23)])
"""All exact, so that an integer divided by one is the number that its digits say."""


def _overrides(attempt: Attempt, *, mask_truncated: bool) -> dict[str, Any]:
    """Zero the advantage of unscored and empty rollouts, and of truncated ones if asked."""
    unscored = attempt.verdict.status is Status.UNSCORED
    empty = not attempt.completion.completion_tokens
    if unscored or empty or (mask_truncated and attempt.completion.truncated):
        return {_ZEROED: True}
    return {}


def to_scored_data_group(
    group: GroupResult,
    prompt: list[dict[str, str]],
    *,
    generation_params: Mapping[str, Any],
    mask_truncated: bool,
    include_messages: bool,
) -> dict[str, Any]:
    """Return all attempts as rows in their order; Atropos drops a group that lacks a row.

    `inference_logprobs` is empty, not None, without logprobs: Atropos's example trainer takes its
    length. Rows of numbers are lists, or the arrays of the completions.
    """
    completions = [attempt.completion for attempt in group.attempts]
    return {
        "tokens": [_row(c.tokens) for c in completions],
        "masks": [_row(c.masks) for c in completions],
        "scores": list(group.rewards),
        "inference_logprobs": [_row(c.logprobs) for c in completions if c.logprobs is not None],
        "overrides": [_overrides(a, mask_truncated=mask_truncated) for a in group.attempts],
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


def find_fault(group: Mapping[str, Any], *, rows: int, vocabulary: int) -> str | None:
    """Return what is wrong with a group, or None if it is sound.

    A sound group has `rows` rows of tokens, masks, scores, overrides and, unless there are none at
    all, logprobs. Ids are in the vocabulary, scores are finite, masks are -100 or the token, and
    logprobs of trained tokens are finite and at most 0. A row has a trained token, or the advantage
    set to zero.
    """
    columns = ["tokens", "masks", "scores", "overrides"]
    columns += ["inference_logprobs"] if group["inference_logprobs"] else []
    for name in columns:
        if len(group[name]) != rows:
            return f"{len(group[name])} rows of {name}, expected {rows}"
    logprobs = group["inference_logprobs"] or [None] * rows
    parts = zip(group["tokens"], group["masks"], logprobs, strict=True)
    for number, (tokens, masks, row) in enumerate(parts):
        if fault := _tokens_fault(tokens, masks, vocabulary) or _logprobs_fault(row, masks):
            return f"row {number} has {fault}"
        if not trained_tokens(masks) and not group["overrides"][number].get(_ZEROED):
            return f"row {number} has no trained token"
    if bad := [score for score in group["scores"] if not _is_finite(score)]:
        return f"{bad[0]!r} is not a score"
    return None


def _tokens_fault(tokens: Sequence[Any], masks: Sequence[Any], vocabulary: int) -> str | None:
    if len(tokens) != len(masks):
        return f"{len(tokens)} tokens and {len(masks)} masks"
    ids = _numbers(tokens, int)
    if (at := _first(~((ids >= 0) & (ids < vocabulary)))) is not None:
        return f"{tokens[at]!r} among its tokens, not an id of a vocabulary of {vocabulary}"
    labels = _numbers(masks, int)
    if (at := _first((labels != MASKED) & (labels != ids))) is not None:
        return f"the mask {masks[at]!r}, neither {MASKED} nor its token"
    return None


def _logprobs_fault(logprobs: Sequence[Any] | None, masks: Sequence[int]) -> str | None:
    if logprobs is None:
        return None
    if len(logprobs) != len(masks):
        return f"{len(masks)} tokens and {len(logprobs)} logprobs"
    values = _numbers(logprobs, float)
    if (at := _first(~np.isfinite(values))) is not None:
        return f"the logprob {logprobs[at]!r}"
    trained = values[_numbers(masks, int) != MASKED]
    if len(trained) and trained.max() > 0:
        return f"the logprob {float(trained.max())!r} of a trained token, above 0"
    return None


def _numbers(row: Sequence[Any], kind: type) -> np.ndarray[Any, Any]:
    """Return a row as doubles, which hold all token ids; NaN for what is not a number of the kind.

    A float is a float or an integer.
    """
    if isinstance(row, array) and row.typecode == ("i" if kind is int else "d"):
        return np.asarray(row, np.double)
    kinds = {int} if kind is int else {int, float}
    if {*map(type, row)} <= kinds:
        with contextlib.suppress(OverflowError):
            return np.array(row, np.double)
    return np.array([_double(value) if type(value) in kinds else math.nan for value in row])


def _double(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _first(odd: np.ndarray[Any, Any]) -> int | None:
    return int(odd.argmax()) if odd.any() else None


def _is_finite(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)


def trained_tokens(masks: Sequence[int]) -> int:
    """Return how many tokens of a row are trained on."""
    if isinstance(masks, array):
        return int(np.count_nonzero(np.asarray(masks) != MASKED))
    return len(masks) - masks.count(MASKED)


def pack(body: Mapping[str, Any]) -> bytes:
    """Return strict JSON; the columns of a group must be sound.

    Raises:
        ValueError, TypeError: a number is not finite, a text is not Unicode, or a value not JSON.
    """
    columns = {name: body[name] for name in COLUMNS if body.get(name)}
    others = {name: value for name, value in body.items() if name not in columns}
    rest = json.dumps(others, allow_nan=False, ensure_ascii=False).encode()
    if not columns:
        return rest
    numbers = msgspec.json.encode(columns, enc_hook=_as_list)
    if b"null" in numbers:
        raise ValueError("numbers that are not finite are not JSON")
    begin = rest[:-1] + b"," if others else b"{"
    return b"".join([begin, memoryview(numbers)[1:]])


def _as_list(row: Any) -> list[Any]:
    if isinstance(row, array):
        return nine_digits(row) if row.typecode == "d" else row.tolist()
    raise TypeError(f"{type(row).__name__} is not JSON serializable")


def nine_digits(row: array[float]) -> list[float]:
    """Round numbers to nine digits and at most 22 decimals; all stay if one isn't finite.

    Nine digits tell float32 numbers apart. Servers send such as doubles, whose 17 digits take the
    API nearly twice the time to read.
    """
    values = np.asarray(row)
    if not np.isfinite(values).all():
        return row.tolist()
    with np.errstate(divide="ignore"):  # of 0
        decimals = 8 - np.floor(np.log10(np.abs(values)))
    power = _POWERS[np.clip(decimals, 0, 22).astype(np.intp)]
    rounded: list[float] = (np.rint(values * power) / power).tolist()
    return rounded
