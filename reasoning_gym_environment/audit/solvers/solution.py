"""What a solver returns, and what is checked where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class UnreadableQuestionError(ValueError):
    """A question does not have the form that its solver reads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    """The answers that the text of a question admits.

    Attributes:
        accepts: returns whether an answer's text is right, under any defensible reading.
        right: right answers, in each form that the question allows; empty if none exists.
        wrong: answers that are nearly right.
        ambiguous: why the text has readings whose answers differ; empty if it has one reading.
    """

    accepts: Callable[[str], bool]
    right: Sequence[str]
    wrong: Sequence[str] = ()
    ambiguous: str = ""


Solver = Callable[[str], Solution]
"""Solves a question from its text alone; raises UnreadableQuestionError if it can't read it."""


def _unchecked(entry: Mapping[str, Any]) -> str:
    return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Property:
    """What is checked of a task that no solver covers.

    Attributes:
        reason: why there is no solver.
        checked: the property, as a noun phrase; empty if nothing is checked.
        violation: of an entry of the library; returns what is wrong, empty if nothing.
    """

    reason: str
    checked: str = ""
    violation: Callable[[Mapping[str, Any]], str] = _unchecked


def exactly(*answers: str, wrong: Sequence[str] = (), ambiguous: str = "") -> Solution:
    """Return a solution that accepts these texts alone, but for surrounding white space."""
    known = {answer.strip() for answer in answers}
    return Solution(
        accepts=lambda text: text.strip() in known, right=answers, wrong=wrong, ambiguous=ambiguous
    )
