"""Answers in boxes: a table of cases with their reasons, and what holds for any text."""

import json
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.records import FORMAT_FAILURES
from reasoning_gym_environment.scoring.extraction import (
    AnswerFormat,
    as_completion,
    extract_answer,
    label_fault,
    last_box,
    shortest_reply,
)

FORMATS: tuple[AnswerFormat, ...] = get_args(AnswerFormat)
CASES = json.loads(
    (Path(__file__).parent / "box_cases.json").read_text(encoding="utf-8")
)
PIECES = (
    *("\\boxed{", "\\boxed", "\\boxed {", "\\fbox{", "boxed{", "{", "}", "\\", "\\{"),
    *("<think>", "</think>", "<answer>", "</answer>", "<ANSWER>", "4", " ", "\n", "é"),
)
anything = st.text() | st.lists(st.sampled_from(PIECES)).map("".join)
braceless = st.text().filter(lambda text: not set(text) & set("{}\\<>|[◁"))
MEGABYTE = 1_000_000
BOXES = 100_000


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_the_answer_is_what_the_format_says(case: dict[str, str]) -> None:
    for answer_format in FORMATS:
        answer, failure, _ = extract_answer(case["text"], answer_format)
        assert answer == case[answer_format], answer_format
        if failure is not None and answer_format != "boxed":
            assert failure.value == case.get("status", "no_answer")


@given(anything)
def test_any_text_gives_either_an_answer_without_tags_or_a_format_failure(
    text: str,
) -> None:
    for answer_format in FORMATS:
        answer, failure, detail = extract_answer(text, answer_format)
        if answer is None:
            assert failure in FORMAT_FAILURES
            assert detail
        else:
            assert failure is None
            assert answer == answer.strip() != ""
            assert "<answer>" not in answer.lower()


@given(anything)
def test_either_format_gives_what_the_one_that_decides_gives(text: str) -> None:
    tags, boxed, either = (extract_answer(text, f) for f in FORMATS)
    assert either in (tags, boxed)
    if tags.answer is not None:
        assert either == tags


@given(before=braceless, answer=braceless.filter(str.strip), after=braceless)
def test_the_last_box_is_the_answer_whatever_stands_around_it(
    before: str, answer: str, after: str
) -> None:
    reply = rf"{before}\boxed{{{before}}}\boxed{{{answer}}}{after}"
    assert extract_answer(reply, "boxed").answer == answer.strip()


@given(thought=anything, rest=braceless)
def test_no_box_of_a_thought_counts(thought: str, rest: str) -> None:
    inside = thought.replace("<", "")
    assert extract_answer(f"<think>{inside}</think>{rest}", "boxed").answer is None


@pytest.mark.parametrize(
    "piece",
    ["\\boxed{", "{", "}", "\\", "\\{", "\\boxed", "\\boxed ", " ", "\\boxed{}", "{}"],
)
@pytest.mark.parametrize("answer_format", ["boxed", "tags-or-boxed"])
def test_a_hostile_reply_is_read_in_linear_time(
    piece: str, answer_format: AnswerFormat
) -> None:
    """Quadratic work on a megabyte would take an hour."""
    text = piece * (MEGABYTE // len(piece))
    assert extract_answer(f"{text} \\boxed{{4}}", answer_format).answer == "4"


def test_a_hundred_thousand_boxes_in_each_other_are_one() -> None:
    inner = "\\boxed{" * BOXES + "4" + "}" * BOXES
    assert last_box(inner) == inner.removeprefix("\\boxed{").removesuffix("}")


def test_the_detail_says_why_no_box_has_an_answer() -> None:
    for text, detail in (
        ("", "the completion is empty"),
        ("It is four.", "no \\boxed{…}"),
        ("\\boxed{ }", "nothing in the last box"),
        ("\\boxed{4", "the last box is never closed"),
        ("<think>\\boxed{4}</think>So", "the boxes are in the thought"),
        ("<think>\\boxed{4}", "the boxes are in the thought, which never ends"),
        ("\\boxed{<answer>4</answer>}", "an answer tag in the last box"),
    ):
        assert extract_answer(text, "boxed").detail == detail


def test_a_label_is_faulty_if_no_completion_of_the_format_can_give_it() -> None:
    for label, faulty in {
        '{"a": "}"}': {"boxed"},
        "C:\\": {"boxed"},
        "a</answer>b": {"tags", "boxed", "tags-or-boxed"},
        '{"a": {}}': set(),
        "12 ": set(),
    }.items():
        unanswerable = {f for f in FORMATS if label_fault(label, f) is not None}
        assert unanswerable == faulty, label


@given(answer=anything)
def test_a_bare_answer_becomes_a_completion_that_gives_it(answer: str) -> None:
    for answer_format in FORMATS:
        reply = shortest_reply(answer, answer_format)
        if label_fault(answer, answer_format) is None:
            assert extract_answer(reply, answer_format).answer == answer.strip()


@pytest.mark.parametrize(
    ("text", "answer_format", "expected"),
    [
        ("4", "boxed", "\\boxed{4}"),
        ("<think>\\boxed{3}</think>4", "boxed", "\\boxed{4}"),
        ("It is \\boxed{4}.", "boxed", "It is \\boxed{4}."),
        ("It is \\boxed{4", "boxed", "It is \\boxed{4"),
        ("It is \\boxed{4}.", "tags", "<answer>It is \\boxed{4}.</answer>"),
        ("It is \\boxed{4}.", "tags-or-boxed", "It is \\boxed{4}."),
        ("4", "tags-or-boxed", "<answer>4</answer>"),
        ("<answer>4</answer>", "boxed", "\\boxed{<answer>4</answer>}"),
    ],
)
def test_what_is_no_completion_of_the_format_is_a_bare_answer(
    text: str, answer_format: AnswerFormat, expected: str
) -> None:
    assert as_completion(text, answer_format) == expected
