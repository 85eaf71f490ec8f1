"""What `strip_formatting` takes off, and what it leaves."""

import pytest

from reasoning_gym_environment.scoring.extraction import strip_formatting


@pytest.mark.parametrize(
    "answer",
    [
        "**42**",
        "$42$",
        "$$42$$",
        r"\boxed{42}",
        "```\n42\n```",
        "```python\n42\n```",
        "```42```",
        "42.",
        "Answer: 42",
        "answer:42",
        "Final answer: 42",
        "The answer is 42",
        "The final answer is: 42.",
        "**Answer:** 42",
        "**Answer**: 42",
        "**Answer: 42**",
        "**Answer:** **42**",
        r"The answer is $\boxed{\boxed{42}}$.",
        "```\nThe answer is:\n\n**42.**\n```",
        " **42** ",
    ],
)
def test_the_form_around_an_answer_is_taken_off(answer: str) -> None:
    assert strip_formatting(answer) == "42"


@pytest.mark.parametrize(
    "answer",
    [
        "",
        ".",
        "**",
        "****",
        "$$",
        "``````",
        "Answer:",
        "The answer is",
        r"\boxed{}",
        "42",
        " 42 ",
        "a\nb\n",
        "**a** and **b**",
        "$a$ and $b$",
        r"\boxed{a} and \boxed{b}",
        r"\boxed{a",
        "```\na\n``` and ```\nb\n```",
        "2**3",
        "$5",
        "answered: 42",
        "The answer island",
        "3.14",
        "and so on...",
    ],
)
def test_an_answer_without_form_around_it_is_unchanged(answer: str) -> None:
    assert strip_formatting(answer) == answer


@pytest.mark.parametrize("answer", ["**.**", "Answer: Answer:", r"\boxed{\boxed{}}", "$.$", " . "])
def test_something_is_always_left(answer: str) -> None:
    assert strip_formatting(answer).strip()


def test_lines_within_the_answer_stay_as_they_are() -> None:
    assert strip_formatting("```\n1 2\n 3 4\n```") == "1 2\n 3 4"


@pytest.mark.parametrize(
    "answer",
    [
        "**Answer:** " * 40_000 + "1",
        r"\boxed{" * 40_000 + "1" + "}" * 40_000,
        r"\boxed{" * 40_000 + "1." + "}." * 40_000,
    ],
    ids=["words", "boxes", "stops"],
)
def test_deep_nesting_is_taken_off_whole(answer: str) -> None:
    assert strip_formatting(answer) == "1"


def test_taking_off_twice_changes_nothing_more() -> None:
    answer = "**Answer:** `$x$`. Answer: **y**."
    assert strip_formatting(strip_formatting(answer)) == strip_formatting(answer)
