"""What a task's verifier pays for: many answers to some default items, in two orders."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from ..errors import GenerationError
from ..problems.seeds import evaluation_recipes
from ..problems.stream import skip_faulty
from ..records import ATROPOS_SOLVED_SCORE, Problem, Status, Verdict
from ..sandbox.pool import TaskPool
from ..util.values import group_by, shorten
from .findings import (
    DEGENERATE,
    EXECUTED,
    HOSTILE,
    Finding,
    Kind,
    Probe,
    constants_for,
    probes_for,
)
from .ladder_proof import KILLED

TOLERATED_SHARE = 0.1
"""Share of the items that a wrong text may solve: on some it has the right value ("0.5", "1/2")."""


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
        return self.verdict.status is Status.SOLVED

    @property
    def paid(self) -> bool:
        """Whether it earns what a right answer does; a near miss may earn its share."""
        is_near = self.probe.kind is Kind.NEAR_MISS
        return self.solved if is_near else self.score >= ATROPOS_SOLVED_SCORE


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """The share of the items that a probe solves, and its mean score."""

    label: str
    items: int
    solved: float
    score: float

    def exceeds(self, tolerated: float) -> bool:
        # On a small sample, one or two solved items are luck.
        return self.solved > tolerated and round(self.solved * self.items) >= 3


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswersProof:
    """What the answers that were tried have earned.

    Attributes:
        items: on which all were tried; 0 if most answers cost their process.
        degenerate: the best probe of each kind in `DEGENERATE`, over the items where it is wrong.
        chance: what the best constant solves, with the items where it is right.
        forms: by form, the share of the items on which the right answer keeps full credit.
        hostile: number of hostile texts by the status of their verdict.
        executes: whether the verifier executes answers.
        stateless: whether answers may share a process.
        seconds: the longest verdict on a text that is not hostile.
    """

    items: int
    degenerate: dict[str, Share] = field(default_factory=dict)
    chance: Share | None = None
    forms: dict[str, float] = field(default_factory=dict)
    hostile: dict[str, int] = field(default_factory=dict)
    executes: bool = False
    stateless: bool = True
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)


async def sample_problems(
    pool: TaskPool,
    task: str,
    count: int,
    parameters: Mapping[str, Any] = MappingProxyType({}),
) -> list[Problem]:
    """Generate problems, with others in place of those that fail."""
    problems: list[Problem] = []
    generate = skip_faulty(pool.generate, Counter())
    for recipe in evaluation_recipes(2, [task], 2 * count):
        if len(problems) < count:
            with contextlib.suppress(GenerationError):
                problems.append(
                    await generate(replace(recipe, parameters=dict(parameters)))
                )
    return problems


async def prove_answers(
    pool: TaskPool, other: TaskPool, problems: Sequence[Problem]
) -> AnswersProof:
    """Try every probe on the second half of the problems; the first half gives the constants.

    Some are scored in the other pool too, in another order: a verdict must not depend on the
    answers before it.
    """
    half = len(problems) // 2
    sources = problems[:half]
    examined = problems[half:]
    oracles = [problem.oracle for problem in sources if problem.oracle is not None]
    constants = constants_for(oracles)
    observations: list[Observation] = []
    changed: list[tuple[Observation, Verdict]] = []
    for index, problem in enumerate(examined):
        others = [*oracles[index:], *oracles[:index]]
        probes = probes_for(
            problem.question,
            problem.oracle,
            constants=constants,
            others=others,
        )
        if index == 0:
            probes += [
                Probe(kind=Kind.HOSTILE, label=text, answer=text) for text in HOSTILE
            ]
        tried = await _try_all(pool, problem, probes)
        observations += tried
        # Most answers cost their process, each after seconds.
        if len(tried) < len(probes):
            return judge_answers(observations, items=0)
        if index < 5 and not changed:
            harmless = [
                one for one in tried[::-1] if one.probe.kind is not Kind.HOSTILE
            ]
            # The right answer came last: now others follow it.
            middle = len(harmless) // 2
            harmless = harmless[middle:] + harmless[:middle]
            again = await other.verify(problem, [one.probe.answer for one in harmless])
            pairs = zip(harmless, again, strict=True)
            changed = [(one, v) for one, v in pairs if one.verdict.score != v.score]
    return judge_answers(observations, items=len(examined), changed=changed)


async def _try_all(
    pool: TaskPool, problem: Problem, probes: Sequence[Probe]
) -> list[Observation]:
    """Score all probes; only the first few if most of them cost the process that scores them."""
    tried: list[Observation] = []
    for begin in range(0, len(probes), 8):
        some = probes[begin : begin + 8]
        verdicts = await pool.verify(problem, [probe.answer for probe in some])
        tried += [
            Observation(probe=probe, verdict=verdict)
            for probe, verdict in zip(some, verdicts, strict=True)
        ]
        killed = sum(one.verdict.status in KILLED for one in tried)
        if killed > len(tried) / 2:
            break
    return tried


def judge_answers(
    observations: Sequence[Observation],
    *,
    items: int,
    changed: Sequence[tuple[Observation, Verdict]] = (),
) -> AnswersProof:
    """Return what the observations show; `changed` have other verdicts beside other answers."""
    wrong = [one for one in observations if not one.probe.is_right]
    shares = {kind: shares_of(of_kind(wrong, kind)) for kind in DEGENERATE}
    degenerate = {
        kind.value: shares_of_kind[0]
        for kind, shares_of_kind in shares.items()
        if shares_of_kind
    }
    constants = of_kind(observations, Kind.EMPTY, Kind.JUNK, Kind.CONSTANT)
    hostile = of_kind(observations, Kind.HOSTILE)
    harmless = [one for one in observations if one.probe.kind is not Kind.HOSTILE]
    longest = max((one.verdict.seconds for one in harmless), default=0.0)
    executes = any(
        one.verdict.status is Status.TIMEOUT or one.verdict.seconds > longest + 1
        for one in hostile
        if one.probe.answer in EXECUTED
    )
    findings = _findings(degenerate, harmless, hostile, changed)
    forms = group_by(lambda one: one.probe.label, of_kind(observations, Kind.FORM))
    return AnswersProof(
        items=items,
        degenerate=degenerate,
        chance=next(iter(shares_of(constants, attrgetter("solved"))), None),
        forms={
            label: sum(o.score >= 1 for o in own) / len(own)
            for label, own in forms.items()
        },
        hostile=dict(Counter(one.verdict.status.value for one in hostile)),
        executes=executes,
        stateless=not (executes or changed),
        seconds=longest,
        findings=findings,
    )


def _findings(
    degenerate: Mapping[str, Share],
    harmless: Sequence[Observation],
    hostile: Sequence[Observation],
    changed: Sequence[tuple[Observation, Verdict]],
) -> list[Finding]:
    """Return what is wrong with a verifier, the degenerate answers that it pays first."""
    findings = [
        Finding(
            check="not_payable",
            kind=kind,
            detail=f"{best.label!r} solves {best.solved:.0%}, mean score {best.score:.2f}",
        )
        for kind, best in degenerate.items()
        # A near miss is another right answer where there are several.
        if best.exceeds(0.5 if kind == Kind.NEAR_MISS.value else TOLERATED_SHARE)
    ]
    killed = [one for one in harmless if one.verdict.status in KILLED]
    if killed:
        labels = sorted(
            {f"{o.probe.kind.value} ({o.verdict.status.value})" for o in killed}
        )
        detail = f"{len(killed)} answers: {', '.join(labels)}"
        example = shorten(killed[0].probe.answer)
        findings.append(
            Finding(
                check="bounded",
                kind="killed",
                detail=detail,
                example=example,
            )
        )
    paid = [one for one in hostile if one.paid]
    if paid:
        detail = f"{len(paid)} hostile texts are paid"
        example = shorten(paid[0].probe.answer)
        findings.append(
            Finding(
                check="contained",
                kind=Kind.HOSTILE.value,
                detail=detail,
                example=example,
            )
        )
    for one, again in changed:
        if not {one.verdict.status, again.status} & {*KILLED, Status.UNSCORED}:
            detail = f"a verdict depends on the answers before: {one.verdict.score}, {again.score}"
            example = shorten(one.probe.answer)
            findings.append(
                Finding(
                    check="contained",
                    kind="state",
                    detail=detail,
                    example=example,
                )
            )
            break
    return findings


def shares_of(
    observations: Iterable[Observation],
    counts: Callable[[Observation], bool] = attrgetter("paid"),
) -> list[Share]:
    """Return the share of each label that counts, best first."""
    shares = [
        Share(
            label=label,
            items=len(group),
            solved=sum(map(counts, group)) / len(group),
            score=sum(one.score for one in group) / len(group),
        )
        for label, group in group_by(lambda one: one.probe.label, observations).items()
    ]
    return sorted(shares, key=lambda share: (-share.solved, -share.score))


def of_kind(observations: Iterable[Observation], *kinds: Kind) -> list[Observation]:
    return [one for one in observations if one.probe.kind in kinds]
