"""Scores stored texts again under the present settings, and says what that changed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

from ..errors import GenerationError
from ..records import Problem
from ..sandbox.pool import TaskPool, generate_surely
from ..scoring.grading import ScoringSettings, grade_texts
from ..util.progress import with_progress
from .rows import StoredGroup, StoredRollout

LIBRARY = "reasoning-gym"
PACKAGE = "reasoning-gym-environment"

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescored:
    """A stored group before and after another look.

    Attributes:
        after: scored anew; as it was where it could not be.
        kept: why the group is as it was; empty where it was scored anew.
    """

    before: StoredGroup
    after: StoredGroup
    kept: str = ""

    @property
    def changes(self) -> list[ScoreChange]:
        """Before and after of every rollout that was scored anew: those that have a completion."""
        return [
            ScoreChange(task=self.after.task, before=before, after=after)
            for before, after in zip(self.before.rollouts, self.after.rollouts, strict=True)
            if before.tokens and not self.kept
        ]

    @property
    def other_oracle(self) -> bool:
        """Whether the problem's answer is another one now."""
        return self.before.oracle != self.after.oracle


async def rescore(
    groups: Sequence[StoredGroup],
    pool: TaskPool,
    settings: ScoringSettings,
    *,
    concurrency: int,
) -> list[Rescored]:
    """Score all groups again, in the order given, with a progress bar on a terminal.

    Args:
        concurrency: groups at a time.
    """
    places = asyncio.Semaphore(concurrency)

    async def one(group: StoredGroup) -> Rescored:
        async with places:
            try:
                problem = await generate_surely(pool, group.recipe)
            except GenerationError as error:
                kept = f"the problem can't be made again: {error}"
                return Rescored(before=group, after=group, kept=kept)
            if {rollout.question for rollout in group.rollouts} != {problem.question}:
                return Rescored(before=group, after=group, kept=another_question(group))
            after = await rescore_group(group, problem, pool, settings)
            return Rescored(before=group, after=after)

    return await with_progress([one(group) for group in groups], "rescoring")


def made_with(group: StoredGroup) -> str:
    """Name the version of the library that made the group's problem."""
    return str(group.library_versions.get(LIBRARY, "an unknown version"))


def another_question(group: StoredGroup) -> str:
    """Say whether the library's version explains that a recipe gives another question."""
    installed = version(LIBRARY)
    if made_with(group) == installed:
        return f"the recipe gives another question, with {LIBRARY} {installed} as before"
    return (
        f"the recipe gives another question: made with {LIBRARY} {made_with(group)}, "
        f"installed is {installed}"
    )


async def rescore_group(
    group: StoredGroup, problem: Problem, pool: TaskPool, settings: ScoringSettings
) -> StoredGroup:
    """Score the rollouts that have tokens; the server gave no completion for the others."""
    given = [rollout for rollout in group.rollouts if rollout.tokens]
    texts, lengths = [r.text for r in given], [r.tokens for r in given]
    grades = iter(await grade_texts(problem, texts, lengths, pool, settings))
    present = {name: version(name) for name in (LIBRARY, PACKAGE)}
    return replace(
        group,
        rollouts=[r.graded(*next(grades)) if r.tokens else r for r in group.rollouts],
        oracle=problem.oracle,
        about={
            **group.about,
            "scoring": settings.to_json(),
            "library_versions": {**group.library_versions, **present},
        },
    )


def describe_rescoring(
    results: Sequence[Rescored], settings: ScoringSettings, *, torn: int
) -> Iterator[str]:
    """Tell people what was kept as it was, which settings differ and what changed, in lines."""
    kept = Counter(result.kept for result in results if result.kept)
    yield f"{len(results) - kept.total()} of {len(results)} groups scored again"
    if torn:
        yield f"  {torn}  torn lines left out"
    for reason, count in kept.most_common():
        yield f"  {count}  kept as they were: {reason}"
    if other := sum(result.other_oracle for result in results):
        yield f"  {other}  have another oracle than before"
    yield from _differences([result.before for result in results if not result.kept], settings)
    yield from describe_changes([change for result in results for change in result.changes])


def _differences(groups: Sequence[StoredGroup], settings: ScoringSettings) -> Iterator[str]:
    """Count the groups that were scored otherwise than now: another library, other settings."""
    installed = version(LIBRARY)
    for made, count in Counter(map(made_with, groups)).items():
        if made != installed:
            yield f"  {count}  were made with {LIBRARY} {made}, scored with {installed}"
    stored = [group.scoring for group in groups]
    for name, value in settings.to_json().items():
        differing = Counter(str(old[name]) for old in stored if old.get(name, value) != value)
        for before, count in differing.items():
            yield f"  {count}  were scored with {name} {before}, now {value}"


def describe_changes(changes: Sequence[ScoreChange]) -> list[str]:
    """Tell people how many scores moved, why, which statuses changed, and where, in lines.

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
    """Put rows below their title; give nothing where there are none."""
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
