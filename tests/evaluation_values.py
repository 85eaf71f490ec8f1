"""Evaluation items for tests."""

from reasoning_gym_environment.evaluation.evaluated import EvaluatedItem, Outcome
from reasoning_gym_environment.records import Status


def outcome(score: float | None, *, tokens: int | None = 10, truncated: bool = False) -> Outcome:
    """Solved from 0.5 on; None is unscored."""
    status = Status.UNSCORED if score is None else Status.WRONG
    if score is not None and score >= 0.5:
        status = Status.SOLVED
    return Outcome(
        status=status, score=score, reward=score or 0.0, tokens=tokens, truncated=truncated
    )


def item(
    *scores: float | None, task: str = "gcd", key: str = "", difficulty: float | None = None
) -> EvaluatedItem:
    """One attempt for each score."""
    return EvaluatedItem(
        key=key, task=task, difficulty=difficulty, outcomes=tuple(outcome(s) for s in scores)
    )
