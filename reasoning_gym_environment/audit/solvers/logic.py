"""Solvers of tasks: logic."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from .solution import Property, Solution, Solver, UnreadableQuestionError, exactly

_STATEMENT = re.compile(r"(All|No|Some) (\w+) are (not )?(\w+)")


def _holds(statement: Sequence[str], people: Iterable[frozenset[str]]) -> bool:
    quantifier, subject, negated, predicate = statement
    fits = [(predicate in kinds) != bool(negated) for kinds in people if subject in kinds]
    return {"All": all(fits), "No": not any(fits), "Some": any(fits)}[quantifier]


def syllogism(question: str) -> Solution:
    """Solve by every choice of the Venn regions that are inhabited."""
    statements = _STATEMENT.findall(question)
    if len(statements) < 2 or "Does it logically follow that" not in question:
        raise UnreadableQuestionError("no premise and conclusion")
    *premises, conclusion = statements
    nouns = sorted({noun for each in statements for noun in (each[1], each[3])})
    regions = [
        frozenset(noun for noun, inside in zip(nouns, membership, strict=True) if inside)
        for membership in product((False, True), repeat=len(nouns))
    ]
    follows = {"modern": True, "traditional": True}
    for inhabited in product((False, True), repeat=len(regions)):
        people = [region for region, someone in zip(regions, inhabited, strict=True) if someone]
        if all(_holds(each, people) for each in premises) and not _holds(conclusion, people):
            follows["modern"] = False
            if set().union(*people) >= set(nouns):
                follows["traditional"] = False
    answers = {"Yes" if each else "No" for each in follows.values()}
    return exactly(
        *sorted(answers),
        wrong=sorted({"Yes", "No"} - answers),
        ambiguous="follows only if no kind is empty" if len(answers) > 1 else "",
    )


SOLVERS: Mapping[str, Solver] = {"syllogism": syllogism}

PROPERTIES: Mapping[str, Property] = {}
