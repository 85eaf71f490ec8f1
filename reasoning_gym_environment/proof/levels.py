"""What the levels of a ladder show, each by its draws, and beside each other."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from ..evaluation.estimators import score_interval
from ..util.values import shorten
from .findings import Finding
from .ladder_proof import DRAWS, LevelProof

MOST_CHARACTERS = 30_000
"""Mean characters of questions, or answers: a run caps its ladders by the model's own limit."""

FEWEST_ITEMS = 20
"""Items of a level from which its means are compared."""

SHORTER = 0.8
"""The hardest level's mean length, as a share of the easiest one's, from which on it is shorter."""

EASIER_TO_GUESS = 0.2
"""By how much more often the most frequent answer is right at the hardest level."""

SAME_LEVEL = 0.1
"""If fewer of the questions of equal seeds differ, two levels are the same."""


def have_same_questions(lower: LevelProof, upper: LevelProof) -> bool:
    """Return whether, beyond chance, a share of fewer than SAME_LEVEL of equal seeds differs."""
    common = lower.questions.keys() & upper.questions.keys()
    if not common:
        return False
    changed = sum(
        lower.questions[number] != upper.questions[number] for number in common
    )
    draws = len(common)
    _, most = score_interval(changed / draws, draws)
    return most < SAME_LEVEL


def level_faults(
    questions: Iterable[str], answers: Collection[str | None]
) -> list[str]:
    """Return why a level is degenerate, judged by DRAWS draws, one sentence each.

    Where several answers are right, they are None. If most are, only the questions count.

    Example:
        >>> level_faults(map(str, range(200)), ["Yes"] * 180 + ["No"] * 20)
        ["'Yes' answers 90% of the items, more than chance among 2 answers and 15%"]
    """
    distinct = len(set(questions))
    faults = [f"only {distinct} distinct questions of {DRAWS}"] if distinct < 50 else []
    counted = count_answers(answers)
    total = counted.total()
    if 2 * total <= len(answers):
        return faults
    [(answer, times)] = counted.most_common(1)
    if times / total > 1 / max(2, len(counted)) + 0.15:
        faults.append(
            f"{shorten(answer)} answers {times / total:.0%} of the items, more than chance among "
            f"{len(counted)} answers and 15%"
        )
    if len(counted) < 50 and is_open(counted):
        faults.append(f"only {len(counted)} distinct answers of {total}")
    return faults


def count_answers(answers: Iterable[str | None]) -> Counter[str]:
    """Count the answers that there are, without the blanks around them."""
    return Counter(answer.strip() for answer in answers if answer is not None)


def is_open(counted: Counter[str]) -> bool:
    """Return whether most of the counted answers are longer than a number, a name or a choice."""
    long = sum(
        n for text, n in counted.items() if len(text) > 16 or len(text.split()) > 2
    )
    return 2 * long > counted.total()


def ladder_findings(proofs: Sequence[LevelProof]) -> list[Finding]:
    """Return what the items of a ladder show, and its levels beside each other."""
    findings = [finding for proof in proofs for finding in proof.weighty]

    def add(level: int | None, kind: str, detail: str) -> None:
        findings.append(
            Finding(
                check="levels",
                kind=kind,
                detail=detail,
                level=level,
                items=0,
            )
        )

    for proof in proofs:
        for subject, characters in (
            ("questions", proof.mean_characters),
            ("answers", proof.mean_answer_characters),
        ):
            if characters > MOST_CHARACTERS:
                add(proof.level, "long", f"{subject} of {characters:.0f} characters")
        if len(proof.questions) >= DRAWS:
            for fault in level_faults(proof.questions.values(), proof.answers.values()):
                add(proof.level, "degenerate", fault)
    for lower, upper in itertools.pairwise(proofs):
        if lower.parameters == upper.parameters:
            add(upper.level, "same level", f"the parameters of level {lower.level}")
        if have_same_questions(lower, upper):
            add(
                upper.level,
                "same level",
                f"nearly the questions of level {lower.level}",
            )
    return findings


def order_findings(levels: Sequence[LevelProof]) -> list[Finding]:
    """Return what speaks for levels in reverse order.

    One sign is a warning: with fewer clues, a shorter question is harder. Two signs count against
    the task.
    """
    if len(levels) < 2 or any(level.tried < FEWEST_ITEMS for level in levels):
        return []
    signs = []
    lengths = {
        "questions": [level.mean_characters for level in levels],
        "answers": [level.mean_answer_characters for level in levels],
    }
    for subject, means in lengths.items():
        if means[-1] < SHORTER * means[0] and _mostly_falls(means):
            signs.append(
                f"{subject} have {means[0]:.0f} characters at level 0 and {means[-1]:.0f} at level "
                f"{len(levels) - 1}"
            )
    guessed = [_most_frequent_share(level) for level in levels]
    rises = _mostly_falls([-share for share in guessed])
    if guessed[-1] > guessed[0] + EASIER_TO_GUESS and rises:
        signs.append(
            f"one answer is right for {guessed[0]:.0%} of level 0 and {guessed[-1]:.0%} of level "
            f"{len(levels) - 1}"
        )
    if not signs:
        return []
    return [
        Finding(
            check="levels",
            kind="reversed",
            detail=f"level 0 may be the hardest: {'; '.join(signs)}",
            verdict="failed" if len(signs) > 1 else "warning",
        )
    ]


def _mostly_falls(values: Sequence[float]) -> bool:
    falls = sum(upper < lower for lower, upper in itertools.pairwise(values))
    rises = sum(upper > lower for lower, upper in itertools.pairwise(values))
    return falls > rises


def _most_frequent_share(level: LevelProof) -> float:
    counted = count_answers(level.answers.values())
    return max(counted.values(), default=0) / max(1, len(level.answers))
