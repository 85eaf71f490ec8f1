"""Checks of items of the category logic."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from ...records import Fault
from .faults import Entry, ambiguous, false_label, unanswerable


def aiw(entry: Entry) -> Fault | None:
    """Find siblings of a person never introduced, and the colleagues of the second circle."""
    question = entry["question"]
    sibling = re.search(r"^(\w+) has .* does (\w+)'s brother have", question)
    if sibling:
        if sibling[1] != sibling[2]:
            return unanswerable(f"{sibling[2]} is not introduced")
        return None
    first_women, *second_women = map(int, re.findall(r"(\d+) female", question))
    if second_women and entry["answer"] != str(first_women + second_women[0] - 1):
        return false_label(f"right: {first_women} - 1 + {second_women[0]} - 1 + 1")
    return None


def circuit_logic(entry: Entry) -> Fault | None:
    """Find the final gate that is not drawn, and exclusive ors with two readings that differ.

    The label takes XOR of three and more inputs as odd parity. It is also read as exactly one.
    """
    metadata = entry["metadata"]
    terms = metadata["term_strings"]
    final = metadata["final_gate"]
    if len(terms) == 1 and final == "NOR":
        return false_label("the final gate, which changes the output, is not drawn")
    gates: Mapping[str, Callable[[Sequence[bool]], bool]] = {
        "&": all,
        "↑": lambda inputs: not all(inputs),
        "⊕": lambda inputs: sum(inputs) == 1,
        "AND": all,
        "OR": any,
        "NOR": lambda inputs: not any(inputs),
        "XOR": lambda inputs: sum(inputs) == 1,
    }
    outputs = []
    for term in terms:
        symbol = next((symbol for symbol in "&↑⊕" if symbol in term), None)
        if symbol is None:
            return None  # with one input, the term does not name its gate
        outputs.append(
            gates[symbol](
                [
                    metadata["assignments"][name.rstrip("'")] != name.endswith("'")
                    for name in term.split(symbol)
                ]
            )
        )
    if gates[final](outputs) == (entry["answer"] == "1"):
        return None
    return ambiguous("XOR may ask for an odd number of inputs or for exactly one")


def _table(tokens: Iterator[str], variables: Mapping[str, int], full: int) -> int:
    """Return the truth table of a formula in full parentheses, one bit a row."""
    token = next(tokens)
    if token == "¬":
        return full ^ _table(tokens, variables, full)
    if token != "(":
        return variables[token]
    left_table = _table(tokens, variables, full)
    connective = next(tokens)
    right_table = _table(tokens, variables, full)
    next(tokens)
    if connective == "→":
        return full ^ left_table | right_table
    if connective == "↔":
        return full ^ left_table ^ right_table
    return left_table & right_table if connective == "∧" else left_table | right_table


def propositional_logic(entry: Entry) -> Fault | None:
    """Find premises from which anything or nothing new follows, and false examples.

    What follows from one premise alone, or if any variable is true, is no conclusion of all.
    Where the library finds no conclusion in a hundred tries, its example is the first variable.
    """
    premises = entry["metadata"]["premises"]
    example = entry["metadata"]["example_answer"]
    names = sorted(set(re.findall("[A-Z]", "".join([*premises, example]))))
    size = 2 ** len(names)
    full = 2**size - 1
    variables = {
        name: full // (2 ** (2 ** (place + 1)) - 1) * (2 ** (2**place) - 1)
        for place, name in enumerate(names)
    }
    premise_tables = [
        _table(iter(premise.replace(" ", "")), variables, full) for premise in premises
    ]
    premises_table = reduce(operator.and_, premise_tables)
    if not premises_table:
        return unanswerable("the premises contradict one another: anything follows")
    if premises_table == full:
        return unanswerable("only tautologies follow")
    if premises_table in premise_tables:
        return unanswerable("all that follows is in one premise")
    any_variable = reduce(
        operator.or_,
        (table for name, table in variables.items() if name in "".join(premises)),
    )
    if premises_table == any_variable:
        return unanswerable("all that follows is that a variable is true")
    if premises_table & ~_table(iter(example.replace(" ", "")), variables, full):
        return false_label(f"the example {example} does not follow")
    return None


class _Categorical(NamedTuple):
    """A statement of a syllogism, such as `Some cats are not dogs`."""

    quantifier: str
    subject: str
    negated: str
    predicate: str

    @property
    def terms(self) -> set[str]:
        return {self.subject, self.predicate}

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


def syllogism(entry: Entry) -> Fault | None:
    """Judge a conclusion by the rules of quality and distribution."""
    statements = re.findall(r"(All|No|Some) (\w+) are (not )?(\w+)", entry["question"])
    first_premise, second_premise, conclusion = (
        _Categorical(*statement) for statement in statements
    )
    premises = [first_premise, second_premise]
    used = [premise for premise in premises if premise.terms == conclusion.terms]
    used = used or premises
    distributed = set().union(*(premise.distributed for premise in used))
    middle = first_premise.terms & second_premise.terms
    follows = (
        sum(premise.negative for premise in used) == conclusion.negative
        and conclusion.distributed <= distributed
        and (len(used) == 1 or middle <= distributed)
    )
    if (
        follows
        and conclusion.particular
        and not any(premise.particular for premise in used)
    ):
        source = used[0].subject if not conclusion.negative else conclusion.subject
        if (
            len(used) == 2
            or source not in first_premise.inhabited | second_premise.inhabited
        ):
            return ambiguous("the conclusion follows only if no kind is empty")
    if follows == (entry["answer"] == "Yes"):
        return None
    return false_label(f"the conclusion {'follows' if follows else 'does not follow'}")
