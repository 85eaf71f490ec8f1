"""The single-answer rule: a table of cases with their reasons, and what holds for any text."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.records import FORMAT_FAILURES, Status
from reasoning_gym_environment.scoring.extraction import (
    Extraction,
    extract_answer,
    split_thought,
)

CASES = json.loads(
    (Path(__file__).parent / "extraction_cases.json").read_text(encoding="utf-8")
)

TAGS = ("<think>", "</think>", "<answer>", "</answer>", "</THINK>", "<Answer>")
PIECES = (
    *TAGS,
    "<",
    ">",
    "/",
    "think",
    "ans",
    "wer>",
    "<answer ",
    " ",
    "\n",
    "4",
    "é",
    "\u212a",
)
MEGABYTE = 1_000_000

anything = st.text() | st.lists(st.sampled_from(PIECES)).map("".join)


def without_tags(text: str) -> str:
    """The same text with every tag made harmless."""
    return text.replace(">", "")


tagless = anything.map(without_tags)
answers = tagless.filter(str.strip)
thoughts = st.lists(st.sampled_from([*PIECES, "<THINK>"]) | st.text()).map(
    lambda pieces: "".join(piece for piece in pieces if piece.lower() != "</think>")
)


def test_the_answer_is_what_the_rule_says() -> None:
    for case in CASES:
        expected = case.get("answer"), case.get("status")
        assert extract_answer(case["text"])[:2] == expected, case["why"]


@given(anything)
def test_any_text_gives_either_an_answer_or_a_format_failure(text: str) -> None:
    answer, failure, detail = extract_answer(text)
    if answer is None:
        assert failure in FORMAT_FAILURES
        assert detail
    else:
        assert failure is None
        assert answer
        assert answer == answer.strip()


@given(anything)
def test_a_text_without_a_whole_pair_of_tags_has_no_answer(text: str) -> None:
    assert extract_answer(text.replace("/", ""))[:2] == (None, Status.NO_ANSWER)


@given(thought=thoughts, before=tagless, answer=answers, after=tagless)
def test_a_well_formed_reply_gives_exactly_its_stripped_answer(
    thought: str, before: str, answer: str, after: str
) -> None:
    reply = f"<think>{thought}</think>{before}<answer>{answer}</answer>{after}"
    assert extract_answer(reply) == Extraction(answer.strip(), None)


@given(thought=thoughts, first=answers, between=tagless, second=tagless)
def test_a_second_answer_makes_it_several(
    thought: str, first: str, between: str, second: str
) -> None:
    reply = f"<think>{thought}</think><answer>{first}</answer>{between}"
    assert extract_answer(reply).answer == first.strip()
    both = extract_answer(f"{reply}<answer>{second}</answer>")
    assert both[:2] == (None, Status.SEVERAL_ANSWERS)


@given(thought=thoughts, rest=anything)
def test_what_a_closed_thought_holds_never_matters(thought: str, rest: str) -> None:
    with_thought = extract_answer(f"<think>{thought}</think>{rest}")
    assert with_thought[:2] == extract_answer(f"<think></think>{rest}")[:2]


@given(thought=tagless, rest=tagless)
def test_a_thought_opened_in_the_prompt_is_cut_like_any_other(
    thought: str, rest: str
) -> None:
    assert split_thought(f"{thought}</think>{rest}") == (thought, rest)
    assert split_thought(f"<think>{thought}</think>{rest}") == (thought, rest)


@given(rest=tagless, thought=thoughts)
def test_everything_after_an_unclosed_tag_is_thought(rest: str, thought: str) -> None:
    found_thought, found_rest = split_thought(f"{rest}<think>{thought}")
    assert found_rest == rest
    assert found_thought == thought.replace("<think>", "").replace("<THINK>", "")


@pytest.mark.parametrize(
    ("piece", "then", "expected"),
    [
        ("<think>", "<answer>4</answer>", (None, Status.NO_ANSWER)),
        ("</think>", "<answer>4</answer>", ("4", None)),
        ("<think></think>", "<answer>4</answer>", ("4", None)),
        ("<think", "<answer>4</answer>", ("4", None)),
        ("<", "<answer>4</answer>", ("4", None)),
        (" ", "<answer>4</answer>", ("4", None)),
        ("<answer>4</answer>", "", (None, Status.SEVERAL_ANSWERS)),
        ("<answer>", "4</answer>", (None, Status.SEVERAL_ANSWERS)),
    ],
)
def test_a_megabyte_is_read_to_its_end(
    piece: str, then: str, expected: tuple[str | None, Status | None]
) -> None:
    """Quadratic work would take an hour here."""
    assert extract_answer(piece * (MEGABYTE // len(piece)) + then)[:2] == expected


def test_the_detail_says_why_there_is_no_answer() -> None:
    for text, detail in (
        (" \n", "the completion is empty"),
        ("It is four.", "no <answer>…</answer>"),
        ("<answer> </answer>", "nothing between the answer tags"),
        ("<answer>4", "an answer tag without its pair"),
        ("<think><answer>4</answer></think>So", "the answer tags are in the thought"),
        (
            "<think><answer>4</answer>",
            "the answer tags are in the thought, which never ends",
        ),
        (
            "<answer>4</answer> or <answer>5</answer>",
            "4 answer tags outside the thought instead of one <answer>…</answer>",
        ),
    ):
        assert extract_answer(text).detail == detail
