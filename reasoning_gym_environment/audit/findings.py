"""From the scores of the probes to what is wrong with a task's verifier or its levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ..records import SOLVED_SCORE, Status, Verdict
from ..tasks.chance_floors import Floors
from ..util.grouping import group_by
from .known import Known, explanation
from .ladder_proof import LevelProof
from .probes import DEGENERATE, Kind, Probe

TOLERATED_SHARE = 0.1
"""Of the items: a wrong text may be right in value on some ("0.5" for "1/2")."""

_FEWEST = 3
"""Items that must be solved: on a small sample one is luck."""

_KILLED = (Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.CRASHED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What one probe earned on one item."""

    probe: Probe
    verdict: Verdict

    @property
    def score(self) -> float:
        return self.verdict.score or 0.0

    @property
    def solved(self) -> bool:
        return self.score >= SOLVED_SCORE


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """How many of the items a probe solves, and the mean of what it earns."""

    label: str
    items: int
    solved: float
    score: float

    @property
    def is_finding(self) -> bool:
        return self.solved > TOLERATED_SHARE and round(self.solved * self.items) >= _FEWEST


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something wrong, and why we know of it; unexplained when the explanation is empty."""

    task: str
    kind: str
    detail: str
    level: int | None = None
    explanation: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskAudit:
    """All that the audit says about one task.

    Attributes:
        oracle: share of the items whose own answer has full credit; None without one.
        degenerate: the best probe of each kind that no verifier should pay for, on the items
            where it isn't right.
        floors: what the best constant answer and the best strategy without reasoning solve.
        forms: share of the items on which a form of the right answer keeps full credit.
        median_seconds, worst_seconds: of scoring right answers, at all levels.
        unseen: kinds of findings that are known of the task and were not found.
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


def shares(observations: Iterable[Observation], *, but_right: bool = False) -> list[Share]:
    """Work out one share for each label, best first.

    Args:
        but_right: leave out the items where the probe is the oracle.
    """
    counted = [one for one in observations if not (but_right and one.probe.is_right)]
    found = [
        Share(
            label=label,
            items=len(group),
            solved=sum(one.solved for one in group) / len(group),
            score=sum(one.score for one in group) / len(group),
        )
        for label, group in group_by(lambda one: one.probe.label, counted).items()
    ]
    return sorted(found, key=lambda share: (-share.solved, -share.score))


def of_kind(observations: Iterable[Observation], *kinds: Kind) -> list[Observation]:
    return [one for one in observations if one.probe.kind in kinds]


def answer_findings(task: str, observations: Sequence[Observation]) -> list[Finding]:
    """Find what degenerate answers earn and what verifiers don't survive."""
    findings = []
    for kind in DEGENERATE:
        for best in shares(of_kind(observations, kind), but_right=True)[:1]:
            if best.is_finding:
                detail = f"{best.label!r} solves {best.solved:.0%}, mean score {best.score:.2f}"
                findings.append(Finding(task=task, kind=kind.value, detail=detail))
    killed = [one for one in observations if one.verdict.status in _KILLED]
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
    """Find levels without items, without a right answer, or with a wrong one."""
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


def explain(finding: Finding, known: Mapping[str, Mapping[str, Known]]) -> Finding:
    """Add to a finding what the table says about it."""
    return Finding(
        task=finding.task,
        kind=finding.kind,
        detail=finding.detail,
        level=finding.level,
        explanation=explanation(known, finding.task, finding.kind, finding.level),
    )


def judge(
    task: str,
    category: str,
    observations: Sequence[Observation],
    levels: Sequence[LevelProof],
    *,
    floors: Floors,
    seconds: Sequence[float],
    known: Mapping[str, Mapping[str, Known]],
) -> TaskAudit:
    """Put together all that is said about a task.

    Args:
        levels: the default configuration first.
        floors: of the default items.
        seconds: of scoring right answers.
        known: findings that are no news.
    """
    kinds = {kind: shares(of_kind(observations, kind), but_right=True) for kind in DEGENERATE}
    oracles = of_kind(observations, Kind.ORACLE)
    findings = [*answer_findings(task, observations), *level_findings(task, levels)]
    return TaskAudit(
        task=task,
        category=category,
        items=len(levels[0].problems),
        oracle=_full(oracles) if oracles else None,
        degenerate={kind.value: found[0] for kind, found in kinds.items() if found},
        floors=floors,
        forms=_forms(observations),
        levels=levels,
        median_seconds=median(seconds) if seconds else 0.0,
        worst_seconds=max(seconds, default=0.0),
        findings=[explain(finding, known) for finding in findings],
        unseen=sorted(known.get(task, {}).keys() - {finding.kind for finding in findings}),
    )


def _full(observations: Sequence[Observation]) -> float:
    return sum(one.score >= 1.0 for one in observations) / len(observations)


def _forms(observations: Iterable[Observation]) -> dict[str, float]:
    by_label = group_by(lambda one: one.probe.label, of_kind(observations, Kind.FORM))
    return {label: _full(group) for label, group in by_label.items()}
