"""Proof of ladders: problems generate in time, their answers are right, levels differ."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import GenerationError, WorkerTimeoutError
from ..problems.sampler import evaluation_recipes
from ..records import Problem, Recipe, Verdict
from ..sandbox.pool import TaskPool
from ..tasks.ladders import TaskLadder
from ..util.progress import with_progress


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelProof:
    """The problems of one level of a task, and the verdicts on their answers.

    Attributes:
        level: None means the default configuration.
        verdicts: on the answers of the problems that have one.
        errors: one text for each item that can't be generated.
        late: the same for items that exceed the deadline.
        seconds: to generate each problem.
    """

    task: str
    level: int | None
    parameters: Mapping[str, Any]
    problems: Sequence[Problem]
    verdicts: Sequence[Verdict] = ()
    errors: Sequence[str] = ()
    late: Sequence[str] = ()
    seconds: Sequence[float] = ()

    @property
    def questions(self) -> dict[int, str]:
        """Questions by seed."""
        return {problem.recipe.seed: problem.question for problem in self.problems}

    @property
    def without_oracle(self) -> int:
        """Number of problems without a single right answer."""
        return len(self.problems) - len(self.verdicts)

    @property
    def wrong_oracles(self) -> list[str]:
        """Verdicts on the problems' own answers without full credit, as text."""
        return [f"{v.status.value} {v.score}" for v in self.verdicts if v.score != 1.0]

    @property
    def mean_seconds(self) -> float:
        return sum(self.seconds) / max(1, len(self.seconds))

    @property
    def mean_characters(self) -> float:
        return sum(map(len, self.questions.values())) / max(1, len(self.questions))


async def prove_level(
    pool: TaskPool,
    task: str,
    level: int | None,
    parameters: Mapping[str, Any],
    *,
    items: int,
    seed: int = 7,
    stop_at_failure: bool = False,
) -> LevelProof:
    """Generate items of one level in sequence, and score their own answers."""
    problems: list[Problem] = []
    errors: list[str] = []
    late: list[str] = []
    seconds: list[float] = []
    for one in evaluation_recipes(seed, [task], items):
        recipe = Recipe(task=task, seed=one.seed, level=level, parameters=parameters)
        started = time.perf_counter()
        try:
            problems.append(await pool.generate(recipe))
        except GenerationError as error:
            is_late = isinstance(error.__cause__, WorkerTimeoutError)
            (late if is_late else errors).append(str(error))
            if stop_at_failure:
                break
            continue
        seconds.append(time.perf_counter() - started)
    return LevelProof(
        task=task,
        level=level,
        parameters=parameters,
        problems=problems,
        verdicts=await verify_oracles(pool, problems),
        errors=errors,
        late=late,
        seconds=seconds,
    )


async def verify_oracles(pool: TaskPool, problems: Sequence[Problem]) -> list[Verdict]:
    """Score the oracles of the problems that have one."""
    return [
        verdict
        for problem in problems
        if problem.oracle is not None
        for verdict in await pool.verify(problem, [problem.oracle])
    ]


async def prove_ladders(
    pool: TaskPool, ladders: Mapping[str, TaskLadder], *, items: int, at_once: int
) -> list[list[LevelProof]]:
    """Prove all levels of every ladder with the same seeds, `at_once` tasks at a time.

    With more tasks at a time than the pool has processes, the seconds include waiting.
    """
    places = asyncio.Semaphore(at_once)

    async def one(task: str, ladder: TaskLadder) -> list[LevelProof]:
        async with places:
            return [
                await prove_level(pool, task, level, parameters, items=items)
                for level, parameters in enumerate(ladder.levels)
            ]

    return await with_progress([one(*item) for item in ladders.items()], "ladders")


def changed_share(lower: LevelProof, upper: LevelProof) -> float:
    """Return the share of common seeds whose questions differ, in [0, 1]."""
    below, above = lower.questions, upper.questions
    common = below.keys() & above.keys()
    return sum(below[seed] != above[seed] for seed in common) / max(1, len(common))


def faults(proofs: Sequence[LevelProof]) -> list[str]:
    """Return the faults of a ladder, one sentence each."""
    found = []
    for proof in proofs:
        where = f"{proof.task} level {proof.level}:"
        found += [f"{where} {error}" for error in (*proof.errors, *proof.late)]
        found += [f"{where} the answer of an item is {wrong}" for wrong in proof.wrong_oracles]
        # A run caps its ladders by the model's own limit.
        if proof.mean_characters > 30_000:
            found.append(f"{where} questions of {proof.mean_characters:.0f} characters")
    # For equal seeds, neighboring levels must differ in a tenth of the questions.
    for lower, upper in itertools.pairwise(proofs):
        where = f"{upper.task} levels {lower.level} and {upper.level}:"
        if lower.parameters == upper.parameters:
            found.append(f"{where} equal parameters")
        if changed_share(lower, upper) < 0.1:
            found.append(f"{where} nearly equal questions")
    return found
