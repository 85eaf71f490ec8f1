"""Long columns of numbers as arrays, checked all at once.

128,000 tokens with logprobs are 9 MB of Python numbers, which the garbage collector looks at one by
one; in arrays they are 1.5 MB, of which it sees nothing. Checks may doubt what is sound, and never
pass what isn't: who is told no looks at each number.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..inference.columns import are_finite, are_id_array, are_ids
from ..records import MASKED

COLUMNS = ("tokens", "masks", "inference_logprobs")
"""What of a group is rows of numbers, one for each token."""

_POWERS = np.array([float(10**decimals) for decimals in range(23)])
"""Of ten, all exact: an integer divided by one is the number that its digits say."""


def is_sound_row(tokens: Any, masks: Any, logprobs: Any, vocabulary: int) -> bool:
    """Whether a row is known to be as `soundness.fault` wants it: only one of arrays is.

    Args:
        logprobs: None where there are none.
    """
    columns = ((tokens, "i"), (masks, "i"), (array("d") if logprobs is None else logprobs, "d"))
    if any(not isinstance(row, array) or row.typecode != code for row, code in columns):
        return False
    ids, labels, row = (np.asarray(column) for column, _ in columns)
    trained = labels != MASKED
    sound = len(ids) == len(labels) and are_id_array(ids, vocabulary)
    if not (sound and np.array_equal(ids[trained], labels[trained])):
        return False
    return logprobs is None or (
        len(row) == len(ids) and bool(np.isfinite(row).all() and (row[trained] <= 0.0).all())
    )


def trained_tokens(masks: Sequence[int]) -> int:
    """How many tokens of a row are trained on."""
    if isinstance(masks, array):
        return int(np.count_nonzero(np.asarray(masks) != MASKED))
    return len(masks) - masks.count(MASKED)


def as_list(row: Any) -> list[Any]:
    """Make a list of an array, for what writes JSON; raises TypeError for anything else.

    Logprobs have nine digits then, which tell float32 numbers apart: servers send such as doubles,
    whose 17 digits take the API nearly twice the time to read.
    """
    if isinstance(row, array):
        return nine_digits(row) if row.typecode == "d" else row.tolist()
    raise TypeError(f"Object of type {type(row).__name__} is not JSON serializable")


def nine_digits(row: array[float]) -> list[float]:
    """Round numbers to nine digits and at most 22 decimals; all stay where one isn't finite."""
    values = np.asarray(row)
    if not np.isfinite(values).all():
        return row.tolist()
    with np.errstate(divide="ignore"):  # of 0
        decimals = 8 - np.floor(np.log10(np.abs(values)))
    power = _POWERS[np.clip(decimals, 0, 22).astype(np.intp)]
    rounded: list[float] = (np.rint(values * power) / power).tolist()
    return rounded


_ZEROED = "set_advantage_to_zero"


def _is_not_known(*_row: Any) -> bool:
    return False


def fault(
    group: Mapping[str, Any],
    *,
    rows: int,
    vocabulary: int,
    is_sound_row: Callable[[Any, Any, Any, int], bool] = _is_not_known,
) -> str | None:
    """Say what is wrong with a group; None where it is sound.

    Sound are `rows` rows of tokens, masks, scores, overrides and, unless there are none at all,
    logprobs: ids in the vocabulary, scores finite, masks -100 or the token, logprobs of trained
    tokens finite and at most 0, and one trained token at least or the advantage set to zero.

    Args:
        vocabulary: how many token ids there are.
        is_sound_row: knows of some rows of tokens, masks and logprobs that they are sound, sooner
            than it is found out here.
    """
    columns = ["tokens", "masks", "scores", "overrides"]
    columns += ["inference_logprobs"] if group["inference_logprobs"] else []
    for name in columns:
        if len(group[name]) != rows:
            return f"{len(group[name])} rows of {name} where {rows} belong"
    logprobs = group["inference_logprobs"] or [None] * rows
    parts = zip(group["tokens"], group["masks"], logprobs, strict=True)
    for number, (tokens, masks, row) in enumerate(parts):
        if not is_sound_row(tokens, masks, row, vocabulary) and (
            said := _tokens_fault(tokens, masks, vocabulary) or _logprobs_fault(row, masks)
        ):
            return f"row {number} has {said}"
        if _trains_nothing(masks) and not group["overrides"][number].get(_ZEROED):
            return f"row {number} has no trained token"
    if bad := [score for score in group["scores"] if not _is_finite(score)]:
        return f"{bad[0]!r} is no score"
    return None


def _tokens_fault(tokens: Sequence[Any], masks: Sequence[Any], vocabulary: int) -> str | None:
    if len(tokens) != len(masks):
        return f"{len(tokens)} tokens and {len(masks)} masks"
    if not are_ids(tokens, vocabulary):
        bad = next(t for t in tokens if type(t) is not int or not 0 <= t < vocabulary)
        return f"{bad!r} among its tokens, no id of a vocabulary of {vocabulary}"
    if _masks_a_prompt(tokens, masks):
        return None
    both = zip(tokens, masks, strict=True)
    if wrong := [m for t, m in both if type(m) is not int or m not in (MASKED, t)]:
        return f"the mask {wrong[0]!r}, neither {MASKED} nor its token"
    return None


def _masks_a_prompt(tokens: Sequence[Any], masks: Sequence[Any]) -> bool:
    """Whether all that is masked stands before all that isn't, which are its tokens."""
    masked = masks.count(MASKED)
    return (
        {*map(type, masks)} <= {int}
        and masks[masked:] == tokens[masked:]
        and masks[:masked].count(MASKED) == masked
    )


def _logprobs_fault(logprobs: Sequence[Any] | None, masks: Sequence[int]) -> str | None:
    if logprobs is None:
        return None
    if len(logprobs) != len(masks):
        return f"{len(masks)} tokens and {len(logprobs)} logprobs"
    if not are_finite(logprobs) and (bad := [p for p in logprobs if not _is_finite(p)]):
        return f"the logprob {bad[0]!r}"
    trained = itertools.compress(logprobs, map(MASKED.__ne__, masks))
    if (highest := max(trained, default=0)) > 0:
        return f"the logprob {highest!r} of a trained token, above 0"
    return None


def _trains_nothing(masks: Sequence[int]) -> bool:
    return all(mask == MASKED for mask in reversed(masks))


def _is_finite(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)
