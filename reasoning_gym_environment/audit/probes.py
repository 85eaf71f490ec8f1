r"""Which answers the audit tries on every task.

Probes are tried on many items, so each has a label that is the same for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """What an answer that is tried stands for."""

    ORACLE = "oracle"
    FORM = "form"
    EMPTY = "empty"
    JUNK = "junk"
    CONSTANT = "constant"
    OTHER = "other item's answer"
    QUESTION = "question"
    LISTING = "several answers"
    APPENDED = "text appended"


DEGENERATE = tuple(kind for kind in Kind if kind not in (Kind.ORACLE, Kind.FORM))
"""What no verifier should pay for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """One answer to one item.

    Attributes:
        label: names the probe across items; the answer itself where that is always the same.
        is_right: the text is the oracle's.
    """

    kind: Kind
    label: str
    answer: str
    is_right: bool = False


EMPTY = ("", " ", ".", "-", "[]", "{}", "()", '""', "None", "null")
JUNK = ("asdf qwer", "I don't know", "?", "x", "zzzzzzzz", "lorem ipsum dolor sit amet")
CONSTANTS = (
    *("0", "1", "-1", "2", "10", "0.", "0.5", "1/2", "nan", "inf", "NaN", "[NaN]", "1e9"),
    *("yes", "no", "Yes", "No", "true", "false", "True", "False", "A", "a", "6*4*1*1"),
    "P \N{LOGICAL OR} Q",
)
FORMS = (" {} ", "**{}**", "${}$", r"\boxed{{{}}}", "{}.", "```\n{}\n```")

_FREQUENT = 6
_LISTED = 10
_NOISE = "asdf qwer"


def constants_for(oracles: Iterable[str]) -> tuple[str, ...]:
    """Choose the constants tried on a task: the general ones, and its most frequent answers.

    Args:
        oracles: of items that the constants are not tried on.

    Example:
        >>> constants_for(["7", "8", "7"])[-2:]
        ('7', '8')
    """
    frequent = [oracle for oracle, _ in Counter(oracles).most_common(_FREQUENT)]
    return tuple(dict.fromkeys([*CONSTANTS, *frequent]))


def oracle_probes(oracle: str) -> list[Probe]:
    """Try the right answer as it is, and in the forms that people put around it."""
    as_it_is = Probe(kind=Kind.ORACLE, label="oracle", answer=oracle, is_right=True)
    forms = [
        Probe(kind=Kind.FORM, label=form.format("x"), answer=form.format(oracle), is_right=True)
        for form in FORMS
    ]
    return [as_it_is, *forms]


def constant_probes(constants: Sequence[str], oracle: str | None) -> list[Probe]:
    """Try the same texts on every item."""
    texts = [(Kind.EMPTY, EMPTY), (Kind.JUNK, JUNK), (Kind.CONSTANT, constants)]
    right = None if oracle is None else oracle.strip()
    return [
        Probe(kind=kind, label=text, answer=text, is_right=text.strip() == right)
        for kind, group in texts
        for text in group
    ]


def listing_probes(oracle: str, alternatives: Sequence[str]) -> list[Probe]:
    """Try the right answer with others beside it, or with text after it."""
    noise = Probe(kind=Kind.APPENDED, label="answer, then junk", answer=f"{oracle} {_NOISE}")
    others = [text for text in dict.fromkeys(alternatives) if text.strip() != oracle.strip()]
    if not others:
        return [noise]
    everything = sorted({oracle, *others[:_LISTED]})
    listings = {
        "two, by 'or'": f"{oracle} or {others[0]}",
        "two, by comma": f"{oracle}, {others[0]}",
        "two, by newline": f"{oracle}\n{others[0]}",
        "wrong one first": f"{others[0]} {oracle}",
        "all, by comma": ", ".join(everything),
        "all, by newline": "\n".join(everything),
    }
    kind = Kind.LISTING
    return [noise, *(Probe(kind=kind, label=k, answer=text) for k, text in listings.items())]


def probes_for(
    question: str, oracle: str | None, *, constants: Sequence[str], others: Sequence[str]
) -> list[Probe]:
    """List all that is tried on one item.

    Args:
        oracle: None where several answers are right.
        others: the oracles of other items; the first is tried as an answer.
    """
    probes = constant_probes(constants, oracle)
    probes.append(Probe(kind=Kind.QUESTION, label="question", answer=question))
    if others:
        right = oracle is not None and others[0].strip() == oracle.strip()
        kind = Kind.OTHER
        probes.append(Probe(kind=kind, label=kind.value, answer=others[0], is_right=right))
    if oracle is None:
        return probes
    return [*oracle_probes(oracle), *probes, *listing_probes(oracle, others)]
