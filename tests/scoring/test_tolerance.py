"""What `strip_formatting` takes off and leaves, and which texts are the same number."""

from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.scoring.extraction import (
    less_formatted,
    strip_formatting,
)
from reasoning_gym_environment.scoring.notation import is_same_number


def test_the_form_around_an_answer_is_taken_off() -> None:
    for answer in (
        *(
            "**42**",
            "$42$",
            "$$42$$",
            r"\boxed{42}",
            r"\text{42}",
            r"\mathrm{42}",
            r"$\boxed{\textbf{42}}$",
            "*42*",
            "***42***",
            "__42__",
            "• 42",
            "* 42",
            "The result is 42.",
            "```\n42\n```",
            "```python\n42\n```",
        ),
        *(
            "```42```",
            "42.",
            "Answer: 42",
            "answer:42",
            "Final answer: 42",
            "The answer is 42",
        ),
        *(
            "The final answer is: 42.",
            "**Answer:** 42",
            "**Answer**: 42",
            "**Answer: 42**",
        ),
        *("**Answer:** **42**", r"The answer is $\boxed{\boxed{42}}$.", " **42** "),
        "```\nThe answer is:\n\n**42.**\n```",
    ):
        assert strip_formatting(answer) == "42", answer


def test_an_answer_without_form_around_it_is_unchanged() -> None:
    for answer in (
        *(
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
        ),
        *(
            " 42 ",
            "a\nb\n",
            "**a** and **b**",
            "$a$ and $b$",
            r"\boxed{a} and \boxed{b}",
        ),
        *(r"\boxed{a", "```\na\n``` and ```\nb\n```", "2**3", "$5", "answered: 42"),
        *(
            "The answer island",
            "**x**2** and **y**2**",
            "**a**b",
            "3.14",
            "and so on...",
            "*a* and *b*",
            "_a_",
            "__init__ is a method",
            "*2 + 3",
            r"\text{a} and \text{b}",
        ),
    ):
        assert strip_formatting(answer) == answer


def test_something_is_always_left() -> None:
    for answer in ("**.**", "Answer: Answer:", r"\boxed{\boxed{}}", "$.$", " . "):
        assert strip_formatting(answer).strip(), answer


def test_powers_do_not_end_bold_text() -> None:
    assert strip_formatting("**x**2 + (x + 1)**(3/2)**") == "x**2 + (x + 1)**(3/2)"
    assert strip_formatting("*-x**2*y + 1*") == "-x**2*y + 1"
    assert strip_formatting("**" + "x**" * 100_000 + "x**") == "x**" * 100_000 + "x"


def test_marks_are_taken_off_one_by_one() -> None:
    assert less_formatted(r"The answer is **$\boxed{\text{Yes.}}$**.") == [
        r"**$\boxed{\text{Yes.}}$**.",
        r"**$\boxed{\text{Yes.}}$**",
        r"$\boxed{\text{Yes.}}$",
        r"\boxed{\text{Yes.}}",
        r"\text{Yes.}",
        "Yes.",
        "Yes",
    ]
    assert less_formatted("plain") == []
    deep = less_formatted("**Answer:** " * 40_000 + "1")
    assert len(deep) < 10
    assert deep[-1] == "1"


def test_lines_within_the_answer_stay_as_they_are() -> None:
    assert strip_formatting("```\n1 2\n 3 4\n```") == "1 2\n 3 4"


def test_deep_nesting_is_taken_off_whole() -> None:
    boxes, ends = r"\boxed{" * 40_000 + "1", 40_000
    for answer in (
        "**Answer:** " * 40_000 + "1",
        boxes + "}" * ends,
        boxes + "." + "}." * ends,
    ):
        assert strip_formatting(answer) == "1"


def test_taking_off_twice_changes_nothing_more() -> None:
    answer = "**Answer:** `$x$`. Answer: **y**."
    assert strip_formatting(strip_formatting(answer)) == strip_formatting(answer)


def test_forms_of_one_number_are_the_same() -> None:
    tiny = "0.1000000000000000000000000000000000001"
    for answer, oracle in (
        *(
            ("185.0", "185"),
            ("185.", "185"),
            ("+185", "185"),
            ("0185", "185"),
            (" 185\n", "185"),
        ),
        *(
            ("1,850", "1850"),
            ("-1,234,567.50", "-1234567.5"),
            ("\N{MINUS SIGN}5", "-5"),
            ("١٨٥", "185"),
        ),
        *((".5", "0.50"), ("1.85E+2", "185"), ("-0", "0")),
        (tiny, "1000000000000000000000000000000000001e-37"),
    ):
        assert is_same_number(answer, oracle)
        assert is_same_number(oracle, answer)


def test_other_numbers_expressions_and_words_are_not_the_same_number() -> None:
    others = (
        *(
            "185.0000000000000000000000000000000000001",
            "-185",
            "370/2",
            "185°",
            "x = 185",
        ),
        *("185 or 186", "1,85", "18,5", ",185", "1_85", "0xb9", "--185"),
    )
    for answer, oracle in (
        *((other, "185") for other in others),
        *(("1e1000", "1" + "0" * 1000), ("0" * 1000 + "1", "1"), ("nan", "nan")),
        *(("Infinity", "Infinity"), ("", ""), (".", "."), ("e5", "e5"), ("Yes", "Yes")),
    ):
        assert not is_same_number(answer, oracle)
        assert not is_same_number(oracle, answer)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6), st.integers(0, 6))
def test_every_form_of_a_number_is_the_same(number: Decimal, zeros: int) -> None:
    plain = f"{number:f}"
    assert is_same_number(f"{number:,f}" + "0" * zeros, plain)
    assert is_same_number(f"{number:.{len(plain)}e}", plain)
    assert not is_same_number(f"{number:f}1", plain)


@given(st.text(), st.text())
def test_no_text_breaks_the_comparison_of_numbers(answer: str, oracle: str) -> None:
    assert is_same_number(answer, oracle) == is_same_number(oracle, answer)
    assert not is_same_number(answer, oracle) or Fraction(
        answer.strip().replace(",", "").replace("\N{MINUS SIGN}", "-")
    ) == Fraction(oracle.strip().replace(",", "").replace("\N{MINUS SIGN}", "-"))
