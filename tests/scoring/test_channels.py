"""The table of channels: the first marker of a text decides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.scoring.channels import (
    CHANNELS,
    Channel,
    in_channels,
    in_think_tags,
    join_reasoning,
    opened_thought,
    split_thought,
)
from reasoning_gym_environment.scoring.extraction import extract_answer

ROWS = pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.name)
WORDS = [
    "a",
    "<answer>4</answer>",
    "<|channel|>",
    "<|message|>",
    "final",
    "<|end|>",
    *(marker for one in CHANNELS for marker in (one.opens, one.closes)),
]


@ROWS
def test_each_family_marks_its_thoughts(channel: Channel) -> None:
    opens, closes = channel.opens, channel.closes
    assert split_thought(f"{opens}a{closes}b") == ("a", "b")
    assert split_thought(f"a{closes}b") == ("a", "b")
    assert split_thought(f"b{opens}a") == ("a", "b")
    assert split_thought(f"{opens}a{closes}b{opens}c{closes}d") == ("ac", "b\nd")
    assert opened_thought(f"<s>user …{opens}\n") == opens
    assert opened_thought(f"{opens}{closes}") == ""


@ROWS
def test_another_familys_marker_in_a_thought_changes_nothing(channel: Channel) -> None:
    for other in CHANNELS:
        if other is not channel:
            text = f"{channel.opens}a{other.closes}b{channel.closes}c"
            assert split_thought(text) == (f"a{other.closes}b", "c")


@ROWS
def test_a_thought_in_its_own_field_is_put_back(channel: Channel) -> None:
    prompt = f"…{channel.opens}"
    assert join_reasoning(prompt, "a", "b") == f"a{channel.closes}b"
    assert join_reasoning(prompt, "a", "") == "a"
    assert join_reasoning("…", "a", "b") == "<think>a</think>b"
    assert join_reasoning(prompt, None, "b") == "b"


def test_harmony_has_its_reply_in_one_channel() -> None:
    whole = in_channels("is it <answer>5</answer>? </think>", "<answer>4</answer>")
    assert extract_answer(whole).answer == "4"
    assert extract_answer(f"<|start|>assistant{whole}").answer == "4"
    truncated = whole.partition("<|end|>")[0]
    assert extract_answer(truncated).answer is None
    commentary = "<|channel|>commentary to=x<|message|><answer>5</answer><|call|>"
    assert extract_answer(commentary + whole).answer == "4"
    assert in_think_tags("no channel") == "no channel"


@given(st.lists(st.sampled_from(WORDS), max_size=12).map("".join))
def test_every_text_is_split_into_what_it_holds(text: str) -> None:
    thought, rest = split_thought(text)
    assert len(thought) + len(rest.replace("\n", "")) <= len(text)
    assert (thought + rest).count("a") <= text.count("a")


@given(st.text(), st.text(), st.sampled_from(CHANNELS))
def test_any_thought_is_told_from_any_reply(
    thought: str, reply: str, channel: Channel
) -> None:
    marked = f"{channel.opens}{thought}{channel.closes}{reply}"
    assert split_thought(marked) == (thought, reply)
