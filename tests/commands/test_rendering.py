"""Rollouts at the terminal: readable and safe with any model text."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_values import attempt, stored

from reasoning_gym_environment.commands.show import (
    abbreviate,
    render_rollout,
)
from reasoning_gym_environment.storage.rows import StoredGroup
from reasoning_gym_environment.util.values import escape_control_characters

UNSAFE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def shown(text: str, *, full: bool = False, score: float | None = 1.0) -> str:
    return render_rollout(
        StoredGroup.from_json(stored(attempt(score, text))), 0, full=full
    )


def test_every_part_is_shown_with_its_name() -> None:
    text = shown("<think>hm</think><answer>4</answer>")
    names = [
        "question",
        "thought",
        "reply",
        "answer",
        "oracle",
        "status",
        "reward",
        "tokens",
    ]
    assert [line.split()[0] for line in text.splitlines()[1:]] == names
    assert text.startswith("── gcd (seed 2), rollout 1 of 1 ──")
    assert "thought   hm\nreply     <answer>4</answer>\nanswer    4\n" in text
    assert (
        "reward    1: verifier 1 (bare 1, tagged not tried), length factor 1\n" in text
    )


def test_the_first_line_keeps_its_place_above_the_others() -> None:
    assert "reply       1 2\n          3 4\n" in shown("\n  1 2\n3 4\n")


def test_the_score_mode_is_part_of_the_reward() -> None:
    row = {**stored(attempt(0.25)), "scoring": {"score_mode": "binary"}}
    assert (
        "reward    0.25: verifier 0.25 (bare 0.25, tagged not tried), mode binary"
        in (render_rollout(StoredGroup.from_json(row), 0, full=False))
    )


def test_a_right_answer_in_another_form_says_what_it_earns() -> None:
    row = stored(attempt(0.25))
    row["rollouts"][0] |= {"status": "solved", "score": 0.5, "length_factor": 0.5}
    assert (
        "reward    0.5: verifier 0.25 (bare 0.25, tagged not tried), right in another form, which "
        "earns 1, length factor 0.5\n"
    ) in render_rollout(StoredGroup.from_json(row), 0, full=False)


def test_a_row_that_pays_though_its_factor_is_zero_is_shown() -> None:
    row = stored(attempt(0.25))
    row["rollouts"][0] |= {"status": "solved", "score": 0.5, "length_factor": 0.0}
    shown_row = render_rollout(StoredGroup.from_json(row), 0, full=False)
    assert "length factor 0\n" in shown_row


def test_an_unscored_rollout_is_shown_as_unscored() -> None:
    assert "0.75: unscored, length factor 1\n" in shown("", score=None)


def test_a_long_thought_is_abbreviated_unless_full_is_set() -> None:
    thought = "begin " + "middle " * 1000 + "end"
    completion = f"<think>{thought}</think><answer>4</answer>"
    assert thought in shown(completion, full=True)
    folded = shown(completion)
    assert "thought   begin middle" in folded
    assert "middle end\nreply" in folded
    assert len(folded) < 2000
    assert "6,409 of 7,009 characters omitted; --full shows them" in folded


@given(st.text(max_size=2000))
def test_abbreviating_never_makes_a_text_longer(text: str) -> None:
    assert len(abbreviate(text)) <= len(text)


def test_the_system_prompt_is_shown_only_with_everything() -> None:
    assert "system    Think.\n" in shown("", full=True)
    assert "Think." not in shown("")


HOSTILE = [
    "\x1b[2J\x1b[31m",
    "\x1b]0;title\x07",
    "\x9b31m",
    "\rstatus    solved",
    "\x08\x08\x08",
    "\u202ereversed",
    "zero\u200bwidth",
    "\u2028status    solved",
    "\ud800",
    "\U000e0041",
    "\x00",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_reaches_the_terminal_as_escapes(text: str) -> None:
    output = shown(f"<think>{text}</think>{text}<answer>{text}</answer>")
    found = {
        character for character in output if unicodedata.category(character) in UNSAFE
    }
    assert found == {"\n"}
    output.encode()


def test_model_text_cant_begin_a_line_of_ours() -> None:
    lines = shown("wrong\nstatus    solved\n── gcd", score=0.0).splitlines()
    assert [line for line in lines if line.startswith("status")] == ["status    wrong"]
    assert len([line for line in lines if line.startswith("──")]) == 1


@given(st.text(st.characters(codec=None)))
def test_line_feeds_and_tabs_are_the_only_unescaped_invisible_characters(
    text: str,
) -> None:
    assert {
        c for c in escape_control_characters(text) if unicodedata.category(c) in UNSAFE
    } <= {
        "\n",
        "\t",
    }


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs"))))
def test_what_can_be_seen_stays_as_it_is(text: str) -> None:
    assert escape_control_characters(text) == text
