"""Groups of arrays are judged and written as the same groups of lists are."""

import json
import math
from array import array
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from asked_completions import ASK
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.atropos.trainer_api import pack
from reasoning_gym_environment.atropos.validation import (
    COLUMNS,
    as_list,
    fault,
    is_sound_row,
    nine_digits,
    trained_tokens,
)
from reasoning_gym_environment.inference.prompts import completion_from_tokens
from reasoning_gym_environment.inference.requests import ReplyError, Sampled
from reasoning_gym_environment.inference.wire import in_arrays
from reasoning_gym_environment.records import MASKED

VOCABULARY = ASK.vocabulary

ids = st.integers(0, VOCABULARY - 1)
logprobs = st.floats(max_value=0.0, allow_infinity=False, allow_nan=False)
odd_ids = ids | st.sampled_from([-1, VOCABULARY, MASKED, 2**31 - 1, -(2**31)])
odd_logprobs = st.floats() | st.sampled_from([0.0, -0.0, 1.0, 1e-3, math.nan, math.inf, -math.inf])


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[int], list[int], list[float]]:
    """Tokens, masks and logprobs as they are to be, or with something else somewhere."""
    tokens = draw(st.lists(ids, min_size=1, max_size=6))
    prompt = draw(st.integers(0, len(tokens) - 1))
    masks = [MASKED] * prompt + tokens[prompt:]
    own = draw(st.lists(logprobs, min_size=len(tokens) - prompt, max_size=len(tokens) - prompt))
    columns: tuple[Any, Any, Any] = (tokens, masks, [1.0] * prompt + own)
    for column, odd in zip(columns, (odd_ids, odd_ids, odd_logprobs), strict=True):
        at = draw(st.integers(0, len(column)))
        kind = draw(st.sampled_from(["as it is"] * 3 + ["another", "more", "fewer"]))
        if kind != "as it is":
            column[at : at + (kind != "more")] = [draw(odd)] if kind != "fewer" else []
    return columns


def in_lists(tokens: Any, masks: Any, row: Any) -> dict[str, Any]:
    return {
        "tokens": [tokens],
        "masks": [masks],
        "inference_logprobs": [row],
        "scores": [1.0],
        "overrides": [{}],
    }


def arrays_of(tokens: Any, masks: Any, row: Any) -> dict[str, Any]:
    return in_lists(array("i", tokens), array("i", masks), array("d", row))


def said(group: dict[str, Any]) -> str | None:
    return fault(group, rows=1, vocabulary=VOCABULARY, is_sound_row=is_sound_row)


@given(rows())
def test_a_row_of_arrays_has_the_fault_that_it_has_as_lists(row: Any) -> None:
    assert said(arrays_of(*row)) == said(in_lists(*row))
    assert said({**arrays_of(*row), "inference_logprobs": []}) == said(
        {**in_lists(*row), "inference_logprobs": []}
    )


def test_a_sound_row_of_arrays_is_known_to_be_sound_and_one_of_lists_is_not() -> None:
    row = ([1, 2, 3], [MASKED, 2, 3], [1.0, -0.5, 0.0])
    [tokens], [masks], [logprobs], *_ = arrays_of(*row).values()
    assert is_sound_row(tokens, masks, logprobs, VOCABULARY)
    assert is_sound_row(tokens, masks, None, VOCABULARY)
    assert not is_sound_row(*row, VOCABULARY)
    assert not is_sound_row(array("d", tokens), masks, logprobs, VOCABULARY)
    assert not is_sound_row(tokens, masks, array("i", [0, 0, 0]), VOCABULARY)


@given(rows())
def test_a_group_of_arrays_is_written_as_lists_are_with_logprobs_of_nine_digits(row: Any) -> None:
    def written(group: dict[str, Any]) -> Any:
        try:
            return json.loads(pack(group))
        except ValueError as error:
            return str(error)

    *ids, logprobs = row
    shortened = nine_digits(array("d", logprobs))
    assert written(arrays_of(*row)) == written(in_lists(*ids, shortened))


@given(st.lists(st.just(0.0) | st.floats(max_value=-(2**-46), width=32, allow_infinity=False)))
def test_nine_digits_tell_the_logprobs_of_float32_apart(logprobs: list[float]) -> None:
    assert [float(np.float32(p)) for p in nine_digits(array("d", logprobs))] == logprobs


@given(st.lists(st.floats(-1e8, 0.0)))
def test_a_rounded_logprob_is_short_and_close(logprobs: list[float]) -> None:
    for one, own in zip(nine_digits(array("d", logprobs)), logprobs, strict=True):
        assert len(Decimal(repr(one)).normalize().as_tuple().digits) <= 9
        assert one == pytest.approx(own, rel=5.1e-9, abs=1e-22)
        assert one <= 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_in_an_array_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        pack(arrays_of([1], [1], [bad]))


def test_what_is_neither_json_nor_an_array_is_refused() -> None:
    with pytest.raises(TypeError, match="Object of type set is not JSON serializable"):
        pack({**arrays_of([1], [1], [-1.0]), "messages": {1}})
    assert as_list(array("d", [0.5])) == [0.5]


@given(st.lists(odd_ids))
def test_tokens_are_trained_on_that_are_not_masked(masks: list[int]) -> None:
    expected = sum(mask != MASKED for mask in masks)
    assert trained_tokens(masks) == trained_tokens(array("i", masks)) == expected
    text = completion_from_tokens("", [], masks, [0.0] * len(masks), finish_reason="stop")
    assert text.completion_tokens == expected


@given(rows(), st.sampled_from(["stop", "length", "abort"]))
def test_what_is_made_arrays_is_sound_and_what_is_not_is_doubted(row: Any, reason: str) -> None:
    tokens, _, given_logprobs = row
    sound = (
        len(tokens) == len(given_logprobs) <= ASK.max_tokens
        and all(0 <= token < VOCABULARY for token in tokens)
        and all(math.isfinite(p) and p <= 1e-3 for p in given_logprobs)
        and reason != "abort"
    )
    try:
        made = in_arrays(Sampled(tokens, given_logprobs, reason), ASK)
    except ReplyError:
        assert not sound
        return
    assert sound
    assert (list(made.tokens), made.finish_reason) == (tokens, reason)
    assert list(made.logprobs) == [min(p, 0.0) for p in given_logprobs]


@pytest.mark.parametrize("token", [2**31, 2**32, 2**32 + 5, -(2**32) + 5, 2**64 + 5])
def test_an_id_that_would_be_another_in_fewer_bits_is_doubted(token: int) -> None:
    with pytest.raises((OverflowError, ReplyError)):
        in_arrays(Sampled([token], [-0.5], "stop"), ASK)


def test_a_completion_of_a_servers_tokens_is_spliced_with_its_prompt() -> None:
    made = completion_from_tokens("so", (5, 6), [7, 8, 9], [-0.5, 0.0, -1.5], finish_reason="stop")
    assert list(made.tokens) == [5, 6, 7, 8, 9]
    assert list(made.masks) == [MASKED, MASKED, 7, 8, 9]
    assert made.logprobs is not None
    assert list(made.logprobs) == [1.0, 1.0, -0.5, 0.0, -1.5]
    assert made.completion_tokens == 3
    assert {*COLUMNS} == {"tokens", "masks", "inference_logprobs"}
