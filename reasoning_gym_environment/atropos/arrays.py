"""Long columns of numbers as arrays, checked all at once.

128,000 tokens with logprobs are 9 MB of Python numbers, which the garbage collector looks at one by
one; in arrays they are 1.5 MB, of which it sees nothing. Checks may doubt what is sound, and never
pass what isn't: who is told no looks at each number.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..records import MASKED
from .replies import REASONS, ROUNDING, Ask, ReplyError, Sampled

COLUMNS = ("tokens", "masks", "inference_logprobs")
"""What of a group is rows of numbers, one for each token."""

_POWERS = np.array([float(10**decimals) for decimals in range(23)])
"""Of ten, all exact: an integer divided by one is the number that its digits say."""


def in_arrays(sampled: Sampled, ask: Ask) -> Sampled:
    """Check a completion whose columns are lists of `int` and of `float`, and make arrays of them.

    Raises:
        ReplyError: there may be something wrong with it.
        OverflowError: an integer has more than 64 bits.
    """
    ids, logprobs = np.array(sampled.tokens, np.int64), np.array(sampled.logprobs, np.double)
    sound = (
        len(ids) == len(logprobs)
        and len(ids) <= ask.max_tokens
        and _are_ids(ids, ask.vocabulary)
        and bool(np.isfinite(logprobs).all() and (logprobs <= ROUNDING).all())
        and sampled.finish_reason in REASONS
    )
    if not sound:
        raise ReplyError("a completion isn't as expected")
    return Sampled(
        array("i", ids.astype(np.intc).tobytes()),
        array("d", np.minimum(logprobs, 0.0).tobytes()),
        sampled.finish_reason,
    )


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
    sound = len(ids) == len(labels) and _are_ids(ids, vocabulary)
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


def _are_ids(ids: np.ndarray[Any, Any], vocabulary: int) -> bool:
    return not len(ids) or bool(ids.min() >= 0 and ids.max() < vocabulary)
