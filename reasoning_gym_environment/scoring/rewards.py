"""From verdicts to the rewards of a group: score mode, length penalty, training signal."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from ..records import UPSTREAM_THRESHOLD, Reward, Signal, Status, Verdict


def length_factor(length: int, max_length: int, start: float) -> float:
    """Return the factor of the length penalty.

    Args:
        length: prompt and completion tokens.
        max_length: the length at which the factor is 0.
        start: fraction of `max_length`, in [0, 1), up to which it is 1.

    Example:
        >>> length_factor(875, max_length=1000, start=0.75)
        0.5
    """
    free = start * max_length
    if length <= free:
        return 1.0
    return max(0.0, (max_length - length) / (max_length - free))


class ScoreMode(str, Enum):
    """How partial credit enters the reward."""

    PARTIAL = "partial"
    THRESHOLD = "threshold"
    BINARY = "binary"


def apply_mode(mode: ScoreMode, score: float, threshold: float) -> float:
    """Return the score: as it is, 0 below the threshold, or 1 only at full credit."""
    if mode is ScoreMode.BINARY:
        return float(score >= 1.0)
    if mode is ScoreMode.THRESHOLD and score < threshold:
        return 0.0
    return score


def shape_rewards(
    verdicts: Sequence[Verdict],
    lengths: Sequence[int],
    *,
    max_length: int,
    penalty_start: float,
    mode: ScoreMode = ScoreMode.PARTIAL,
    threshold: float = UPSTREAM_THRESHOLD,
) -> list[Reward]:
    """Return the rewards of one group, in order.

    The length penalty applies only if every score reaches the threshold: among right answers the
    shorter one is better; a wrong short answer is not. An unscored rollout gets the mean of the
    others, which changes no other advantage; the trainer is told to drop its own.
    """
    penalized = all(v.score is not None and v.score >= threshold for v in verdicts)
    known = [apply_mode(mode, v.score, threshold) for v in verdicts if v.score is not None]
    neutral = sum(known) / len(known) if known else 0.0
    rewards = []
    for verdict, length in zip(verdicts, lengths, strict=True):
        factor = length_factor(length, max_length, penalty_start) if penalized else 1.0
        given = verdict.score
        score = neutral if given is None else apply_mode(mode, given, threshold)
        rewards.append(Reward(value=score * factor, score=given, length_factor=factor))
    return rewards


def signal(verdicts: Sequence[Verdict]) -> Signal | None:
    """Return the training signal of a group; None if no rollout is scored."""
    solved = {v.status is Status.SOLVED for v in verdicts if v.status is not Status.UNSCORED}
    if not solved:
        return None
    if len(solved) == 2:
        return Signal.MIXED
    return Signal.ALL_SOLVED if solved.pop() else Signal.NONE_SOLVED
