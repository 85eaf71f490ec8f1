"""Probes (the answers that the audit tries), findings, and the findings to expect."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from statistics import median

from ..records import UPSTREAM_THRESHOLD, Status, Verdict
from ..tasks.facts import PAYS_ANY_ANSWER, Floors
from ..util.values import group_by
from .ladder_proof import LevelProof

TOLERATED_SHARE = 0.1
"""Share of the items that a wrong text may solve: on some it has the right value ("0.5", "1/2")."""


class Kind(str, Enum):
    """Kind of an answer that the audit tries."""

    ORACLE = "oracle"
    FORM = "form"
    EMPTY = "empty"
    JUNK = "junk"
    CONSTANT = "constant"
    OTHER = "other item's answer"
    QUESTION = "question"
    LISTING = "several answers"
    APPENDED = "text appended"
    DENIED = "denied answer"
    HEDGED = "hedged answer"


DEGENERATE = tuple(k for k in Kind if k not in (Kind.ORACLE, Kind.FORM))
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
HEDGES = ("maybe {}", "{}, I guess", "{} or something else")
FORMS = (" {} ", "**{}**", "${}$", r"\boxed{{{}}}", "{}.", "```\n{}\n```")


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
        *("0", "1", "-1", "2", "10", "0.", "0.5", "1/2", "nan", "inf", "NaN", "[NaN]", "1e9"),
        *("yes", "no", "Yes", "No", "true", "false", "True", "False", "A", "a", "6*4*1*1"),
        "P \N{LOGICAL OR} Q",
    )
    return tuple(dict.fromkeys([*general, *frequent]))


def oracle_probes(oracle: str) -> list[Probe]:
    """Return probes with the right answer: plain, in common forms, denied and in doubt."""
    return [
        Probe(kind=Kind.ORACLE, label="oracle", answer=oracle, is_right=True),
        *(
            Probe(
                kind=kind,
                label=form.format("x"),
                answer=form.format(oracle),
                is_right=kind is Kind.FORM,
            )
            for kind, forms in (
                (Kind.FORM, FORMS),
                (Kind.DENIED, DENIALS),
                (Kind.HEDGED, HEDGES),
            )
            for form in forms
        ),
    ]


def constant_probes(constants: Sequence[str], oracle: str | None) -> list[Probe]:
    """Return the probes that are the same for every item."""
    texts = [(Kind.EMPTY, EMPTY), (Kind.JUNK, JUNK), (Kind.CONSTANT, constants)]
    right = None if oracle is None else oracle.strip()
    return [
        Probe(kind=kind, label=text, answer=text, is_right=text.strip() == right)
        for kind, group in texts
        for text in group
    ]


def listing_probes(oracle: str, alternatives: Sequence[str]) -> list[Probe]:
    """Return probes with the right answer among other answers, or with text after it."""
    noise = Probe(kind=Kind.APPENDED, label="answer, then junk", answer=f"{oracle} {JUNK[0]}")
    others = [text for text in dict.fromkeys(alternatives) if text.strip() != oracle.strip()]
    if not others:
        return [noise]
    everything = sorted({oracle, *others[:10]})
    listings = {
        "two, by 'or'": f"{oracle} or {others[0]}",
        "two, by comma": f"{oracle}, {others[0]}",
        "two, by newline": f"{oracle}\n{others[0]}",
        "wrong one first": f"{others[0]} {oracle}",
        "all, by comma": ", ".join(everything),
        "all, by newline": "\n".join(everything),
    }
    return [
        noise,
        *(Probe(kind=Kind.LISTING, label=k, answer=text) for k, text in listings.items()),
    ]


def probes_for(
    question: str, oracle: str | None, *, constants: Sequence[str], others: Sequence[str]
) -> list[Probe]:
    """Return all probes of one item; `oracle` is None where several answers are right."""
    probes = constant_probes(constants, oracle)
    probes.append(Probe(kind=Kind.QUESTION, label="question", answer=question))
    for other in others[:1]:
        right = oracle is not None and other.strip() == oracle.strip()
        label = Kind.OTHER.value
        probes.append(Probe(kind=Kind.OTHER, label=label, answer=other, is_right=right))
    if oracle is None:
        return probes
    return [*oracle_probes(oracle), *probes, *listing_probes(oracle, others)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """Why a finding is expected, and on which levels; None means everywhere."""

    reason: str
    levels: Collection[int | None] | None = None


KnownFindings = Mapping[str, Mapping[str, Known]]
"""Findings to expect, by task and kind."""


def explanation(known: KnownFindings, task: str, kind: str, level: int | None) -> str:
    """Return why a finding is expected, or an empty text."""
    entry = known.get(task, {}).get(kind)
    if entry is None or (entry.levels is not None and level not in entry.levels):
        return ""
    return entry.reason


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
    """Return what verifiers are known to pay for behind the environment's screen and guards."""
    # Kind, tasks and reason; without one it is the task's known weakness.
    table: Sequence[tuple[str, str, str | None]] = (
        (
            "no oracle",
            "boxnet graph_color propositional_logic rubiks_cube rush_hour",
            "Several answers are right, and the entry has none.",
        ),
        (
            Kind.CONSTANT.value,
            "largest_island polynomial_equations power_function propositional_logic"
            " rectangle_count",
            None,
        ),
        (Kind.OTHER.value, "polynomial_equations rectangle_count", None),
        ("generation", "intermediate_integration", "Some oracles hold an unevaluated Integral."),
        (
            Kind.APPENDED.value,
            "acre arc_1d list_functions manipulate_matrix number_filtering rotate_matrix"
            " string_splitting string_synthesis word_sequence_reversal",
            "The right answer and other words earn its share of the length.",
        ),
        (
            Kind.APPENDED.value,
            "futoshiki gsm_symbolic kakurasu knights_knaves mini_sudoku sudoku survo"
            " time_intervals",
            "The answer is right and complete; the verifier ignores what follows.",
        ),
        (Kind.APPENDED.value, "word_sorting", "Extra words cost their share."),
        (Kind.APPENDED.value, "quantum_lock sokoban", None),
        (
            Kind.LISTING.value,
            "advanced_geometry futoshiki gsm_symbolic time_intervals",
            "Only the first answer counts.",
        ),
        (Kind.LISTING.value, "polynomial_equations", "An extra solution costs part of the score."),
        (Kind.LISTING.value, "sokoban", None),
        (
            Kind.HEDGED.value,
            "acre advanced_geometry arc_1d basic_arithmetic futoshiki gsm_symbolic kakurasu"
            " knights_knaves list_functions manipulate_matrix mini_sudoku number_filtering products"
            " quantum_lock rotate_matrix sokoban string_splitting string_synthesis sudoku survo"
            " time_intervals word_sequence_reversal word_sorting",
            "An answer in doubt is one answer; the words around it cost their share, or nothing.",
        ),
    )
    known: defaultdict[str, dict[str, Known]] = defaultdict(dict)
    for kind, tasks, reason in table:
        for task in tasks.split():
            why = reason or f"Accepted: {known_weaknesses()[task]}."
            known[task][kind] = Known(reason=why)
    known["gsm_symbolic"]["oracle"] = Known(
        reason="The oracle is wrong on one item in 65.", levels={None}
    )
    for task, reason in PAYS_ANY_ANSWER.items():
        known[task] = {kind.value: Known(reason=reason) for kind in DEGENERATE}
    return dict(known)


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """The verdict on one probe of one item."""

    probe: Probe
    verdict: Verdict

    @property
    def score(self) -> float:
        return self.verdict.score or 0.0

    @property
    def solved(self) -> bool:
        return self.score >= UPSTREAM_THRESHOLD


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """The share of the items that a probe solves, and its mean score."""

    label: str
    items: int
    solved: float
    score: float

    @property
    def is_finding(self) -> bool:
        # On a small sample, one or two solved items are luck.
        return self.solved > TOLERATED_SHARE and round(self.solved * self.items) >= 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A fault of a task; `explanation` is empty unless the finding is expected."""

    task: str
    kind: str
    detail: str
    level: int | None = None
    explanation: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskAudit:
    """The audit of one task.

    Attributes:
        oracle: share of the items whose own answer has full credit; None without such answers.
        degenerate: the best probe of each kind in `DEGENERATE`, over the items where it is wrong.
        forms: by form, the share of the items on which the right answer keeps full credit.
        levels: the default configuration first.
        median_seconds, worst_seconds: to score right answers, over all levels.
        unseen: kinds of expected findings that are missing.
    """

    task: str
    category: str
    items: int
    oracle: float | None
    degenerate: Mapping[str, Share]
    floors: Floors
    forms: Mapping[str, float]
    levels: Sequence[LevelProof]
    median_seconds: float
    worst_seconds: float
    findings: Sequence[Finding]
    unseen: Sequence[str] = ()


def wrong_shares(observations: Iterable[Observation]) -> list[Share]:
    """Return the share of each label over the items where the probe is wrong, best first."""
    wrong = [one for one in observations if not one.probe.is_right]
    found = [
        Share(
            label=label,
            items=len(group),
            solved=sum(one.solved for one in group) / len(group),
            score=sum(one.score for one in group) / len(group),
        )
        for label, group in group_by(lambda one: one.probe.label, wrong).items()
    ]
    return sorted(found, key=lambda share: (-share.solved, -share.score))


def of_kind(observations: Iterable[Observation], *kinds: Kind) -> list[Observation]:
    return [one for one in observations if one.probe.kind in kinds]


def answer_findings(
    task: str, observations: Sequence[Observation], degenerate: Mapping[str, Share]
) -> list[Finding]:
    """Return the findings about answers: degenerate ones that pay, verifiers that fail."""
    findings = []
    for kind, best in degenerate.items():
        if best.is_finding:
            detail = f"{best.label!r} solves {best.solved:.0%}, mean score {best.score:.2f}"
            findings.append(Finding(task=task, kind=kind, detail=detail))
    deaths = (Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.CRASHED)
    killed = [one for one in observations if one.verdict.status in deaths]
    if killed:
        labels = sorted({f"{o.probe.kind.value} ({o.verdict.status.value})" for o in killed})
        detail = f"{len(killed)} answers: {', '.join(labels)}"
        findings.append(Finding(task=task, kind="killed", detail=detail))
    oracles = of_kind(observations, Kind.ORACLE)
    raising = [one for one in oracles if one.verdict.errors]
    if raising:
        detail = f"the verifier raises on {len(raising)} of {len(oracles)} right answers"
        findings.append(Finding(task=task, kind="raises", detail=detail))
    if empty := sum(not one.probe.answer.strip() for one in oracles):
        detail = f"{empty} of {len(oracles)} right answers are empty: they can't be given"
        findings.append(Finding(task=task, kind="empty oracle", detail=detail))
    return findings


def level_findings(task: str, levels: Iterable[LevelProof]) -> list[Finding]:
    """Return the findings about levels: no items, no right answer, a wrong one."""
    findings = []
    for at in levels:
        items, none, below = len(at.problems), at.without_oracle, len(at.wrong_oracles)
        problems = {
            "generation": next(iter(at.errors), ""),
            "no oracle": f"{none} of {items} items have none" if none else "",
            "oracle": f"{below} of {items} score below 1" if below else "",
        }
        findings += [
            Finding(task=task, kind=kind, detail=detail, level=at.level)
            for kind, detail in problems.items()
            if detail
        ]
    return findings


def judge(
    task: str,
    category: str,
    observations: Sequence[Observation],
    levels: Sequence[LevelProof],
    *,
    floors: Floors,
    known: KnownFindings,
) -> TaskAudit:
    """Return the audit of a task from the observations on its default items and its levels."""
    shares = {kind: wrong_shares(of_kind(observations, kind)) for kind in DEGENERATE}
    degenerate = {kind.value: found[0] for kind, found in shares.items() if found}
    oracles = of_kind(observations, Kind.ORACLE)
    forms = group_by(lambda one: one.probe.label, of_kind(observations, Kind.FORM))
    seconds = [verdict.seconds for proof in levels for verdict in proof.verdicts]
    findings = [
        replace(one, explanation=explanation(known, task, one.kind, one.level))
        for one in answer_findings(task, observations, degenerate) + level_findings(task, levels)
    ]
    return TaskAudit(
        task=task,
        category=category,
        items=len(levels[0].problems),
        oracle=_full(oracles) if oracles else None,
        degenerate=degenerate,
        floors=floors,
        forms={label: _full(group) for label, group in forms.items()},
        levels=levels,
        median_seconds=median(seconds) if seconds else 0.0,
        worst_seconds=max(seconds, default=0.0),
        findings=findings,
        unseen=sorted(known.get(task, {}).keys() - {finding.kind for finding in findings}),
    )


def _full(observations: Sequence[Observation]) -> float:
    return sum(one.score >= 1.0 for one in observations) / len(observations)
