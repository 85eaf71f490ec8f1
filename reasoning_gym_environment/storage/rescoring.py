"""Rescoring of stored completions with the current settings, and a summary of what changed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import fmean

from msgspec.structs import replace

from ..errors import GenerationError
from ..records import Problem
from ..sandbox.pool import TaskPool
from ..scoring.grading import ScoringSettings, grade_texts
from ..tasks.facts import LIBRARY
from ..util.progress import with_progress
from .rows import StoredGroup, StoredRollout, fault_of, grade_fields

REASONS = {
    "answer": "another answer is extracted from the text",
    "raw_score": "the verifier gives the answer another score",
    "status": "the same verifier score has another status",
    "score": "the same verdict has another reward (score mode, length penalty)",
}
"""What can differ, in the order in which a text becomes a score."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreChange:
    """One rollout as stored and as rescored."""

    task: str
    before: StoredRollout
    after: StoredRollout

    @property
    def difference(self) -> float:
        return self.after.score - self.before.score

    @property
    def reason(self) -> str | None:
        """The first step from text to score with another result; None if nothing changed."""
        for key, reason in REASONS.items():
            if getattr(self.before, key) != getattr(self.after, key):
                return reason
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescored:
    """A stored group before and after rescoring.

    Attributes:
        made_with: the library or module of its task, its version then and the one here.
        kept: why it could not be rescored; empty if it was.
    """

    before: StoredGroup
    after: StoredGroup
    made_with: tuple[str, str, str]
    kept: str = ""

    @property
    def changes(self) -> list[ScoreChange]:
        """All rescored rollouts: those with a completion."""
        return [
            ScoreChange(task=self.after.task, before=before, after=after)
            for before, after in zip(
                self.before.rollouts, self.after.rollouts, strict=True
            )
            if before.tokens and not self.kept
        ]


async def rescore(
    groups: Sequence[StoredGroup],
    pool: TaskPool,
    settings: ScoringSettings,
    *,
    concurrency: int,
) -> list[Rescored]:
    """Rescore all groups, in the order given, with a progress bar on a terminal."""
    slots = asyncio.Semaphore(concurrency)

    async def rescore_one(group: StoredGroup) -> Rescored:
        made_with = LIBRARY, group.library_version, version(LIBRARY)
        module = pool.module_of(group.task)
        if module:
            then = str(group.library_versions.get(module, "an unknown version"))
            made_with = module, then, pool.versions[module]
        library, stored, installed = made_with
        async with slots:
            try:
                problem = await pool.generate_fixed(group.recipe)
            except GenerationError as error:
                kept = f"the problem can't be regenerated: {error}"
                return Rescored(
                    before=group,
                    after=group,
                    made_with=made_with,
                    kept=kept,
                )
            if {rollout.question for rollout in group.rollouts} != {problem.question}:
                how = f": generated with {library} {stored}, installed is {installed}"
                if stored == installed:
                    how = f" with the same {library} {installed}"
                kept = f"the recipe gives another question{how}"
                return Rescored(
                    before=group,
                    after=group,
                    made_with=made_with,
                    kept=kept,
                )
            after = await _rescore_group(group, problem, pool, settings)
            return Rescored(before=group, after=after, made_with=made_with)

    return await with_progress([rescore_one(group) for group in groups], "rescoring")


async def _rescore_group(
    group: StoredGroup,
    problem: Problem,
    pool: TaskPool,
    settings: ScoringSettings,
) -> StoredGroup:
    """Rescore the rollouts that have a completion."""
    completed = [rollout for rollout in group.rollouts if rollout.tokens]
    texts = [r.text for r in completed]
    lengths = [r.tokens for r in completed]
    grades = iter(await grade_texts(problem, texts, lengths, pool, settings))
    installed = {name: version(name) for name in (LIBRARY, "reasoning-gym-environment")}
    return replace(
        group,
        rollouts=[
            replace(r, **grade_fields(*next(grades))) if r.tokens else r
            for r in group.rollouts
        ],
        recipe=problem.recipe,
        oracle=problem.oracle,
        scoring=settings.to_json(),
        library_versions={**group.library_versions, **installed, **pool.versions},
        fault=fault_of(problem),
        source=problem.source,
        chance=problem.constant_baseline,
    )


def describe_rescoring(
    results: Sequence[Rescored], settings: ScoringSettings, *, torn: int
) -> Iterator[str]:
    """Yield the lines of the summary: unchanged groups, differing settings, changed scores."""
    kept = Counter(result.kept for result in results if result.kept)
    yield f"{len(results) - kept.total()} of {len(results)} groups rescored"
    if torn:
        yield f"  {torn}  torn lines skipped"
    for reason, count in kept.most_common():
        yield f"  {count}  unchanged: {reason}"
    other_oracles = sum(
        result.before.oracle != result.after.oracle for result in results
    )
    if other_oracles:
        yield f"  {other_oracles}  have another oracle now"
    faulty = sum(result.after.is_faulty for result in results)
    if faulty:
        yield f"  {faulty}  have faulty items; --without-faulty-items leaves them out"
    done = [result for result in results if not result.kept]
    for (library, then, now), count in Counter(
        result.made_with for result in done
    ).items():
        if then != now:
            yield f"  {count}  were generated with {library} {then}, scored with {now}"
    yield from _differences([result.before for result in done], settings)
    yield from describe_changes(
        [change for result in results for change in result.changes]
    )


def _differences(
    groups: Sequence[StoredGroup], settings: ScoringSettings
) -> Iterator[str]:
    """Count the groups that were scored with other settings."""
    for name, value in settings.to_json().items():
        scorings: list[Mapping[str, object]] = [
            {"answer_format": group.answer_format, **group.scoring} for group in groups
        ]
        differing = Counter(
            str(old[name]) for old in scorings if old.get(name, value) != value
        )
        for before, count in differing.items():
            yield f"  {count}  were scored with {name} {before}, now {value}"


def describe_changes(changes: Sequence[ScoreChange]) -> list[str]:
    """Return lines on how many scores changed, why, between which statuses, and by task."""
    changed = [change for change in changes if change.reason]
    reasons = Counter(change.reason or "" for change in changed)
    statuses = Counter(
        f"{change.before.status.value} -> {change.after.status.value}"
        for change in changed
        if change.before.status is not change.after.status
    )
    tasks = sorted({change.task for change in changed})
    changes_by_task = {
        task: [change for change in changes if change.task == task] for task in tasks
    }
    return [
        _movement(changes),
        *_titled(
            "reasons:",
            [f"{count}  {reason}" for reason, count in reasons.most_common()],
        ),
        *_titled(
            "statuses:",
            [f"{count}  {change}" for change, count in statuses.most_common()],
        ),
        *_titled(
            "tasks:", [f"{task}: {_movement(changes_by_task[task])}" for task in tasks]
        ),
    ]


def _titled(title: str, rows: Sequence[str]) -> list[str]:
    """Return rows below their title; nothing without rows."""
    return [title, *(f"  {row}" for row in rows)] if rows else []


def _movement(changes: Sequence[ScoreChange]) -> str:
    up = sum(change.difference > 0 for change in changes)
    down = sum(change.difference < 0 for change in changes)
    before = fmean([change.before.score for change in changes] or [0.0])
    after = fmean([change.after.score for change in changes] or [0.0])
    moved = f"{up + down} of {len(changes)} scores changed, {up} up, {down} down"
    return f"{moved}; mean {before:.3f} -> {after:.3f}"
