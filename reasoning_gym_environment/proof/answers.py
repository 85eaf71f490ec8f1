"""What a task's verifier pays for: many answers to some items of each level, in two orders."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from ..errors import GenerationError
from ..evaluation.estimators import score_interval
from ..problems.seeds import evaluation_recipes
from ..problems.stream import skip_faulty
from ..records import ATROPOS_SOLVED_SCORE, Problem, Status, Verdict
from ..sandbox.pool import TaskPool
from ..scoring.grading import verify_bare
from ..tasks.facts import EXECUTES_ANSWERS
from ..tasks.modules import Declaration
from ..util.values import group_by, shorten
from .copies import Copy, copies_for, excerpt
from .findings import (
    DEGENERATE,
    EXECUTED,
    HOSTILE,
    REPETITIVE,
    Finding,
    Kind,
    Probe,
    constants_for,
    probes_for,
    shown_example,
)
from .ladder_proof import KILLED

TOLERATED_SHARE = 0.1
"""Share of the items that a wrong text may solve: on some it has the right value ("0.5", "1/2")."""

TOLERATED_SHARES = {
    # A near miss is another right answer where there are several.
    Kind.NEAR_MISS.value: 0.5,
    # A question may name its choices: the first of two is right for half of the items.
    Kind.COPY.value: 0.75,
}
"""The same, of kinds that are right more often."""

RIGHT_BY_LUCK = (Kind.CONSTANT.value, Kind.OTHER.value)
"""Kinds that are right on some items: on a level's few, the 95 % interval must be above the share.
How often one answer is right at a level is counted in all its draws."""

COMPARED_ITEMS = 5
COMPARED_LEVEL_ITEMS = 1
"""Items whose answers are scored in both pools, of the default configuration and of a level."""

LEVEL_ITEMS = 10
"""Items of a level on which all answers are tried."""

DOUBTED_LEVEL_ITEMS = 30
"""The same, if a wrong answer was paid on some of these: as many as by default."""

CLEAR_SHARE = 0.9
"""Share of a level's few items on which a wrong answer is not paid by luck."""

PROBED_SHARE = 0.15
"""Share of the default items on which all answers are tried."""

EXECUTED_SHARE = PROBED_SHARE / 4
"""The same, where each answer has a process of its own."""

ANSWERS_SEED = 2
"""Seed of the items on which answers are tried."""

BATCH = 8
"""Probes that are scored before looking whether most of them cost their process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """The verdict on one probe of one item."""

    probe: Probe
    verdict: Verdict
    problem: Problem | None = None

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

    @property
    def shown(self) -> str:
        """An example of a finding."""
        if self.problem is None:
            return shorten(self.probe.answer)
        return shown_example(self.problem, self.probe.answer, self.verdict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeShare:
    """The share of the items on which a probe is paid, and its mean score.

    Attributes:
        solved: where it earns half credit, or as a near miss full credit.
        full: whether it solves all of these.
    """

    label: str
    items: int
    solved: float
    score: float
    full: bool = True

    @property
    def shown(self) -> str:
        """What it earns.

        Example:
            >>> ProbeShare(label="0", items=9, solved=0.4, score=0.2, full=False).shown
            "'0' earns half credit on 40%"
        """
        verb = "solves" if self.full else "earns half credit on"
        return f"{self.label!r} {verb} {self.solved:.0%}"

    @property
    def low(self) -> float:
        """The lower end of the 95 % interval of `solved`."""
        low, _ = score_interval(self.solved, self.items)
        return low

    def exceeds(self, tolerated: float) -> bool:
        # On a small sample, one or two solved items are luck.
        return self.solved > tolerated and round(self.solved * self.items) >= 3


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswersProof:
    """What the answers that were tried have earned.

    Attributes:
        items: on which all were tried; 0 if most answers cost their process, or time ran out.
        degenerate: the best probe of each kind in `DEGENERATE`, over the items where it is wrong.
        chance: what the best constant solves, with the items where it is right.
        forms: by form, the share of the items on which the right answer keeps full credit.
        hostile: number of hostile texts by the status of their verdict.
        executes: whether the verifier executes answers.
        stateless: whether answers may share a process.
        killing: repetitive and hostile texts that cost the process that scored them.
        seconds: the longest verdict on a text that is not hostile.
    """

    items: int
    degenerate: dict[str, ProbeShare] = field(default_factory=dict)
    chance: ProbeShare | None = None
    forms: dict[str, float] = field(default_factory=dict)
    hostile: dict[str, int] = field(default_factory=dict)
    executes: bool = False
    stateless: bool = True
    killing: list[str] = field(default_factory=list)
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_doubtful(self) -> bool:
        """Whether more items must decide if a wrong answer is paid too often."""
        above = {
            kind: share.solved
            for kind, share in self.degenerate.items()
            if share.solved > tolerated_share(kind)
        }
        is_clear = any(
            solved >= CLEAR_SHARE
            for kind, solved in above.items()
            if kind not in TOLERATED_SHARES
        )
        return self.items > 0 and bool(above) and not is_clear


def tolerated_share(kind: str) -> float:
    """Return the share of the items on which a wrong text of a kind may be paid."""
    return TOLERATED_SHARES.get(kind, TOLERATED_SHARE)


def probed_items(task: str, items: int) -> int:
    """Return the number of items on which all answers are tried.

    Args:
        items: of the task's default configuration.
    """
    return math.ceil(
        items * (EXECUTED_SHARE if task in EXECUTES_ANSWERS else PROBED_SHARE)
    )


async def sample_problems(
    pool: TaskPool,
    task: str,
    count: int,
    parameters: Mapping[str, Any] = MappingProxyType({}),
    *,
    level: int | None = None,
    skip: bool = True,
    is_over: Callable[[], bool] = lambda: False,
    seed: int = ANSWERS_SEED,
) -> list[Problem]:
    """Generate problems, with others in place of those that fail.

    Args:
        level: whose parameters these are; None for those of no level.
        skip: whether to redraw faulty items.
        is_over: whether the time for it has run out.
        seed: of the evaluation items.
    """
    problems: list[Problem] = []
    generate = skip_faulty(pool.generate, Counter(), skip=skip)
    for recipe in evaluation_recipes(seed, [task], 2 * count):
        if len(problems) >= count or is_over():
            break
        with contextlib.suppress(GenerationError):
            problems.append(
                await generate(
                    replace(recipe, level=level, parameters=dict(parameters))
                )
            )
    return problems


async def prove_answers(
    pool: TaskPool,
    second_pool: TaskPool,
    problems: Sequence[Problem],
    declared: Declaration | None = None,
    *,
    compared: int = COMPARED_ITEMS,
    killing: Collection[str] = (),
    is_over: Callable[[], bool] = lambda: False,
) -> AnswersProof:
    """Try every probe on the second half of the problems; the first half gives the constants.

    Some are scored in the second pool too, in another order: a verdict must not depend on the
    answers before it.

    Args:
        declared: what an own task says of itself; None for the library's. Whether copies of the
            question are paid was measured for all of these.
        compared: how many are scored in the second pool too.
        killing: costly texts that are not tried again.
        is_over: whether the time for it has run out; what has been tried by then is judged.
    """
    half = len(problems) // 2
    sources = problems[:half]
    examined = problems[half:]
    level = problems[0].recipe.level if problems else None
    oracles = [problem.oracle for problem in sources if problem.oracle is not None]
    constants = constants_for(oracles)
    copies = known_copies(sources) if declared else {}
    observations: list[Observation] = []
    changed: list[tuple[Observation, Verdict]] = []
    items = 0
    for index, problem in enumerate(examined):
        probes = probes_for(
            problem.question,
            problem.oracle,
            constants=constants,
            others=[*oracles[index:], *oracles[:index]],
            tolerance=declared.tolerance if declared else 0.0,
        )
        probes += copy_probes(problem, copies)
        if index == 0:
            probes += [p for p in costly_probes() if p.answer not in killing]
        # An own verifier that has kept nothing so far need not have a process for each answer.
        keeps_nothing = not (changed or executes_answers(observations))
        sharing = declared is not None and index >= compared and keeps_nothing
        tried = await _try_all(
            second_pool if sharing else pool, problem, probes, is_over
        )
        observations += tried
        if len(tried) < len(probes):
            # Most answers cost their process, each after seconds.
            if mostly_killed(tried):
                items = 0
            break
        items += 1
        if index < compared and not changed:
            changed = await _changed_verdicts(second_pool, problem, tried)
    return judge_answers(observations, items=items, changed=changed, level=level)


def known_copies(problems: Sequence[Problem]) -> dict[str, Copy]:
    """Return the ways to copy an answer that are right on most of these problems."""
    return copies_for(
        [
            (excerpt(problem.question), problem.oracle)
            for problem in problems
            if problem.oracle is not None
        ]
    )


def copy_probes(problem: Problem, copies: Mapping[str, Copy]) -> list[Probe]:
    """Return what the ways to copy an answer find in a question, which may well be right."""
    copied = {label: copy(excerpt(problem.question)) for label, copy in copies.items()}
    return [
        Probe(kind=Kind.COPY, label=label, answer=text)
        for label, text in copied.items()
        if text is not None
    ]


def costly_probes() -> list[Probe]:
    """Return texts that may each take a verifier's whole time."""
    return [
        Probe(kind=kind, label=text, answer=text)
        for kind, texts in ((Kind.REPETITIVE, REPETITIVE), (Kind.HOSTILE, HOSTILE))
        for text in texts
    ]


async def _changed_verdicts(
    second_pool: TaskPool, problem: Problem, tried: Sequence[Observation]
) -> list[tuple[Observation, Verdict]]:
    """Return what has another score in the second pool, with its verdict there."""
    others = harmless(tried[::-1])
    # The right answer came last: now others follow it.
    middle = len(others) // 2
    others = others[middle:] + others[:middle]
    answers = [observation.probe.answer for observation in others]
    second_verdicts = await verify_bare(problem, answers, second_pool)
    pairs = zip(others, second_verdicts, strict=True)
    return [
        (observation, verdict)
        for observation, verdict in pairs
        if observation.verdict.score != verdict.score
        and Status.UNSCORED not in (observation.verdict.status, verdict.status)
    ]


async def _try_all(
    pool: TaskPool,
    problem: Problem,
    probes: Sequence[Probe],
    is_over: Callable[[], bool],
) -> list[Observation]:
    """Score all probes; only the first few if most of them cost the process that scores them, or
    the time runs out.
    """
    tried: list[Observation] = []
    for begin in range(0, len(probes), BATCH):
        if is_over():
            break
        batch = probes[begin : begin + BATCH]
        answers = [probe.answer for probe in batch]
        verdicts = await verify_bare(problem, answers, pool)
        tried += [
            Observation(probe=probe, verdict=verdict, problem=problem)
            for probe, verdict in zip(batch, verdicts, strict=True)
        ]
        if mostly_killed(tried):
            break
    return tried


def mostly_killed(tried: Sequence[Observation]) -> bool:
    """Return whether most answers cost the process that scored them."""
    killed = sum(observation.verdict.status in KILLED for observation in tried)
    return killed > len(tried) / 2


def judge_answers(
    observations: Sequence[Observation],
    *,
    items: int,
    changed: Sequence[tuple[Observation, Verdict]] = (),
    level: int | None = None,
) -> AnswersProof:
    """Return what the observations show; `changed` have other verdicts beside other answers."""
    wrong = [
        observation for observation in observations if not observation.probe.is_right
    ]
    shares = {kind: shares_of(of_kind(wrong, kind)) for kind in DEGENERATE}
    degenerate = {
        kind.value: shares_of_kind[0]
        for kind, shares_of_kind in shares.items()
        if shares_of_kind
    }
    constants = of_kind(observations, Kind.EMPTY, Kind.JUNK, Kind.CONSTANT)
    hostile = of_kind(observations, Kind.HOSTILE)
    longest = _longest_seconds(observations)
    executes = executes_answers(observations)
    findings = [
        *_paid_findings(degenerate, wrong, level),
        *_process_findings(harmless(observations), hostile, changed),
    ]
    forms = group_by(
        lambda observation: observation.probe.label, of_kind(observations, Kind.FORM)
    )
    costly = of_kind(observations, Kind.HOSTILE, Kind.REPETITIVE)
    return AnswersProof(
        items=items,
        degenerate=degenerate,
        chance=next(iter(shares_of(constants, attrgetter("solved"))), None),
        forms={
            label: sum(observation.score >= 1 for observation in of_form) / len(of_form)
            for label, of_form in forms.items()
        },
        hostile=dict(
            Counter(observation.verdict.status.value for observation in hostile)
        ),
        executes=executes,
        stateless=not (executes or changed),
        killing=[o.probe.answer for o in costly if o.verdict.status in KILLED],
        seconds=longest,
        findings=[replace(finding, level=level, items=0) for finding in findings],
    )


def harmless(observations: Iterable[Observation]) -> list[Observation]:
    return [
        observation
        for observation in observations
        if observation.probe.kind is not Kind.HOSTILE
    ]


def _longest_seconds(observations: Sequence[Observation]) -> float:
    """Return the longest verdict on a text that is not hostile."""
    return max((o.verdict.seconds for o in harmless(observations)), default=0.0)


def executes_answers(observations: Sequence[Observation]) -> bool:
    """Return whether texts that take seconds if they are executed have taken them."""
    longest = _longest_seconds(observations)
    return any(
        observation.verdict.status is Status.TIMEOUT
        or observation.verdict.seconds > longest + 1
        for observation in observations
        if observation.probe.kind is Kind.HOSTILE
        and observation.probe.answer in EXECUTED
    )


def _paid_findings(
    degenerate: Mapping[str, ProbeShare],
    wrong: Sequence[Observation],
    level: int | None,
) -> list[Finding]:
    """Return the wrong answers that a verifier pays, with the text of each."""
    findings = []
    for kind, best in degenerate.items():
        tolerated = tolerated_share(kind)
        if not best.exceeds(tolerated):
            continue
        if level is not None and kind in RIGHT_BY_LUCK and best.low <= tolerated:
            continue
        example = next(
            observation
            for observation in wrong
            if observation.paid
            and observation.probe.kind == kind
            and observation.probe.label == best.label
        )
        findings.append(
            Finding(
                check="not_payable",
                kind=kind,
                detail=f"{best.shown}, mean score {best.score:.2f}",
                example=example.shown,
            )
        )
    return findings


def _process_findings(
    others: Sequence[Observation],
    hostile: Sequence[Observation],
    changed: Sequence[tuple[Observation, Verdict]],
) -> list[Finding]:
    """Return what answers do to the process that scores them, or to other verdicts."""
    findings = []
    killed = [
        observation for observation in others if observation.verdict.status in KILLED
    ]
    if killed:
        labels = sorted(
            {f"{o.probe.kind.value} ({o.verdict.status.value})" for o in killed}
        )
        findings.append(
            Finding(
                check="bounded",
                kind="killed",
                detail=f"{len(killed)} answers: {', '.join(labels)}",
                example=killed[0].shown,
            )
        )
    paid = [observation for observation in hostile if observation.paid]
    if paid:
        findings.append(
            Finding(
                check="contained",
                kind=Kind.HOSTILE.value,
                detail=f"{len(paid)} hostile texts are paid",
                example=paid[0].shown,
            )
        )
    for observation, second_verdict in changed:
        verdict = observation.verdict
        if {verdict.status, second_verdict.status} & {*KILLED}:
            continue
        scores = f"{verdict.score}, {second_verdict.score}"
        findings.append(
            Finding(
                check="contained",
                kind="state",
                detail=f"a verdict depends on the answers before: {scores}",
                example=observation.shown,
            )
        )
        break
    return findings


def shares_of(
    observations: Iterable[Observation],
    counts: Callable[[Observation], bool] = attrgetter("paid"),
) -> list[ProbeShare]:
    """Return the share of each label that counts, best first."""
    shares = [
        ProbeShare(
            label=label,
            items=len(of_label),
            solved=sum(map(counts, of_label)) / len(of_label),
            score=sum(observation.score for observation in of_label) / len(of_label),
            full=all(o.score >= 1 for o in of_label if counts(o)),
        )
        for label, of_label in group_by(
            lambda observation: observation.probe.label, observations
        ).items()
    ]
    return sorted(shares, key=lambda share: (-share.solved, -share.score))


def of_kind(observations: Iterable[Observation], *kinds: Kind) -> list[Observation]:
    return [
        observation for observation in observations if observation.probe.kind in kinds
    ]
