"""What scoring stored rollouts again changed, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .rows import StoredRollout

REASONS = {
    "answer": "another answer is found in the text",
    "raw_score": "the verifier gives the answer another score",
    "status": "the same verifier score has another status",
    "score": "the same verdict has another reward (score mode, length penalty)",
}
"""What can differ, in the order in which a text becomes a score, and what that means."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreChange:
    """One rollout as it was stored, and as it is now; the same where nothing changed."""

    task: str
    before: StoredRollout
    after: StoredRollout

    @property
    def difference(self) -> float:
        """What was added to the score; above 0 where it rose."""
        return self.after.score - self.before.score

    @property
    def reason(self) -> str | None:
        """The first step from text to score that came out otherwise; None where none did."""
        return next(
            (
                reason
                for key, reason in REASONS.items()
                if getattr(self.before, key) != getattr(self.after, key)
            ),
            None,
        )


def describe_changes(changes: Sequence[ScoreChange]) -> list[str]:
    """Lines for people: how many scores moved, why, which statuses changed, and where.

    Example:
        >>> wrong = {"conversation": [], "answer": "4", "status": "wrong", "detail": "",
        ...     "score": 0.0, "raw_score": 0.0, "raw_form_score": 0.0, "tagged_form_score": 0.0,
        ...     "length_factor": 1.0, "finish_reason": "stop", "tokens": 9, "completion_tokens": 4}
        >>> before = StoredRollout.from_json(wrong)
        >>> solved = {"status": "solved", "score": 1.0, "raw_score": 1.0}
        >>> after = StoredRollout.from_json({**wrong, **solved})
        >>> change = ScoreChange(task="gcd", before=before, after=after)
        >>> print(*describe_changes([change]), sep="\\n")
        1 of 1 scores changed, 1 up, 0 down; mean 0.000 -> 1.000
        why:
          1  the verifier gives the answer another score
        status:
          1  wrong -> solved
        by task:
          gcd: 1 of 1 scores changed, 1 up, 0 down; mean 0.000 -> 1.000
    """
    changed = [change for change in changes if change.reason]
    reasons = Counter(change.reason or "" for change in changed)
    statuses = Counter(
        f"{change.before.status.value} -> {change.after.status.value}"
        for change in changed
        if change.before.status is not change.after.status
    )
    tasks = sorted({change.task for change in changed})
    own = {task: [change for change in changes if change.task == task] for task in tasks}
    return [
        _movement(changes),
        *_titled("why:", [f"{count}  {what}" for what, count in reasons.most_common()]),
        *_titled("status:", [f"{count}  {what}" for what, count in statuses.most_common()]),
        *_titled("by task:", [f"{task}: {_movement(own[task])}" for task in tasks]),
    ]


def _titled(title: str, rows: Sequence[str]) -> list[str]:
    """Rows below their title; nothing where there are none."""
    return [title, *(f"  {row}" for row in rows)] if rows else []


def _movement(changes: Sequence[ScoreChange]) -> str:
    up = sum(change.difference > 0 for change in changes)
    down = sum(change.difference < 0 for change in changes)
    before = _mean([change.before.score for change in changes])
    after = _mean([change.after.score for change in changes])
    moved = f"{up + down} of {len(changes)} scores changed, {up} up, {down} down"
    return f"{moved}; mean {before:.3f} -> {after:.3f}"


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores) if scores else 0.0
