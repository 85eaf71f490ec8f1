"""The verdicts of a proof: one for each check, with its reason and an example."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal, get_args

from ..problems.split import LEAST_QUESTIONS
from ..records import Recipe
from ..tasks.facts import DISGUISES_ITS_ANSWER, has_few_questions
from ..tasks.modules import Declaration
from ..util.values import group_by, shorten
from .answers import AnswersProof, ProbeShare, probed_items
from .findings import WAIVABLE, Finding, KnownFindings
from .ladder_proof import DRAWS, LevelProof
from .levels import count_answers, is_open, ladder_findings, order_findings

CHECKS = {
    "reproducible": "a recipe gives the same question, answer and entry in two processes, under "
    "two hash seeds",
    "solvable": "each item's own answer earns full credit, also from a stored recipe",
    "not_payable": "what wrong texts earn: empty ones, constants, the question, denials, hedges, "
    "near misses",
    "contained": "a verdict depends on no answer before it and does nothing forbidden; hostile "
    "texts earn nothing",
    "levels": "neighbors differ, and no level has few questions, few answers or a frequent one",
    "bounded": "seconds of an item and of a verdict, and memory",
    "disjoint": "training questions are not those of evaluation",
}
"""The checks, and what each is about."""

DEFAULT_ITEMS = 200
"""Default items of a proof."""

FEWEST_ITEMS = 10
"""Items of a level without which it is not tried."""

MOST_COMMON = 0.5
"""Share of the training questions that evaluation may have too."""


Unproved = Literal["failed", "not_tried", "not_checked"]
UNPROVED: tuple[Unproved, ...] = get_args(Unproved)
"""The verdicts of checks that keep a task from being proved, the worst first."""

CheckVerdict = Unproved | Literal["passed", "warning", "known", "waived"]
TaskVerdict = Unproved | Literal["proved"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """The verdict of a check: "known" if its findings are expected of the library's task, "waived"
    if the author of an own one says why.

    Attributes:
        reason: what was found, or what is left to try.
        example: of the first finding; empty if there is none.
        items: how many it has tried, over all levels.
    """

    verdict: CheckVerdict
    reason: str
    example: str = ""
    items: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class NotChecked:
    """What a check has left open, whatever its verdict."""

    check: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelResult:
    """What the items of a level are like.

    Attributes:
        level: None is the default configuration.
        items: that were drawn.
        items_with_all_answers: on which all answers were tried.
        questions, answers: how many differ.
        most_frequent_answer: share of the items that it answers.
        mean_seconds, worst_seconds: to make an item.
        mean_characters: of a question.
        late: items that took too long.
    """

    level: int | None
    items: int
    items_with_all_answers: int
    questions: int
    answers: int
    most_frequent_answer: float
    mean_seconds: float
    worst_seconds: float
    mean_characters: int
    late: int


@dataclass(kw_only=True, slots=True)
class TaskProof:
    """What has been tried of one task so far.

    Attributes:
        json_changes: where JSON would change an entry; empty if nowhere.
        memory: bytes by which an item raised the peak of its process.
        answers: of the default items; None as long as they have not been tried.
        level_answers: the same of each level's items, by level.
        threads: that importing its module starts.
        findings: what its module shows.
        declared: what an own task says of itself; None for the library's.
        module: whose task it is; None is the library.
    """

    task: str
    category: str
    default: LevelProof
    levels: list[LevelProof]
    json_changes: str = ""
    memory: int = 0
    answers: AnswersProof | None = None
    level_answers: dict[int, AnswersProof] = field(default_factory=dict)
    threads: int = 0
    findings: list[Finding] = field(default_factory=list)
    declared: Declaration | None = None
    module: str | None = None

    def add_entry(self, *, json_changes: str, memory: int) -> None:
        """Keep what an item's entry is like: the first change by JSON, and the most memory."""
        self.json_changes = self.json_changes or json_changes
        self.memory = max(self.memory, memory)

    def answers_of(self, level: int | None) -> AnswersProof | None:
        """Return what answers to a level's items have earned; None if none were tried."""
        return self.answers if level is None else self.level_answers.get(level)

    def add_answers(self, level: int | None, answers: AnswersProof) -> None:
        """Keep what answers to a level's items have earned."""
        if level is None:
            self.answers = answers
        else:
            self.level_answers[level] = answers

    @property
    def all_answers(self) -> list[AnswersProof]:
        """What answers have earned, by default and at the levels where they were tried."""
        default = [self.answers] if self.answers else []
        return [*default, *self.level_answers.values()]


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The proof of one task.

    Attributes:
        verdict: the worst of its checks, or "proved".
        stateless: whether its answers may share a process.
        oracle: share of the items whose own answer has full credit; None without such answers.
        degenerate: what the best wrong text of each kind earns.
        forms: by form, the share of the items on which the right answer keeps full credit.
        chance: what the best constant solves; None if no answers were tried.
        levels: what each level's items are like, the default configuration first.
        median_seconds, worst_seconds: to score right answers, over all levels.
        unseen: kinds of expected or waived findings that are missing.
        module: whose task it is; None is the library.
        not_checked: what its checks have left open.
    """

    task: str
    category: str
    verdict: TaskVerdict
    checks: dict[str, Check]
    stateless: bool
    oracle: float | None
    degenerate: dict[str, ProbeShare]
    forms: dict[str, float]
    chance: ProbeShare | None
    levels: list[LevelResult]
    median_seconds: float
    worst_seconds: float
    findings: list[Finding]
    unseen: list[str]
    module: str | None = None
    not_checked: list[NotChecked] = field(default_factory=list)


def judge(proof: TaskProof, *, items: int, known_findings: KnownFindings) -> Result:
    """Return the verdicts on a task; `items` were to be tried of its default configuration."""
    all_levels = [proof.default, *proof.levels]
    is_own = proof.declared is not None
    reasons = reasons_for(proof, known_findings)
    findings = explained(proof, _all_findings(proof), known_findings)
    seen = {finding.name if is_own else finding.kind for finding in findings}
    untried_items = untried(proof, items)
    passing_reasons = reasons_of(proof)
    tried_items = items_of(proof)
    checks = {}
    not_checked: list[NotChecked] = []
    for name in CHECKS:
        of_check = [finding for finding in findings if finding.check == name]
        check = check_of(
            of_check,
            untried_items[name],
            passing_reasons[name],
            explained="waived" if is_own else "known",
        )
        checks[name] = replace(check, items=tried_items[name])
        not_checked += left_open(name, of_check, untried_items[name])
    answers = proof.answers or AnswersProof(items=0)
    seconds = [second for level in all_levels for second in level.verdict_seconds]
    rated = sum(answer is not None for answer in proof.default.answers.values())
    return Result(
        task=proof.task,
        category=proof.category,
        verdict=verdict_of_all(checks.values()),
        checks=checks,
        stateless=checks["contained"].verdict == "passed" and keeps_nothing(proof),
        oracle=1 - proof.default.without_credit / rated if rated else None,
        degenerate=answers.degenerate,
        forms=answers.forms,
        chance=answers.chance,
        levels=[_level_result(level, proof) for level in all_levels],
        median_seconds=median(seconds) if seconds else 0.0,
        worst_seconds=max(seconds, default=0.0),
        findings=findings,
        unseen=sorted(reasons.keys() - seen),
        module=proof.module,
        not_checked=not_checked,
    )


def left_open(
    check: str, findings: Iterable[Finding], untried: str
) -> Iterator[NotChecked]:
    """Yield what a check has left open: what it has not tried, and what it can't know."""
    if untried:
        yield NotChecked(check=check, reason=untried)
    for finding in findings:
        if finding.verdict == "not_checked" and not finding.explanation:
            yield NotChecked(check=check, reason=finding.detail)


def verdict_of_all(checks: Iterable[Check]) -> TaskVerdict:
    """Return the worst verdict of checks, "proved" if none of them is against it."""
    verdicts = {check.verdict for check in checks}
    for verdict in UNPROVED:
        if verdict in verdicts:
            return verdict
    return "proved"


def reasons_for(proof: TaskProof, known_findings: KnownFindings) -> Mapping[str, str]:
    """Return why findings of a task are as they should be.

    An author writes a finding's name, the table of the library its kind.
    """
    if proof.declared:
        return proof.declared.waive
    return known_findings.get(proof.task, {})


def explained(
    proof: TaskProof, findings: Iterable[Finding], known_findings: KnownFindings
) -> list[Finding]:
    """Return findings with the reasons that there are for them."""
    is_own = proof.declared is not None
    reasons = reasons_for(proof, known_findings)
    with_reasons = []
    for finding in findings:
        detail = finding.detail
        if is_own and finding.name in WAIVABLE:
            detail = f"{detail} [{finding.name}]"
        reason = reasons.get(finding.name if is_own else finding.kind, "")
        with_reasons.append(replace(finding, explanation=reason, detail=detail))
    return with_reasons


def check_of(
    findings: Sequence[Finding],
    untried: str,
    reason: str,
    *,
    explained: Literal["known", "waived"],
) -> Check:
    """Return the worst verdict that findings and what is left to try give, `explained` last."""
    worst_first: tuple[CheckVerdict, ...] = (*UNPROVED, "warning")
    for verdict in worst_first:
        news = [
            finding
            for finding in findings
            if finding.verdict == verdict and not finding.explanation
        ]
        if verdict == "not_tried" and untried:
            return Check(verdict=verdict, reason=untried)
        if news:
            [(summary, example), *more_summaries] = summaries(news)
            and_more = f", and {len(more_summaries)} more" if more_summaries else ""
            return Check(verdict=verdict, reason=summary + and_more, example=example)
    if findings:
        why = dict.fromkeys(
            f"{finding.kind}: {finding.explanation}" for finding in findings
        )
        return Check(
            verdict=explained, reason=" ".join(why), example=findings[0].example
        )
    return Check(verdict="passed", reason=reason)


def summaries(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """Return what findings show, those of one kind together, each with an example."""
    lines = []
    for of_kind in group_by(
        lambda finding: (finding.kind, finding.verdict), findings
    ).values():
        combined = replace(of_kind[0], items=sum(finding.items for finding in of_kind))
        where = place_of([finding.level for finding in of_kind])
        lines.append((where + combined.shown, combined.example))
    return lines


def place_of(levels: Sequence[int | None]) -> str:
    """Return the levels of findings, to stand before them; nothing for the default alone.

    Example:
        >>> place_of([None, 0, 1]), place_of([2]), place_of([None])
        ('default and level 0, 1: ', 'level 2: ', '')
    """
    numbers = ", ".join(
        str(level) for level in dict.fromkeys(levels) if level is not None
    )
    if not numbers:
        return ""
    return f"{'default and ' if None in levels else ''}level {numbers}: "


def _all_findings(proof: TaskProof) -> Iterator[Finding]:
    """Yield what speaks against a task."""
    yield from proof.findings
    all_levels = [proof.default, *proof.levels]
    yield from (*proof.default.weighty, *ladder_findings(proof.levels))
    declared = proof.declared
    if declared is not None:
        yield from order_findings(proof.levels)
        if not (declared.verifier or declared.solve):
            yield Finding(
                check="solvable",
                kind="labels",
                detail="no verifier: labels not checked",
                verdict="not_checked",
            )
        if not declared.verifier:
            yield from filter(None, map(_ambiguity_finding, all_levels))
    for answers in proof.all_answers:
        yield from answers.findings
    for level in all_levels:
        yield from _overlap_findings(level)


def _ambiguity_finding(level: LevelProof) -> Finding | None:
    """Return that a question has had several answers, of which only one is taken for right."""
    first_answers: dict[str, str | None] = {}
    answer_pairs = [
        (first_answers[question], level.answers[number])
        for number, question in level.questions.items()
        if first_answers.setdefault(question, level.answers[number])
        != level.answers[number]
    ]
    if not answer_pairs:
        return None
    answer, second_answer = answer_pairs[0]
    return Finding(
        check="solvable",
        kind="ambiguous",
        detail=f"the same question has the answers {shorten(answer)} and {shorten(second_answer)}",
        level=level.level,
        items=len(answer_pairs),
    )


def _overlap_findings(level: LevelProof) -> Iterator[Finding]:
    """Yield that training has the questions, or answers, of evaluation.

    The split leaves evaluation a part of the questions, unless there are too few of them. Answers
    of the default items are a warning: how many differ is a matter of the levels.
    """
    is_default = level.level is None
    common_questions, common_answers = overlaps(level)
    recipe = Recipe(
        task=level.task, seed=0, level=level.level, parameters=level.parameters
    )
    is_small = has_few_questions(recipe)
    if is_small is None and is_default:
        trained = (question for question, _ in level.training.values())
        number = len({*level.questions.values(), *trained})
        is_small = number < LEAST_QUESTIONS <= len(level.questions)
    details = []
    if is_small:
        details.append(
            f"fewer than {LEAST_QUESTIONS} questions differ: training and evaluation both ask all "
            "of them"
        )
    if common_questions > MOST_COMMON:
        details.append(
            f"{common_questions:.0%} of the training questions are those of the evaluation items "
            "with the neighboring seeds"
        )
    for detail in details:
        yield Finding(
            check="disjoint", kind="questions", detail=detail, level=level.level
        )
    if common_answers > MOST_COMMON:
        yield Finding(
            check="disjoint",
            kind="answers",
            detail=f"{common_answers:.0%} of the training answers are also evaluation answers",
            level=level.level,
            verdict="warning" if is_default else "failed",
        )


def overlaps(level: LevelProof) -> tuple[float, float]:
    """Return the shares of the training questions, and answers, that evaluation has too.

    A question counts if the neighboring seed asks it too, which no split by question repairs, and
    at levels so does an answer. Answers count where they are longer than a choice, but for tasks
    whose evaluation answers training leaves out.
    """
    shares = []
    counted = count_answers(answer for _, answer in level.training.values())
    identify = is_open(counted) and level.task not in DISGUISES_ITS_ANSWER
    columns: list[Mapping[int, str | None]] = [level.questions, level.answers]
    for column, value_by_number in enumerate(columns):
        evaluated = {*value_by_number.values()}
        common = sum(
            pair[column] in evaluated
            if level.level is None and column == 1
            else pair[column] == value_by_number.get(number)
            for number, pair in level.training.items()
            if pair[column] is not None
        )
        shares.append(common / max(1, len(level.training)) * (column == 0 or identify))
    return shares[0], shares[1]


def untried(proof: TaskProof, items: int) -> dict[str, str]:
    """Return by check what of it has not been tried; empty if all has."""
    default = proof.default.tried
    items_left = (
        f"{default} of {items} default items were tried" if default < items else ""
    )
    behind = _named(proof, lambda level: level.tried < FEWEST_ITEMS)
    if behind and not items_left:
        items_left = f"fewer than {FEWEST_ITEMS} items of {behind} were tried"
    short = [
        f"{level.level} ({level.tried})"
        for level in proof.levels
        if level.tried < DRAWS
    ]
    draws_left = (
        f"levels with fewer than {DRAWS} draws: {', '.join(short)}" if short else ""
    )
    answers_left = "" if _probed(proof, None) else "no answers were tried"
    unanswered = _named(proof, lambda level: _probed(proof, level.level) < FEWEST_ITEMS)
    if unanswered and not answers_left:
        answers_left = (
            f"answers were tried on fewer than {FEWEST_ITEMS} items of {unanswered}"
        )
    fewest_probed = probed_items(proof.task, DEFAULT_ITEMS)
    probed = _probed(proof, None)
    few_answers = (
        f"answers were tried on {probed} items, and {fewest_probed} are wanted"
        if 0 < probed < fewest_probed
        else ""
    )
    return {
        "reproducible": items_left,
        "solvable": items_left,
        "not_payable": few_answers or answers_left,
        "contained": answers_left,
        "levels": draws_left,
        "bounded": items_left or answers_left,
        "disjoint": items_left,
    }


def _probed(proof: TaskProof, level: int | None) -> int:
    """Return on how many items of a level answers were tried."""
    answers = proof.answers_of(level)
    return answers.items if answers else 0


def _named(proof: TaskProof, is_behind: Callable[[LevelProof], bool]) -> str:
    """Return the names of the levels that are behind; empty if none is."""
    behind = [str(level.level) for level in proof.levels if is_behind(level)]
    if not behind:
        return ""
    return f"level{'s' if len(behind) > 1 else ''} {', '.join(behind)}"


def items_of(proof: TaskProof) -> dict[str, int]:
    """Return by check how many items it has tried, over all levels."""
    all_levels = [proof.default, *proof.levels]
    drawn = sum(level.tried for level in all_levels)
    compared = sum(len(level.training) for level in all_levels)
    probed = sum(_probed(proof, level.level) for level in all_levels)
    return {
        "reproducible": compared,
        "solvable": drawn,
        "not_payable": probed,
        "contained": probed,
        "levels": sum(level.tried for level in proof.levels),
        "bounded": drawn,
        "disjoint": compared,
    }


def keeps_nothing(proof: TaskProof) -> bool:
    """Return whether answers were tried, and none has kept anything for the next."""
    return proof.answers is not None and all(
        answers.stateless for answers in proof.all_answers
    )


def reasons_of(proof: TaskProof) -> dict[str, str]:
    """Return by check what has been found if it passes."""
    all_levels = [proof.default, *proof.levels]
    answers = proof.answers or AnswersProof(items=0)
    shares = [
        (level, kind, share)
        for level in [None, *proof.level_answers]
        for kind, share in (
            proof.answers_of(level) or AnswersProof(items=0)
        ).degenerate.items()
    ]
    paid = ""
    if shares:
        level, kind, share = max(shares, key=lambda s: (s[2].solved, s[2].score))
        where = "" if level is None else f" of level {level}"
        paid = f"at most {share.solved:.0%}{where}: {share.label!r} ({kind})"
    chance = answers.chance
    if chance:
        paid += f"; chance is {chance.solved:.0%}, by the constant {chance.label!r}"
    counts = sum(
        (Counter(answers.hostile) for answers in proof.all_answers), Counter[str]()
    )
    hostile = ", ".join(f"{count} {status}" for status, count in counts.items())
    seconds = max((answers.seconds for answers in proof.all_answers), default=0.0)
    executes = any(answers.executes for answers in proof.all_answers)
    notes = "; it executes answers: each has its own process" if executes else ""
    notes += (
        f"; importing its module starts {proof.threads} threads"
        if proof.threads
        else ""
    )
    changed = (
        f"; JSON would change an entry: {proof.json_changes}"
        if proof.json_changes
        else ""
    )
    declared = proof.declared
    second = ", and solve has the same answers" if declared and declared.solve else ""
    worst = max(
        (seconds for level in all_levels for seconds in level.seconds), default=0.0
    )
    times = [level.mean_seconds for level in proof.levels]
    sizes = [level.mean_characters for level in proof.levels]
    tried = sum(level.tried for level in all_levels)
    fewest_training = min(len(level.training) for level in proof.levels)
    common = max(overlaps(level)[0] for level in all_levels)
    return {
        "reproducible": f"{proof.default.tried} default items and {fewest_training} of each level",
        "solvable": f"{tried} items{second}{changed}",
        "not_payable": paid,
        "contained": f"hostile texts: {hostile}{notes}",
        "levels": f"{len(proof.levels)} levels, on average {min(times):.3f} to {max(times):.3f} s "
        f"and {min(sizes):.0f} to {max(sizes):.0f} characters",
        "bounded": f"an item takes at most {worst:.2f} s and {proof.memory >> 20} MiB, a verdict "
        f"{seconds:.2f} s",
        "disjoint": f"at most {common:.0%} of the training questions",
    }


def _level_result(level: LevelProof, proof: TaskProof) -> LevelResult:
    answers = count_answers(level.answers.values())
    share = max(answers.values(), default=0)
    return LevelResult(
        level=level.level,
        items=level.tried,
        items_with_all_answers=_probed(proof, level.level),
        questions=len(set(level.questions.values())),
        answers=len(answers),
        most_frequent_answer=round(share / max(1, answers.total()), 3),
        mean_seconds=round(level.mean_seconds, 4),
        worst_seconds=round(max(level.seconds, default=0.0), 3),
        mean_characters=round(level.mean_characters),
        late=sum(finding.items for finding in level.findings if finding.kind == "late"),
    )
