"""Labels checked by independent solvers: false, ambiguous, and verifiers that disagree."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pickle import loads
from typing import Any

from ..errors import GenerationError
from ..problems.seeds import evaluation_recipes
from ..records import Ladder, Problem, Recipe
from ..sandbox.pool import PoolSettings, TaskPool, default_processes
from ..tasks.recipes import shorten
from ..util.progress import with_progress
from .findings import probes_for
from .run import chosen_tasks
from .solvers.registry import PROPERTIES, SOLVERS
from .solvers.solution import UnreadableQuestionError

_SEED = 3
_TASKS_AT_ONCE = 4
_VERIFIED = 30
"""Items of a task and level whose right and wrong answers go to the verifier."""


class Kind(str, Enum):
    """What is wrong with an item or with its verifier."""

    FALSE = "false label"
    UNANSWERABLE = "no right answer"
    AMBIGUOUS = "ambiguous"
    STRICT = "verifier too strict"
    LAX = "verifier too lax"
    VIOLATION = "property violated"
    UNREADABLE = "unreadable"


FAULTS = (Kind.FALSE, Kind.UNANSWERABLE, Kind.AMBIGUOUS, Kind.VIOLATION)
"""The kinds that are faults of the item itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """One item, or one answer to it, and what is wrong.

    Attributes:
        text: the answer that the verifier misjudges, else empty.
        detail: what the solver says.
    """

    kind: Kind
    recipe: Recipe
    question: str
    label: str | None
    text: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelAudit:
    """The labels of one task at its default or at one level.

    Attributes:
        level: None means the default configuration.
        items: that were checked.
        failed: items that could not be generated.
        examples: one for each fault that was found.
    """

    task: str
    level: int | None
    items: int
    failed: int
    examples: Sequence[Example]

    def count(self, *kinds: Kind) -> int:
        """Return the number of items with one of these kinds."""
        return len({e.recipe.seed for e in self.examples if e.kind in kinds})


class Examination:
    """What a solver says of one item; made in a process of its own, so it is plain data."""

    def __init__(self, task: str, question: str, label: str | None, others: Sequence[str]) -> None:
        solution = SOLVERS[task](question)
        self.label_is_right = label is None or solution.accepts(label)
        self.right = tuple(solution.right)
        self.ambiguous = solution.ambiguous
        self.wrong = tuple(
            text for text in (*solution.wrong, *others) if text and not solution.accepts(text)
        )


async def audit_labels(names: Sequence[str], *, items: int, level_items: int) -> list[LabelAudit]:
    """Check the labels of tasks, with a progress bar on a terminal.

    Args:
        names: of tasks; empty means every task.
        items: of each task at its default configuration.
        level_items: of each level of its ladder.

    Raises:
        UnknownTaskError: a name is unknown.
        WorkerStartError: the worker processes don't start.
    """
    places = asyncio.Semaphore(_TASKS_AT_ONCE)
    processes = default_processes()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as executor:
        async with TaskPool(PoolSettings(processes=processes), Counter()) as pool:
            tasks = chosen_tasks(await pool.discover(), names)
            ladders = await pool.ladders()

            async def one(task: str) -> list[LabelAudit]:
                async with places:
                    levels: Ladder = ladders[task].levels
                    return [
                        await audit_level(pool, executor, task, None, {}, items=items),
                        *[
                            await audit_level(pool, executor, task, *level, items=level_items)
                            for level in enumerate(levels)
                        ],
                    ]

            found = await with_progress([one(task) for task in tasks], "labels")
    return [audit for audits in found for audit in audits]


async def audit_level(
    pool: TaskPool,
    executor: Executor,
    task: str,
    level: int | None,
    parameters: Mapping[str, Any],
    *,
    items: int,
) -> LabelAudit:
    """Check the labels of one task at one level."""
    problems: list[Problem] = []
    failed = 0
    for one in evaluation_recipes(_SEED, [task], items):
        recipe = Recipe(task=task, seed=one.seed, level=level, parameters=parameters)
        try:
            problems.append(await pool.generate(recipe))
        except GenerationError:
            failed += 1
    examples: list[Example] = []
    for index, problem in enumerate(problems):
        if task in SOLVERS:
            examples += await _examine(pool, executor, problem, verified=index < _VERIFIED)
        elif task in PROPERTIES:
            examples += _check_property(problem)
    return LabelAudit(task=task, level=level, items=len(problems), failed=failed, examples=examples)


def _check_property(problem: Problem) -> list[Example]:
    violation = PROPERTIES[problem.recipe.task].violation(loads(problem.entry))
    return [_example(problem, Kind.VIOLATION, detail=violation)] if violation else []


def _example(problem: Problem, kind: Kind, *, text: str = "", detail: str = "") -> Example:
    return Example(
        kind=kind,
        recipe=problem.recipe,
        question=problem.question,
        label=problem.oracle,
        text=text,
        detail=detail,
    )


async def _examine(
    pool: TaskPool, executor: Executor, problem: Problem, *, verified: bool
) -> list[Example]:
    """Compare the label with the solver, and the verifier with both if `verified`."""
    label = problem.oracle
    probes = probes_for(problem.question, label, constants=(), others=()) if verified else []
    others = [probe.answer for probe in probes]
    examine: Callable[[], Examination]
    examine = partial(Examination, problem.recipe.task, problem.question, label, others)
    try:
        found = await asyncio.get_running_loop().run_in_executor(executor, examine)
    except UnreadableQuestionError as error:
        return [_example(problem, Kind.UNREADABLE, detail=str(error))]
    right = ", ".join(shorten(text) for text in found.right[:3])
    if not found.right:
        return [_example(problem, Kind.UNANSWERABLE, detail="no answer is right")]
    if not found.label_is_right:
        return [_example(problem, Kind.FALSE, detail=f"right: {right}")]
    if found.ambiguous:
        return [_example(problem, Kind.AMBIGUOUS, detail=f"{found.ambiguous}; right: {right}")]
    return await _disagreements(pool, problem, found) if verified else []


async def _disagreements(pool: TaskPool, problem: Problem, found: Examination) -> list[Example]:
    """Return the answers that the verifier judges otherwise than the solver."""
    verdicts = await pool.verify(problem, [*found.right, *found.wrong])
    strict, lax = verdicts[: len(found.right)], verdicts[len(found.right) :]
    strict_ones = [pair for pair in zip(found.right, strict, strict=True) if pair[1].score != 1.0]
    lax_ones = [pair for pair in zip(found.wrong, lax, strict=True) if pair[1].score == 1.0]
    return [
        _example(problem, kind, text=text, detail=f"the verifier pays {verdict.score}")
        for kind, pairs in ((Kind.STRICT, strict_ones), (Kind.LAX, lax_ones))
        for text, verdict in pairs
    ]


def as_text(audits: Sequence[LabelAudit]) -> str:
    """Return a table by task and level, and a minimal example of each kind and task."""
    lines = [f"reasoning-gym {version('reasoning-gym')}"]
    for audit in audits:
        kinds = ", ".join(f"{audit.count(k)} {k.value}" for k in Kind if audit.count(k))
        level = "default" if audit.level is None else f"level {audit.level}"
        lines.append(f"{audit.task} {level}: {audit.items} items; {kinds or 'no fault'}")
    return "\n".join([*lines, *_examples(audits)])


def _examples(audits: Sequence[LabelAudit]) -> list[str]:
    """Return the shortest example of each task and kind."""
    shortest: dict[tuple[str, Kind], Example] = {}
    for example in (each for audit in audits for each in audit.examples):
        key = example.recipe.task, example.kind
        if key not in shortest or len(example.question) < len(shortest[key].question):
            shortest[key] = example
    return [
        f"\n{e.recipe.task}: {e.kind.value}\n  recipe {json.dumps(e.recipe.to_json())}\n"
        f"  question {e.question!r}\n  label {e.label!r}\n  answer {e.text!r}: {e.detail}"
        for e in shortest.values()
    ]
