"""What a group must be before it is sent, each fault with the words that name it."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from reasoning_gym_environment.atropos.validation import fault


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


def said(**changes: Any) -> str | None:
    return fault(group(**changes), rows=2, vocabulary=10)


def test_a_sound_group_has_no_fault() -> None:
    assert said() is None
    assert said(inference_logprobs=[]) is None


def test_a_row_without_a_trained_token_is_sound_where_its_advantage_is_zero() -> None:
    masks = [[-100] * 4, [-100, -100, 5, 6]]
    assert said(masks=masks) == "row 0 has no trained token"
    assert said(masks=masks, overrides=[{"set_advantage_to_zero": True}, {}]) is None


@pytest.mark.parametrize("name", ["tokens", "masks", "scores", "overrides", "inference_logprobs"])
def test_every_column_has_all_rows(name: str) -> None:
    assert said(**{name: group()[name][:1]}) == f"1 rows of {name} where 2 belong"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"masks": [[-100, 3, 4], [-100, -100, 5, 6]]}, "row 0 has 4 tokens and 3 masks"),
        (
            {"inference_logprobs": [[1.0] * 4, [1.0, 1.0, -0.5]]},
            "row 0 has the logprob 1.0 of a trained token, above 0",
        ),
        (
            {"inference_logprobs": [[1.0, 1.0, -0.5, -0.5], [1.0, 1.0, -0.5]]},
            "row 1 has 4 tokens and 3 logprobs",
        ),
        ({"masks": [[-100, -100, 3, 5], [-100] * 4]}, "row 0 has the mask 5, neither -100"),
        ({"scores": [math.nan, 0.0]}, "nan is no score"),
        ({"scores": [1.0, None]}, "None is no score"),
    ],
)
def test_a_fault_is_named(changes: dict[str, Any], words: str) -> None:
    assert (said(**changes) or "").startswith(words)


@pytest.mark.parametrize("token", [-1, 10, 3.0, "3", None, True])
def test_a_token_is_an_id_of_the_vocabulary(token: Any) -> None:
    tokens = [[1, 2, 3, 4], [1, 2, 5, token]]
    assert said(tokens=tokens) == (
        f"row 1 has {token!r} among its tokens, no id of a vocabulary of 10"
    )


@pytest.mark.parametrize("logprob", [math.nan, math.inf, -math.inf, None, "x", True])
def test_a_logprob_is_a_finite_number_on_the_prompt_as_well(logprob: Any) -> None:
    rows: list[Callable[[], list[Any]]] = [
        lambda: [logprob, 1.0, -0.5, -0.5],
        lambda: [1.0, 1.0, -0.5, logprob],
    ]
    for row in rows:
        logprobs = [row(), [1.0, 1.0, -0.5, -0.5]]
        assert said(inference_logprobs=logprobs) == f"row 0 has the logprob {logprob!r}"
