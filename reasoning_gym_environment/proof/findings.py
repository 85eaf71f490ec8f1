"""Probes (the answers that a proof tries), findings, and the findings to expect."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Literal

from ..records import Problem, Verdict
from ..scoring.notation import is_same_number
from ..tasks.facts import PAYS_ANY_ANSWER
from ..util.values import shorten


class Kind(str, Enum):
    """Kind of an answer that a proof tries."""

    ORACLE = "oracle"
    FORM = "form"
    EMPTY = "empty"
    JUNK = "junk"
    CONSTANT = "constant"
    OTHER = "other item's answer"
    QUESTION = "question"
    COPY = "copied from the question"
    LISTING = "several answers"
    APPENDED = "text appended"
    DENIED = "denied answer"
    CHANGED = "changed number"
    HEDGED = "hedged answer"
    NEAR_MISS = "near miss"
    REPETITIVE = "repetitive text"
    HOSTILE = "hostile text"


DEGENERATE = tuple(
    kind
    for kind in Kind
    if kind not in (Kind.ORACLE, Kind.FORM, Kind.REPETITIVE, Kind.HOSTILE)
)
"""The kinds that no verifier should pay for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """One answer to one item; the label is the same for all items, and a constant's own text."""

    kind: Kind
    label: str
    answer: str
    is_right: bool = False


EMPTY = ("", " ", ".", "-", "[]", "{}", "()", '""', "None", "null")
JUNK = ("asdf qwer", "I don't know", "?", "x", "zzzzzzzz", "lorem ipsum dolor sit amet")
DENIALS = ("not {}", "It is not {}", "{} (this is wrong)", "{} is incorrect")
CHANGES = ("-({})", "minus {}", "{}/2", "any number but {}", "<del>{}</del>")
"""What makes another number of a positive one."""
HEDGES = ("maybe {}", "{}, I guess", "{} or something else")
FORMS = (" {} ", "**{}**", "${}$", r"\boxed{{{}}}", "{}.", "```\n{}\n```")
REPETITIVE = (
    "1" * 40 + "x",
    "a" * 40 + "!",
    "1," * 20 + "x",
    "1 " * 20 + "x",
    "(" * 40 + "x",
)
"""Texts that a model may write, and that keep a pattern such as `(\\d+)+` busy for ever."""
_IMPORT = "__import__"  # this module imports nothing by text
EXECUTED = (
    _IMPORT + "('time').sleep(2)",
    # For an evaluator without built-in functions; a parser of expressions refuses it at once.
    "[0 for a in ' ' * 9999 for b in ' ' * 9999]",
)
"""Texts that take seconds if they are executed."""
HOSTILE = (
    *EXECUTED,
    _IMPORT + "('os').system('id')",
    "open('/tmp/reasoning-gym-environment', 'w').write('x')",
    "exec('raise SystemExit(0)')",
    "9**9**9**9",
    "9" * 5000,
    "(" * 9999,
    "[" * 99_999,
    "a" * 99_999 + "!",
    "%s%n{}{0}\\",
    "\x00\ud800",
)
"""Texts that stop, break or take over careless verifiers."""


def constants_for(oracles: Iterable[str]) -> tuple[str, ...]:
    """Return the constants to try on a task: the general ones, and its most frequent oracles.

    Args:
        oracles: of items on which the constants are not tried.

    Example:
        >>> constants_for(["7", "8", "7"])[-2:]
        ('7', '8')
    """
    frequent = [oracle for oracle, _ in Counter(oracles).most_common(6)]
    general = (
        *(
            "0",
            "1",
            "-1",
            "2",
            "10",
            "0.",
            "0.5",
            "1/2",
            "nan",
            "inf",
            "NaN",
            "[NaN]",
            "1e9",
        ),
        *(
            "yes",
            "no",
            "Yes",
            "No",
            "true",
            "false",
            "True",
            "False",
            "A",
            "a",
            "6*4*1*1",
        ),
        "P \N{LOGICAL AND} Q",
    )
    return tuple(dict.fromkeys([*general, *frequent]))


def oracle_probes(oracle: str) -> list[Probe]:
    """Return probes with the right answer: plain, in common forms, denied, changed, in doubt."""
    probes = [Probe(kind=Kind.ORACLE, label="oracle", answer=oracle, is_right=True)]
    is_positive = re.fullmatch(r"0*[1-9][0-9]*", oracle.strip()) is not None
    for kind, forms in (
        (Kind.FORM, FORMS),
        (Kind.DENIED, DENIALS),
        (Kind.CHANGED, CHANGES if is_positive else ()),
        (Kind.HEDGED, HEDGES),
    ):
        for form in forms:
            probes.append(
                Probe(
                    kind=kind,
                    label=form.format("x"),
                    answer=form.format(oracle),
                    is_right=kind is Kind.FORM,
                )
            )
    return probes


def constant_probes(constants: Sequence[str], oracle: str | None) -> list[Probe]:
    """Return the probes that are the same for every item."""
    probes = []
    for kind, texts in (
        (Kind.EMPTY, EMPTY),
        (Kind.JUNK, JUNK),
        (Kind.CONSTANT, constants),
    ):
        for text in texts:
            is_right = oracle is not None and is_spelling_of(text, oracle)
            probes.append(Probe(kind=kind, label=text, answer=text, is_right=is_right))
    return probes


def is_spelling_of(text: str, oracle: str) -> bool:
    """Return whether a text is the oracle but for its letter case or the form of its number.

    A verifier may pay such a text, and one that doesn't is no fault either.

    Example:
        >>> is_spelling_of("a", "A"), is_spelling_of("10.0", "10"), is_spelling_of("b", "A")
        (True, True, False)
    """
    same_letters = text.strip().casefold() == oracle.strip().casefold()
    return same_letters or is_same_number(text, oracle)


def listing_probes(oracle: str, alternatives: Sequence[str]) -> list[Probe]:
    """Return probes with the right answer among other answers, or with text after it."""
    noise = Probe(
        kind=Kind.APPENDED, label="answer, then junk", answer=f"{oracle} {JUNK[0]}"
    )
    wrong_texts = [
        text for text in dict.fromkeys(alternatives) if text.strip() != oracle.strip()
    ]
    if not wrong_texts:
        return [noise]
    all_texts = sorted({oracle, *wrong_texts[:10]})
    listings = {
        "two, by 'or'": f"{oracle} or {wrong_texts[0]}",
        "two, by comma": f"{oracle}, {wrong_texts[0]}",
        "two, by newline": f"{oracle}\n{wrong_texts[0]}",
        "wrong one first": f"{wrong_texts[0]} {oracle}",
        "all, by comma": ", ".join(all_texts),
        "all, by newline": "\n".join(all_texts),
    }
    return [
        noise,
        *(
            Probe(kind=Kind.LISTING, label=k, answer=text)
            for k, text in listings.items()
        ),
    ]


def near_misses(oracle: str) -> dict[str, str]:
    """Return texts that are nearly the right answer, by what is wrong with them.

    Example:
        >>> near_misses("42")
        {'without its end': '4', 'another digit': '43', 'two places swapped': '24'}
        >>> near_misses("80.24\N{DEGREE SIGN}")["without its end"]
        '80.2'
    """
    # The question says that the angle is in degrees: the number alone is right.
    value = oracle.removesuffix("\N{DEGREE SIGN}")
    missed = {"without its end": value[: -max(1, len(value) // 8)]}
    digit = re.search(r"[0-9](?=[^0-9]*$)", oracle)
    if digit:
        next_digit = str((int(digit[0]) + 1) % 10)
        missed["another digit"] = (
            oracle[: digit.start()] + next_digit + oracle[digit.end() :]
        )
    pair = re.search(r"(\w)(?!\1)(\w)", oracle)
    if pair:
        swapped = pair[2] + pair[1]
        missed["two places swapped"] = (
            oracle[: pair.start()] + swapped + oracle[pair.end() :]
        )
    return {
        label: text
        for label, text in missed.items()
        if text.strip() not in ("", oracle.strip())
    }


def within(text: str, label: str, tolerance: float) -> bool:
    """Return whether both are numbers, no further apart than the tolerance, relative to the label.

    Example:
        >>> within("101", "100", 0.01), within("102", "100", 0.01), within("a", "a", 0.01)
        (True, False, False)
    """
    try:
        number = float(text)
        right = float(label)
    except ValueError:
        return False
    return abs(number - right) <= tolerance * abs(right)


def probes_for(
    question: str,
    oracle: str | None,
    *,
    constants: Sequence[str],
    others: Sequence[str],
    tolerance: float = 0.0,
) -> list[Probe]:
    """Return all probes of one item; `oracle` is None where the task has none.

    Args:
        tolerance: how far from the oracle, relative to it, a number is right.
    """
    probes = constant_probes(constants, oracle)
    probes.append(Probe(kind=Kind.QUESTION, label="question", answer=question))
    for other_oracle in others[:1]:
        right = oracle is not None and other_oracle.strip() == oracle.strip()
        label = Kind.OTHER.value
        probes.append(
            Probe(
                kind=Kind.OTHER,
                label=label,
                answer=other_oracle,
                is_right=right,
            )
        )
    if oracle is None:
        return probes
    near = [
        Probe(
            kind=Kind.NEAR_MISS,
            label=label,
            answer=text,
            is_right=tolerance > 0 and within(text, oracle, tolerance),
        )
        for label, text in near_misses(oracle).items()
    ]
    return [*oracle_probes(oracle), *probes, *near, *listing_probes(oracle, others)]


FindingVerdict = Literal["failed", "not_checked", "warning"]
"""What a finding makes of its check."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What speaks against a task.

    Attributes:
        check: which of the checks it belongs to.
        example: the question, the answer and the verdict.
        items: how many items show it; 0 if all of a level do.
        explanation: why it is expected of the library's task, or why its author waives it; empty
            if neither.
        verdict: what its check becomes by it.
    """

    check: str
    kind: str
    detail: str
    example: str = ""
    level: int | None = None
    items: int = 1
    explanation: str = ""
    verdict: FindingVerdict = "failed"

    @property
    def name(self) -> str:
        """The name by which an author waives it."""
        return finding_name(self.kind)

    @property
    def shown(self) -> str:
        return f"{self.detail} ({self.items} items)" if self.items > 1 else self.detail


def finding_name(kind: str) -> str:
    """Return the name by which an author waives findings of a kind.

    Example:
        >>> finding_name("other item's answer")
        'other_items_answer'
    """
    return kind.replace("'", "").replace(" ", "_")


WAIVABLE = frozenset(
    map(
        finding_name,
        (
            *(kind.value for kind in DEGENERATE),
            *("labels", "degenerate", "reversed", "same level", "long"),
            *("questions", "answers"),
        ),
    )
)
"""Findings that judge a task, and that its author may know better; all others are facts."""


def shown_example(problem: Problem, answer: str, verdict: Verdict) -> str:
    """Return an example of a finding: the question, the answer and the verdict."""
    label = "" if answer == problem.oracle else f" (label {shorten(problem.oracle)})"
    return (
        f"{shorten(problem.question)} answered {shorten(answer)}{label}: "
        f"{shown_verdict(verdict)}"
    )


def shown_verdict(verdict: Verdict) -> str:
    """Return a verdict as a text."""
    return f"{verdict.status.value} {verdict.score} {verdict.detail}".strip()


KnownFindings = Mapping[str, Mapping[str, str]]
"""Why a finding is expected, by task and kind."""


@cache
def known_weaknesses() -> Mapping[str, str]:
    """Return by task what its verifier still pays for without reasoning, where no guard can help.

    What solves items is measured as the floors are; what earns some, as a mean over 60 default
    items (seeds 0 to 59) or more.
    """
    text = Path(__file__).with_name("known_weaknesses.json").read_text(encoding="utf-8")
    weaknesses: dict[str, str] = json.loads(text)
    return weaknesses


def known_findings() -> KnownFindings:
    """Return what the library's tasks are known to show behind the environment's guards.

    A finding without a reason is its task's known weakness.
    """
    text = Path(__file__).with_name("known_findings.json").read_text(encoding="utf-8")
    reasons: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for row in json.loads(text):
        for task in row["tasks"]:
            accepted = known_weaknesses().get(task)
            reasons[task][row["finding"]] = (
                row.get("reason") or f"Accepted: {accepted}."
            )
    for task, reason in PAYS_ANY_ANSWER.items():
        # Copies of the question are tried on own tasks alone, other numbers where one is right.
        paid = {*DEGENERATE, Kind.HOSTILE} - {Kind.COPY, Kind.CHANGED}
        reasons[task] = {kind.value: reason for kind in paid}
    return reasons
