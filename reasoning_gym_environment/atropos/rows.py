"""Rows of a group as the trainer gets them: their making, their validation, and their JSON.

The API accepts nearly anything, and a bad group then costs a whole batch. 128,000 tokens with
logprobs are 9 MB of Python numbers, which the garbage collector looks at one by one; as arrays they
are 1.5 MB that it never sees.
"""

from __future__ import annotations

import contextlib
import json
import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ..records import IGNORE_INDEX, Attempt, GroupResult, Problem
from ..rollouts.masking import mask_reason
from ..util.values import replace_surrogates

COLUMNS = ("tokens", "masks", "inference_logprobs")
"""The parts of a group that have a row of numbers for each completion."""

_ZEROED = "set_advantage_to_zero"


def to_scored_data_group(
    group: GroupResult,
    prompt: list[dict[str, str]],
    *,
    generation_params: Mapping[str, Any],
    mask_truncated: bool,
    include_messages: bool,
) -> dict[str, Any]:
    """Return all attempts as rows; the advantage of unscored, empty and masked ones is zero.

    `inference_logprobs` is empty, not None, without logprobs: Atropos's example trainer takes its
    length. Rows of numbers are lists, or the arrays of the completions.
    """

    def numbers(row: Sequence[float]) -> Sequence[float]:
        return row if isinstance(row, array) else list(row)

    def overrides(attempt: Attempt) -> dict[str, Any]:
        reason = mask_reason(attempt, mask_incomplete=mask_truncated)
        return {} if reason is None else {_ZEROED: True}

    completions = [attempt.completion for attempt in group.attempts]
    return {
        "tokens": [numbers(c.tokens) for c in completions],
        "masks": [numbers(c.masks) for c in completions],
        "scores": list(group.rewards),
        "inference_logprobs": [
            numbers(c.logprobs) for c in completions if c.logprobs is not None
        ],
        "overrides": [overrides(attempt) for attempt in group.attempts],
        "generation_params": dict(generation_params),
        "messages": [
            [*prompt, {"role": "assistant", "content": replace_surrogates(c.text)[0]}]
            for c in completions
        ]
        if include_messages
        else None,
        "statuses": [attempt.verdict.status.value for attempt in group.attempts],
        "answers": [
            a.answer and replace_surrogates(a.answer)[0] for a in group.attempts
        ],
    }


def task_of(item: Any) -> str:
    """Return an item's task, for messages."""
    return item.recipe.task if isinstance(item, Problem) else "a subclass's item"


def completed(
    group: Mapping[str, Any], decode: Callable[[Any], str] | None
) -> dict[str, Any]:
    """Return a group with what a subclass's may lack, as Atropos's own class completes it.

    Args:
        decode: returns the text of a row, for messages; None leaves them out.
    """
    whole: dict[str, Any] = {
        "messages": None,
        "group_overrides": None,
        "ref_logprobs": None,
        "distill_token_ids": None,
        "distill_logprobs": None,
        "tokens": [],
        "masks": [],
        "scores": [],
        "inference_logprobs": [],
    }
    for name, value in group.items():
        is_empty_list = type(value) is list and not value
        if value is not None and not is_empty_list:
            whole[name] = value
    whole.setdefault("overrides", [{} for _ in whole["tokens"]])
    if decode is not None and whole["messages"] is None:
        texts = [decode(list(row)) for row in whole["tokens"]]
        whole["messages"] = [[{"role": "user", "content": text}] for text in texts]
    return whole


def group_error(group: Mapping[str, Any], *, rows: int, vocabulary: int) -> str | None:
    """Return what is wrong with a group, or None if it is valid.

    A valid group has `rows` rows of tokens, masks, scores, overrides and, unless there are none at
    all, logprobs. A row has a trained token, or the advantage set to zero.
    """
    for name in ("tokens", "masks", "scores", "overrides", "inference_logprobs"):
        length = len(group[name])
        if length != rows and (length or name != "inference_logprobs"):
            return f"{length} rows of {name}, expected {rows}"
    logprobs = group["inference_logprobs"] or [None] * rows
    parts = zip(group["tokens"], group["masks"], logprobs, strict=True)
    for number, (tokens, masks, row) in enumerate(parts):
        error = _row_error(tokens, masks, row, vocabulary)
        if error:
            return f"row {number} has {error}"
        if not trained_tokens(masks) and not group["overrides"][number].get(_ZEROED):
            return f"row {number} has no trained token"
    for score in group["scores"]:
        if (
            type(score) is bool
            or not isinstance(score, int | float)
            or not math.isfinite(score)
        ):
            return f"{score!r} is not a score"
    return None


def _row_error(
    tokens: Sequence[Any],
    masks: Sequence[Any],
    logprobs: Sequence[Any] | None,
    vocabulary: int,
) -> str | None:
    if len(tokens) != len(masks):
        return f"{len(tokens)} tokens and {len(masks)} masks"
    ids = _numbers(tokens, int)
    labels = _numbers(masks, int)
    wrong = ~((ids >= 0) & (ids < vocabulary))
    if wrong.any():
        token = tokens[int(wrong.argmax())]
        return f"{token!r} among its tokens, not an id of a vocabulary of {vocabulary}"
    wrong = (labels != IGNORE_INDEX) & (labels != ids)
    if wrong.any():
        return f"the mask {masks[int(wrong.argmax())]!r}, neither {IGNORE_INDEX} nor its token"
    if logprobs is None:
        return None
    if len(logprobs) != len(masks):
        return f"{len(masks)} tokens and {len(logprobs)} logprobs"
    values = _numbers(logprobs, float)
    wrong = ~np.isfinite(values)
    if wrong.any():
        return f"the logprob {logprobs[int(wrong.argmax())]!r}"
    trained = values[labels != IGNORE_INDEX]
    if len(trained) and trained.max() > 0:
        return f"the logprob {float(trained.max())!r} of a trained token, above 0"
    return None


def _numbers(row: Sequence[Any], kind: type) -> np.ndarray[Any, Any]:
    """Return a row as doubles, which hold all token ids; NaN for what is not a number of the kind.

    A float is a float or an integer; infinite is what no double can hold.
    """
    if isinstance(row, array) and row.typecode == ("i" if kind is int else "d"):
        return np.asarray(row, np.double)
    kinds = {int} if kind is int else {int, float}
    if {*map(type, row)} <= kinds:
        with contextlib.suppress(OverflowError):
            return np.array(row, np.double)

    def double(value: Any) -> float:
        try:
            return float(value) if type(value) in kinds else math.nan
        except OverflowError:
            return math.inf

    return np.array([double(value) for value in row])


def trained_tokens(masks: Sequence[int]) -> int:
    """Return how many tokens of a row are trained on."""
    if isinstance(masks, array):
        return int(np.count_nonzero(np.asarray(masks) != IGNORE_INDEX))
    return len(masks) - masks.count(IGNORE_INDEX)


def pack(body: Mapping[str, Any]) -> bytes:
    """Return strict JSON of Unicode and finite numbers; raises ValueError and TypeError.

    The columns of a group must be sound.
    """
    columns = {name: body[name] for name in COLUMNS if body.get(name)}
    others = {name: value for name, value in body.items() if name not in columns}
    rest = json.dumps(others, allow_nan=False, ensure_ascii=False).encode()
    if not columns:
        return rest

    def as_list(row: Any) -> list[Any]:
        if isinstance(row, array):
            return nine_digits(row) if row.typecode == "d" else row.tolist()
        raise TypeError(f"{type(row).__name__} is not JSON serializable")

    numbers = msgspec.json.encode(columns, enc_hook=as_list)
    if b"null" in numbers:
        raise ValueError("numbers that are not finite are not JSON")
    begin = rest[:-1] + b"," if others else b"{"
    return b"".join([begin, memoryview(numbers)[1:]])


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
    # All exact, so that a quotient is as well.
    powers = np.array([float(10**n) for n in range(23)])
    power = powers[np.clip(decimals, 0, 22).astype(np.intp)]
    rounded: list[float] = (np.rint(values * power) / power).tolist()
    return rounded
