"""Stored groups scored again: same texts, present settings, no inference."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from ..errors import GenerationError
from ..records import Problem, Recipe
from ..scoring.grading import ScoringSettings, grade_texts
from ..util.progress import with_progress
from ..workers.pool import TaskPool, generate_surely
from .dumps import grade_row
from .score_changes import ScoreChange
from .stored import completion, question

Row = dict[str, Any]
LIBRARY = "reasoning-gym"
PACKAGE = "reasoning-gym-environment"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescored:
    """A stored group after another look.

    Attributes:
        row: scored anew; as it was where it could not be.
        changes: before and after of every rollout that was scored anew.
        kept: why the row is as it was; empty where it was scored anew.
        other_oracle: whether the problem's answer is another one now.
    """

    row: Row
    changes: Sequence[ScoreChange] = ()
    kept: str = ""
    other_oracle: bool = False


async def rescore(
    rows: Sequence[Row],
    pool: TaskPool,
    settings: ScoringSettings,
    *,
    concurrency: int,
) -> list[Rescored]:
    """Score all rows again, in the order given, with a progress bar on a terminal.

    Args:
        concurrency: rows at a time.
    """
    places = asyncio.Semaphore(concurrency)

    async def one(row: Row) -> Rescored:
        async with places:
            try:
                problem = await generate_surely(pool, Recipe.from_json(row["recipe"]))
            except GenerationError as error:
                return Rescored(row=row, kept=f"the problem can't be made again: {error}")
            if {question(rollout) for rollout in row["rollouts"]} != {problem.question}:
                return Rescored(row=row, kept=another_question(row))
            return await rescore_group(row, problem, pool, settings)

    return await with_progress([one(row) for row in rows], "rescoring")


def made_with(row: Row) -> str:
    """The version of the library that made the row's problem."""
    return str(row.get("library_versions", {}).get(LIBRARY, "an unknown version"))


def another_question(row: Row) -> str:
    """Says whether the library's version explains that a recipe gives another question."""
    installed = version(LIBRARY)
    if made_with(row) == installed:
        return f"the recipe gives another question, with {LIBRARY} {installed} as before"
    return (
        f"the recipe gives another question: made with {LIBRARY} {made_with(row)}, "
        f"installed is {installed}"
    )


async def rescore_group(
    row: Row, problem: Problem, pool: TaskPool, settings: ScoringSettings
) -> Rescored:
    """A rollout without tokens has no completion: the server gave none, and it stays as it is."""
    given = [rollout for rollout in row["rollouts"] if rollout["tokens"]]
    texts, lengths = [completion(r) for r in given], [r["tokens"] for r in given]
    grades = iter(await grade_texts(problem, texts, lengths, pool, settings))
    rollouts = [{**r, **grade_row(*next(grades))} if r["tokens"] else r for r in row["rollouts"]]
    after = {
        **row,
        "rollouts": rollouts,
        "oracle": problem.oracle,
        "scoring": settings.to_json(),
        "library_versions": {
            **row.get("library_versions", {}),
            **{name: version(name) for name in (LIBRARY, PACKAGE)},
        },
    }
    changes = [
        ScoreChange(task=problem.recipe.task, before=before, after=rollout)
        for before, rollout in zip(row["rollouts"], rollouts, strict=True)
        if before["tokens"]
    ]
    return Rescored(row=after, changes=changes, other_oracle=row["oracle"] != problem.oracle)
