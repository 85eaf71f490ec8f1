"""Evaluation samples for tests."""

import itertools

from msgspec.structs import replace

from reasoning_gym_environment.records import Recipe, Status
from reasoning_gym_environment.storage.rows import StoredGroup, StoredRollout
from reasoning_gym_environment.tasks.catalogue import bundled_snapshot

NUMBERS = itertools.count()


def asked(rollout: StoredRollout, question: str) -> StoredRollout:
    _, answer = rollout.conversation
    return replace(
        rollout, conversation=[{"role": "user", "content": question}, answer]
    )


def outcome(
    score: float | None,
    *,
    question: str = "",
    tokens: int | None = 10,
    truncated: bool = False,
) -> StoredRollout:
    """Solved from 0.5 on; None is unscored.

    Args:
        tokens: of the completion; None where the server gave none.
    """
    status = Status.UNSCORED if score is None else Status.WRONG
    if score is not None and score >= 0.5:
        status = Status.SOLVED
    return StoredRollout(
        conversation=[
            {"role": "user", "content": question},
            {"role": "assistant", "content": "4"},
        ],
        score=score or 0.0,
        answer="4",
        status=status,
        detail="",
        raw_score=score,
        raw_form_score=score,
        tagged_form_score=None,
        length_factor=1.0,
        verify_seconds=0.0,
        finish_reason="length" if truncated else "stop",
        tokens=0 if tokens is None else tokens + 3,
        completion_tokens=tokens or 0,
    )


def sample(
    *outcomes: StoredRollout, task: str = "gcd", difficulty: float | None = None
) -> StoredGroup:
    """A sample of these rollouts; without a question, of one that no other sample asks."""
    if not outcomes[0].question:
        question = f"question {next(NUMBERS)}"
        outcomes = tuple(asked(each, question) for each in outcomes)
    recipe = Recipe(task=task, seed=3, level=None if difficulty is None else 1)
    return StoredGroup(
        rollouts=list(outcomes), recipe=recipe, oracle="4", sampled_at=difficulty
    )


def item(
    *scores: float | None,
    task: str = "gcd",
    key: str = "",
    difficulty: float | None = None,
) -> StoredGroup:
    """One attempt for each score; the key is what was asked."""
    outcomes = (outcome(score, question=key) for score in scores)
    return sample(*outcomes, task=task, difficulty=difficulty)


def sampled(
    task: str,
    level: int | None,
    *scores: float | None,
    seed: int = 3,
) -> StoredGroup:
    """A sample at a level of a task's ladder."""
    snapshot = bundled_snapshot()
    assert snapshot is not None
    parameters = {} if level is None else snapshot.ladders[task].levels[level]
    recipe = Recipe(task=task, seed=seed, level=level, parameters=parameters)
    return replace(item(*scores, task=task, difficulty=level and 0.5), recipe=recipe)
