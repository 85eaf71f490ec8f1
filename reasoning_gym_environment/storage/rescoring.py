"""Stored groups scored again: same texts, present settings, no inference."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

from ..records import Problem
from ..scoring.grading import ScoringSettings, grade_texts
from ..util.progress import with_progress
from ..workers.errors import GenerationError
from ..workers.generation import generate_surely
from ..workers.pool import TaskPool
from .rows import StoredGroup
from .score_changes import ScoreChange

LIBRARY = "reasoning-gym"
PACKAGE = "reasoning-gym-environment"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescored:
    """A stored group after another look.

    Attributes:
        group: scored anew; as it was where it could not be.
        changes: before and after of every rollout that was scored anew.
        kept: why the group is as it was; empty where it was scored anew.
        other_oracle: whether the problem's answer is another one now.
    """

    group: StoredGroup
    changes: Sequence[ScoreChange] = ()
    kept: str = ""
    other_oracle: bool = False


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
                return Rescored(group=group, kept=f"the problem can't be made again: {error}")
            if {rollout.question for rollout in group.rollouts} != {problem.question}:
                return Rescored(group=group, kept=another_question(group))
            return await rescore_group(group, problem, pool, settings)

    return await with_progress([one(group) for group in groups], "rescoring")


def made_with(group: StoredGroup) -> str:
    """The version of the library that made the group's problem."""
    return str(group.library_versions.get(LIBRARY, "an unknown version"))


def another_question(group: StoredGroup) -> str:
    """Says whether the library's version explains that a recipe gives another question."""
    installed = version(LIBRARY)
    if made_with(group) == installed:
        return f"the recipe gives another question, with {LIBRARY} {installed} as before"
    return (
        f"the recipe gives another question: made with {LIBRARY} {made_with(group)}, "
        f"installed is {installed}"
    )


async def rescore_group(
    group: StoredGroup, problem: Problem, pool: TaskPool, settings: ScoringSettings
) -> Rescored:
    """Score the rollouts that have tokens; the server gave no completion for the others."""
    given = [rollout for rollout in group.rollouts if rollout.tokens]
    texts, lengths = [r.text for r in given], [r.tokens for r in given]
    grades = iter(await grade_texts(problem, texts, lengths, pool, settings))
    rollouts = [r.graded(*next(grades)) if r.tokens else r for r in group.rollouts]
    present = {name: version(name) for name in (LIBRARY, PACKAGE)}
    after = replace(
        group,
        rollouts=rollouts,
        oracle=problem.oracle,
        about={
            **group.about,
            "scoring": settings.to_json(),
            "library_versions": {**group.library_versions, **present},
        },
    )
    changes = [
        ScoreChange(task=group.task, before=before, after=rollout)
        for before, rollout in zip(group.rollouts, rollouts, strict=True)
        if before.tokens
    ]
    return Rescored(group=after, changes=changes, other_oracle=group.oracle != problem.oracle)
