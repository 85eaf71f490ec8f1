"""Proves a ladder: every level gives problems in time, the answers hold, and levels differ."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import GenerationError
from ..problems.seeds import evaluation_recipes
from ..records import Problem, Recipe
from ..tasks.ladders import TaskLadder
from ..util.progress import with_progress
from ..workers.pool import TaskPool

MAX_CHARACTERS = 30_000
"""The longest question of a level; shorter budgets cap the ladder where the model is known."""

LEAST_CHANGED = 0.1
"""Of the questions that equal seeds give on neighbouring levels."""

_SEED = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelProof:
    """What one level gave.

    Attributes:
        questions: by seed; what could not be made is missing.
        errors: why it is missing, one text an item.
        seconds: each item took to make, with the dataset where it was not kept.
        wrong_oracles: the entries' own answers with a score below 1.
    """

    task: str
    level: int
    parameters: Mapping[str, Any]
    questions: Mapping[int, str]
    errors: Sequence[str]
    seconds: Sequence[float]
    wrong_oracles: Sequence[str]

    @property
    def mean_seconds(self) -> float:
        return sum(self.seconds) / max(1, len(self.seconds))

    @property
    def mean_characters(self) -> float:
        return sum(map(len, self.questions.values())) / max(1, len(self.questions))


async def prove_level(
    pool: TaskPool, task: str, level: int, parameters: Mapping[str, Any], *, items: int
) -> LevelProof:
    """Make items of one level, one after the other, and score the answers they bring."""
    questions: dict[int, str] = {}
    errors: list[str] = []
    seconds: list[float] = []
    wrong: list[str] = []
    for one in evaluation_recipes(_SEED, [task], items):
        recipe = Recipe(task=task, seed=one.seed, level=level, parameters=parameters)
        started = time.perf_counter()
        try:
            problem = await pool.generate(recipe)
        except GenerationError as error:
            errors.append(str(error))
            continue
        seconds.append(time.perf_counter() - started)
        questions[one.seed] = problem.question
        wrong += await _wrong_oracle(pool, problem)
    return LevelProof(
        task=task,
        level=level,
        parameters=parameters,
        questions=questions,
        errors=errors,
        seconds=seconds,
        wrong_oracles=wrong,
    )


async def _wrong_oracle(pool: TaskPool, problem: Problem) -> list[str]:
    """The verdict on the problem's own answer, unless it has full credit."""
    if problem.oracle is None:
        return []
    [verdict] = await pool.verify(problem, [problem.oracle])
    return [] if verdict.score == 1.0 else [f"{verdict.status.value} {verdict.score}"]


async def prove_ladder(
    pool: TaskPool, task: str, ladder: TaskLadder, *, items: int
) -> list[LevelProof]:
    """All levels, with the same seeds."""
    return [
        await prove_level(pool, task, level, parameters, items=items)
        for level, parameters in enumerate(ladder.levels)
    ]


async def prove_ladders(
    pool: TaskPool, ladders: Mapping[str, TaskLadder], *, items: int, at_once: int
) -> list[list[LevelProof]]:
    """Every ladder, so many tasks at once; a progress bar on a terminal.

    With more tasks at once than the pool has processes, the seconds are those of waiting too.
    """
    places = asyncio.Semaphore(at_once)

    async def one(task: str, ladder: TaskLadder) -> list[LevelProof]:
        async with places:
            return await prove_ladder(pool, task, ladder, items=items)

    return await with_progress([one(*item) for item in ladders.items()], "ladders")


def changed_share(lower: LevelProof, upper: LevelProof) -> float:
    """How many of the seeds that both levels have give another question."""
    common = lower.questions.keys() & upper.questions.keys()
    return sum(lower.questions[s] != upper.questions[s] for s in common) / max(1, len(common))


def faults(proofs: Sequence[LevelProof]) -> list[str]:
    """What keeps a ladder from being proved, one sentence each."""
    found = []
    for proof in proofs:
        where = f"{proof.task} level {proof.level}:"
        found += [f"{where} {error}" for error in proof.errors]
        found += [f"{where} the answer of an item is {wrong}" for wrong in proof.wrong_oracles]
        if proof.mean_characters > MAX_CHARACTERS:
            found.append(f"{where} questions of {proof.mean_characters:.0f} characters")
    for lower, upper in itertools.pairwise(proofs):
        where = f"{upper.task} levels {lower.level} and {upper.level}:"
        if lower.parameters == upper.parameters:
            found.append(f"{where} equal parameters")
        if changed_share(lower, upper) < LEAST_CHANGED:
            found.append(f"{where} nearly equal questions")
    return found
