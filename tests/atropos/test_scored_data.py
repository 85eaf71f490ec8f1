"""A group is sent only if it is sound, and its JSON says what the group says."""

import json
import math
from array import array
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_values import ODD, places, with_value

from reasoning_gym_environment.atropos.rows import (
    COLUMNS,
    group_error,
    nine_digits,
    pack,
    trained_tokens,
)
from reasoning_gym_environment.inference.finish_reasons import read_ending
from reasoning_gym_environment.inference.prompts import completion_from_tokens
from reasoning_gym_environment.records import IGNORE_INDEX

VOCABULARY = 10

ids = st.integers(0, VOCABULARY - 1)
logprobs = st.floats(max_value=0.0, allow_infinity=False, allow_nan=False)
odd_ids = ids | st.sampled_from([-1, VOCABULARY, IGNORE_INDEX, 2**31 - 1, -(2**31)])
odd_logprobs = st.floats() | st.sampled_from(
    [0.0, -0.0, 1.0, 1e-3, math.nan, math.inf, -math.inf]
)


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[int], list[int], list[float]]:
    """Tokens, masks and logprobs as they are to be, or with something else somewhere."""
    tokens = draw(st.lists(ids, min_size=1, max_size=6))
    prompt = draw(st.integers(0, len(tokens) - 1))
    masks = [IGNORE_INDEX] * prompt + tokens[prompt:]
    own = draw(
        st.lists(logprobs, min_size=len(tokens) - prompt, max_size=len(tokens) - prompt)
    )
    columns: tuple[Any, Any, Any] = (tokens, masks, [1.0] * prompt + own)
    for column, odd in zip(columns, (odd_ids, odd_ids, odd_logprobs), strict=True):
        at = draw(st.integers(0, len(column)))
        kind = draw(st.sampled_from(["as it is"] * 3 + ["another", "more", "fewer"]))
        if kind != "as it is":
            column[at : at + (kind != "more")] = [draw(odd)] if kind != "fewer" else []
    return columns


def in_lists(tokens: Any, masks: Any, row: Any) -> dict[str, Any]:
    columns = {"tokens": [tokens], "masks": [masks], "inference_logprobs": [row]}
    return {**columns, "scores": [1.0], "overrides": [{}]}


def arrays_of(tokens: Any, masks: Any, row: Any) -> dict[str, Any]:
    return in_lists(array("i", tokens), array("i", masks), array("d", row))


def said(group: dict[str, Any]) -> str | None:
    return group_error(group, rows=1, vocabulary=VOCABULARY)


def is_sound(tokens: list[Any], masks: list[Any], row: list[Any] | None) -> bool:
    """What `group_error` says of one row, number by number."""
    ids = all(type(token) is int and 0 <= token < VOCABULARY for token in tokens)
    labels = all(
        type(mask) is int and mask in (IGNORE_INDEX, token)
        for token, mask in zip(tokens, masks, strict=False)
    )
    sound = (
        len(tokens) == len(masks) and ids and labels and bool({*masks} - {IGNORE_INDEX})
    )
    if row is None or not sound:
        return sound
    finite = all(type(p) in (int, float) and math.isfinite(p) for p in row)
    trained = [p for mask, p in zip(masks, row, strict=False) if mask != IGNORE_INDEX]
    return len(row) == len(tokens) and finite and max(trained) <= 0


@given(rows())
def test_a_group_is_sound_if_each_of_its_numbers_is_in_lists_and_in_arrays(
    row: Any,
) -> None:
    assert (said(in_lists(*row)) is None) == is_sound(*row)
    assert said(arrays_of(*row)) == said(in_lists(*row))
    without = {**in_lists(*row), "inference_logprobs": []}
    assert (said(without) is None) == is_sound(*row[:2], None)
    assert said({**arrays_of(*row), "inference_logprobs": []}) == said(without)


@given(rows(), st.integers(0, 2), ODD)
def test_an_odd_row_is_sound_only_if_its_numbers_are(
    row: Any, column: int, odd: Any
) -> None:
    row[column].insert(0, odd)
    assert (said(in_lists(*row)) is None) <= is_sound(*row)


def group(**changes: Any) -> dict[str, Any]:
    """Two rows of two prompt tokens and two trained ones."""
    return {
        "tokens": [[1, 2, 3, 4], [1, 2, 5, 6]],
        "masks": [[-100, -100, 3, 4], [-100, -100, 5, 6]],
        "scores": [1.0, 0.0],
        "overrides": [{}, {}],
        "inference_logprobs": [[1.0, 1.0, -0.5, 0.0], [1.0, 1.0, -0.5, -2]],
        **changes,
    }


def fault_of(**changes: Any) -> str | None:
    return group_error(group(**changes), rows=2, vocabulary=VOCABULARY)


def test_a_sound_group_has_no_fault() -> None:
    assert fault_of() is None
    assert fault_of(inference_logprobs=[]) is None


def test_a_row_without_a_trained_token_is_sound_where_its_advantage_is_zero() -> None:
    masks = [[-100] * 4, [-100, -100, 5, 6]]
    assert fault_of(masks=masks) == "row 0 has no trained token"
    assert (
        fault_of(masks=masks, overrides=[{"set_advantage_to_zero": True}, {}]) is None
    )


def test_every_column_has_all_rows() -> None:
    for name, rows_of_it in group().items():
        assert fault_of(**{name: rows_of_it[:1]}) == f"1 rows of {name}, expected 2"


def test_a_fault_is_named() -> None:
    whole = [1.0, 1.0, -0.5, -0.5]
    above_0 = "row 0 has the logprob 1.0 of a trained token, above 0"
    for changes, words in (
        (
            {"masks": [[-100, 3, 4], [-100, -100, 5, 6]]},
            "row 0 has 4 tokens and 3 masks",
        ),
        ({"inference_logprobs": [[1.0] * 4, whole[:3]]}, above_0),
        (
            {"inference_logprobs": [whole, whole[:3]]},
            "row 1 has 4 tokens and 3 logprobs",
        ),
        (
            {"masks": [[-100, -100, 3, 5], [-100] * 4]},
            "row 0 has the mask 5, neither -100",
        ),
        ({"scores": [math.nan, 0.0]}, "nan is not a score"),
        ({"scores": [1.0, None]}, "None is not a score"),
        ({"scores": [True, 0.0]}, "True is not a score"),
    ):
        assert (fault_of(**changes) or "").startswith(words), words


def test_a_token_is_an_id_of_the_vocabulary() -> None:
    for token in (-1, 10, 3.0, "3", None, True):
        assert fault_of(tokens=[[1, 2, 3, 4], [1, 2, 5, token]]) == (
            f"row 1 has {token!r} among its tokens, not an id of a vocabulary of 10"
        )


def test_a_logprob_is_a_finite_number_on_the_prompt_as_well() -> None:
    for logprob in (math.nan, math.inf, -math.inf, None, "x", True):
        for row in ([logprob, 1.0, -0.5, -0.5], [1.0, 1.0, -0.5, logprob]):
            logprobs = [row, [1.0, 1.0, -0.5, -0.5]]
            assert (
                fault_of(inference_logprobs=logprobs)
                == f"row 0 has the logprob {logprob!r}"
            )


GROUP: dict[str, Any] = {
    "tokens": [[1, 2, 3], [1, 2, 2**70]],
    "masks": [[-100, -100, 3], [-100, 2, 4]],
    "inference_logprobs": [[1.0, 1.0, -0.0], [1.0, -5e-324, -1.7976931348623157e308]],
    "scores": [1.0, 0.25],
    "overrides": [{}, {"set_advantage_to_zero": True}],
    "generation_params": {"temperature": 0.7, "seed": 2**70},
    "messages": [[{"role": "user", "content": "\u65e5 \U0001f389 \x00\n"}]],
    "group_overrides": None,
    "env_id": 3,
}


def strict(body: Any) -> bytes:
    return json.dumps(body, allow_nan=False, ensure_ascii=False).encode()


def packed(body: Any, write: Callable[[Any], bytes] = pack) -> Any:
    """What is read of what was written; the kind of error where it can't be written."""
    try:
        return json.loads(write(body))
    except (TypeError, ValueError) as error:
        return type(error).__name__


def test_a_group_is_written_whole_and_a_column_may_be_all_there_is_or_empty() -> None:
    assert packed(GROUP) == GROUP
    assert repr(packed(GROUP)["inference_logprobs"][0][2]) == "-0.0"
    for name in COLUMNS:
        assert packed({name: GROUP[name]}) == {name: GROUP[name]}
        assert packed({**GROUP, name: []}) == {**GROUP, name: []}


@given(data=st.data())
def test_anything_beside_columns_is_written_as_by_the_standard_library(
    data: st.DataObject,
) -> None:
    place = data.draw(
        st.sampled_from([p for p in places(GROUP) if p[0] not in COLUMNS])
    )
    body = with_value(GROUP, place, data.draw(ODD))
    assert packed(body) == packed(body, strict)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused_wherever_it_is(bad: float) -> None:
    places = [("inference_logprobs", 1, 2), ("tokens", 0, 0), ("scores", 0)]
    for place in [*places, ("generation_params", "seed")]:
        with pytest.raises(ValueError, match="not JSON"):
            pack(with_value(GROUP, place, bad))
    with pytest.raises(ValueError, match="not JSON"):
        pack(arrays_of([1], [1], [bad]))


def test_half_of_a_surrogate_pair_and_what_is_neither_json_nor_an_array_are_refused() -> (
    None
):
    with pytest.raises(ValueError, match="surrogates not allowed"):
        pack(with_value(GROUP, ("messages", 0, 0, "content"), "a\ud800"))
    with pytest.raises(TypeError, match="set is not JSON serializable"):
        pack({**arrays_of([1], [1], [-1.0]), "messages": {1}})


@given(rows())
def test_a_group_of_arrays_is_written_as_lists_are_with_logprobs_of_nine_digits(
    row: Any,
) -> None:
    def written(group: dict[str, Any]) -> Any:
        try:
            return json.loads(pack(group))
        except ValueError as error:
            return str(error)

    *ids, logprobs = row
    shortened = nine_digits(array("d", logprobs))
    assert written(arrays_of(*row)) == written(in_lists(*ids, shortened))


@given(
    st.lists(
        st.just(0.0) | st.floats(max_value=-(2**-46), width=32, allow_infinity=False)
    )
)
def test_nine_digits_tell_the_logprobs_of_float32_apart(logprobs: list[float]) -> None:
    assert [float(np.float32(p)) for p in nine_digits(array("d", logprobs))] == logprobs


@given(st.lists(st.floats(-1e8, 0.0)))
def test_a_rounded_logprob_is_short_and_close(logprobs: list[float]) -> None:
    for one, own in zip(nine_digits(array("d", logprobs)), logprobs, strict=True):
        assert len(Decimal(repr(one)).normalize().as_tuple().digits) <= 9
        assert one == pytest.approx(own, rel=5.1e-9, abs=1e-22)
        assert one <= 0.0


@given(st.lists(odd_ids))
def test_tokens_are_trained_on_that_are_not_masked(masks: list[int]) -> None:
    expected = sum(mask != IGNORE_INDEX for mask in masks)
    assert trained_tokens(masks) == trained_tokens(array("i", masks)) == expected
    text = completion_from_tokens(
        "", [], masks, [0.0] * len(masks), ending=read_ending("stop")
    )
    assert text.completion_tokens == expected


def test_a_completion_of_a_servers_tokens_is_spliced_with_its_prompt() -> None:
    made = completion_from_tokens(
        "so", (5, 6), [7, 8, 9], [-0.5, 0.0, -1.5], ending=read_ending("stop")
    )
    assert list(made.tokens) == [5, 6, 7, 8, 9]
    assert list(made.masks) == [IGNORE_INDEX, IGNORE_INDEX, 7, 8, 9]
    assert made.logprobs is not None
    assert list(made.logprobs) == [1.0, 1.0, -0.5, 0.0, -1.5]
    assert made.completion_tokens == 3
    assert {*COLUMNS} == {"tokens", "masks", "inference_logprobs"}
