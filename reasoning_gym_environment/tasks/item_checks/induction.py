"""Checks of items of the category induction."""

from __future__ import annotations

import re

from ...records import Fault
from .faults import Entry, ambiguous


def list_functions(entry: Entry) -> Fault | None:
    """Find counts where each example may also say whether there is any."""
    outputs = set(re.findall(r"Output \d: (.*)", entry["question"]))
    if outputs <= {"[0]", "[1]"} and entry["answer"] not in ("[0]", "[1]"):
        return ambiguous("each example fits a count, and whether there is any")
    if len(_sums_below_a_bound(entry["question"])) > 1:
        return ambiguous("the examples leave open which elements are summed")
    return None


def _sums_below_a_bound(question: str) -> set[int]:
    """Return what the rule "the sum of the elements below a bound" gives for the question.

    One sum for each bound that fits all examples; none if the examples need no bound.
    """
    numbers = r"\[(\d+(?:, \d+)*)\]"
    examples = [
        ([*map(int, inputs.split(", "))], int(total))
        for inputs, total in re.findall(
            rf"Input \d+: {numbers}\nOutput \d+: \[(\d+)\]\n", question
        )
    ]
    question_input = re.search(rf"\nInput: {numbers}\n", question)
    example_count = question.count("Output ")
    leaves_out = any(0 < total < sum(inputs) for inputs, total in examples)
    if not question_input or not leaves_out or len(examples) < example_count:
        return set()
    elements = [*map(int, question_input[1].split(", "))]
    bounds = {n + 1 for inputs, _ in examples for n in inputs} | {
        n + 1 for n in elements
    }
    return {
        sum(n for n in elements if n < bound)
        for bound in bounds
        if all(
            sum(n for n in inputs if n < bound) == total for inputs, total in examples
        )
    }
