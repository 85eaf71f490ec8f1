"""Checks of single items: labels that are false, and questions with no or several right answers.

Each check takes well under a millisecond and runs beside the generator. The solvers of
`audit.solvers` prove that no faulty item passes; neither uses the other's code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..records import Fault, FaultKind

Entry = Mapping[str, Any]
"""An entry of the library: question, answer and metadata."""


class _Categorical(NamedTuple):
    """A statement of a syllogism, such as `Some cats are not dogs`."""

    quantifier: str
    subject: str
    negated: str
    predicate: str

    @property
    def negative(self) -> bool:
        return self.quantifier == "No" or bool(self.negated)

    @property
    def particular(self) -> bool:
        return self.quantifier == "Some"

    @property
    def distributed(self) -> set[str]:
        """The terms of which the statement speaks as a whole."""
        subject = set() if self.particular else {self.subject}
        return subject | ({self.predicate} if self.negative else set())

    @property
    def inhabited(self) -> set[str]:
        """The terms that have members if the statement is true, without existential import."""
        if not self.particular:
            return set()
        return {self.subject} if self.negative else {self.subject, self.predicate}


_CATEGORICAL = re.compile(r"(All|No|Some) (\w+) are (not )?(\w+)")


def _syllogism(entry: Entry) -> Fault | None:
    """Judge a conclusion by the rules of quality and distribution."""
    first, second, conclusion = (
        _Categorical(*found) for found in _CATEGORICAL.findall(entry["question"])
    )
    terms = {conclusion.subject, conclusion.predicate}
    used = [each for each in (first, second) if {each.subject, each.predicate} == terms]
    used = used or [first, second]
    distributed = set().union(*(each.distributed for each in used))
    middle = {first.subject, first.predicate} & {second.subject, second.predicate}
    follows = (
        sum(each.negative for each in used) == conclusion.negative
        and conclusion.distributed <= distributed
        and (len(used) == 1 or middle <= distributed)
    )
    if follows and conclusion.particular and not any(each.particular for each in used):
        source = used[0].subject if not conclusion.negative else conclusion.subject
        if len(used) == 2 or source not in first.inhabited | second.inhabited:
            return Fault(
                kind=FaultKind.AMBIGUOUS, detail="the conclusion follows only if no kind is empty"
            )
    if follows == (entry["answer"] == "Yes"):
        return None
    return Fault(
        kind=FaultKind.FALSE_LABEL,
        detail=f"the conclusion {'follows' if follows else 'does not follow'}",
    )


CHECKS: Mapping[str, Callable[[Entry], Fault | None]] = {"syllogism": _syllogism}
"""The check of each task that is known to make faulty items."""


def find_fault(task: str, entry: Entry) -> Fault | None:
    """Return the fault of an item, or None if there is none."""
    check = CHECKS.get(task)
    return check(entry) if check else None
