"""What scoring stored rollouts again changed, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

REASONS = {
    "answer": "another answer is found in the text",
    "raw_score": "the verifier gives the answer another score",
    "status": "the same verifier score has another status",
    "score": "the same verdict has another reward (score mode, length penalty)",
}
"""What can differ, in the order in which a text becomes a score, and what that means."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreChange:
    """The stored record of one rollout, and what it is now; the same where nothing changed."""

    task: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def difference(self) -> float:
        """Of the scores; above 0 where it rose."""
        return float(self.after["score"]) - float(self.before["score"])

    @property
    def reason(self) -> str | None:
        """The first step from text to score that came out otherwise; None where none did."""
        differing = (key for key in REASONS if self.before[key] != self.after[key])
        return next((REASONS[key] for key in differing), None)


def describe_changes(changes: Sequence[ScoreChange]) -> list[str]:
    """Lines for people: how many scores moved, why, which statuses changed, and where.

    Example:
        >>> before = {"answer": "4", "raw_score": 0.0, "status": "wrong", "score": 0.0}
        >>> after = {"answer": "4", "raw_score": 1.0, "status": "solved", "score": 1.0}
        >>> change = ScoreChange(task="gcd", before=before, after=after)
        >>> print(*describe_changes([change]), sep="\\n")
        1 of 1 scores changed: 1 up, 0 down; mean 0.000 -> 1.000
        why:
          1  the verifier gives the answer another score
        status:
          1  wrong -> solved
        by task:
          gcd: 1 up, 0 down of 1; mean 0.000 -> 1.000
    """
    changed = [change for change in changes if change.reason]
    lines = [f"{_moved(changes)} of {len(changes)} scores changed: {_movement(changes)}"]
    reasons = Counter(change.reason or "" for change in changed)
    statuses = Counter(
        f"{c.before['status']} -> {c.after['status']}"
        for c in changed
        if c.before["status"] != c.after["status"]
    )
    lines += _counted("why:", reasons) + _counted("status:", statuses)
    tasks = sorted({change.task for change in changed})
    return lines + ["by task:"] * bool(tasks) + [_of_task(task, changes) for task in tasks]


def _counted(title: str, counts: Counter[str]) -> list[str]:
    """A title and, most frequent first, what was counted; nothing where nothing was."""
    rows = [f"  {count}  {what}" for what, count in counts.most_common()]
    return [title, *rows] if rows else []


def _moved(changes: Iterable[ScoreChange]) -> int:
    return sum(change.difference != 0 for change in changes)


def _movement(changes: Sequence[ScoreChange]) -> str:
    up = sum(change.difference > 0 for change in changes)
    down = sum(change.difference < 0 for change in changes)
    count = max(1, len(changes))
    before, after = (
        sum(float(scores["score"]) for scores in side) / count
        for side in ([c.before for c in changes], [c.after for c in changes])
    )
    return f"{up} up, {down} down; mean {before:.3f} -> {after:.3f}"


def _of_task(task: str, changes: Iterable[ScoreChange]) -> str:
    own = [change for change in changes if change.task == task]
    up_down, mean = _movement(own).split("; ")
    return f"  {task}: {up_down} of {len(own)}; {mean}"
