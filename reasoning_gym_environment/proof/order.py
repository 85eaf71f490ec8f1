"""Whether the levels of an own task become easier instead of harder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from .findings import Finding
from .ladder_proof import LevelProof, count_answers

FEWEST_ITEMS = 20
"""Items of a level from which its means are compared."""

SHORTER = 0.8
"""The hardest level's mean length, as a share of the easiest one's, from which on it is shorter."""

EASIER_TO_GUESS = 0.2
"""By how much more often the most frequent answer is right at the hardest level."""


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
    for what, means in lengths.items():
        if means[-1] < SHORTER * means[0] and _mostly_falls(means):
            signs.append(
                f"{what} have {means[0]:.0f} characters at level 0 and {means[-1]:.0f} at level "
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
    falls = sum(upper < lower for lower, upper in pairwise(values))
    rises = sum(upper > lower for lower, upper in pairwise(values))
    return falls > rises


def _most_frequent_share(level: LevelProof) -> float:
    answers = count_answers(level.answers.values())
    return max(answers.values(), default=0) / max(1, answers.total())
