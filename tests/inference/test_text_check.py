"""Token ids that are not those of the server's text are noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.inference.errors import ReplyError
from reasoning_gym_environment.inference.text_check import (
    COMPARED_EVERY,
    FIRST_COMPLETIONS,
    TextCheck,
    contradicts,
)


@given(text=st.text(), tail=st.sampled_from(["", "\ufffd", " ", "\n\n"]))
def test_a_text_never_contradicts_itself(text: str, tail: str) -> None:
    assert not contradicts(text, text + tail)
    assert not contradicts(f" {text}", text)


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("The answer is 42.", ""),
        ("", "The answer is 42."),
        ("The answer is 42.", "!!!!~~ Qué hôtel 世界 zzz"),
        ("<think>six times seven</think>42", "wwwwwwwwwwwwwwwwwwwwwwwwww"),
    ],
)
def test_another_text_is_refused_with_both(text: str, decoded: str) -> None:
    with pytest.raises(
        ReplyError, match="http://here contradicts itself: its token ids"
    ):
        TextCheck().require_same("http://here", text, decoded)


def test_the_first_completions_are_compared_and_then_some() -> None:
    check = TextCheck()
    due = [check.is_due("http://here") for _ in range(4 * COMPARED_EVERY)]
    assert all(due[:FIRST_COMPLETIONS])
    assert sum(due) == FIRST_COMPLETIONS + 3
    assert check.is_due("http://there")
