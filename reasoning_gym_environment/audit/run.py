"""Run the audit through a real task pool: probes, levels, and floors without reasoning.

The best of hundreds of strategies is partly the luckiest, so a floor is chosen on some items and
measured on others.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from ..errors import GenerationError
from ..evaluation.estimators import share
from ..problems.seeds import evaluation_recipes
from ..records import SOLVED_SCORE, Ladder, Problem
from ..sandbox.pool import PoolSettings, TaskPool, default_processes
from ..tasks.catalogue import Discovery, require_known
from ..tasks.chance_floors import Floor, Floors
from ..tasks.facts import EXECUTES_ANSWERS, NOT_A_TASK, SLOW_ON_WRONG_ANSWERS
from ..util.progress import with_progress
from ._strategies import OWN_WORK, strategies
from .findings import (
    EMPTY,
    JUNK,
    Finding,
    Known,
    Observation,
    TaskAudit,
    constants_for,
    judge,
    probes_for,
)
from .ladder_proof import LevelProof, prove_level

_SEED = 1
_FLOOR_SEED = 2
_TASKS_AT_ONCE = 4
_LEVEL_ITEMS = 3
_FLOOR_ITEMS = 10
"""Items of a floor for each item of the probes."""

_EXECUTING_SHARE = 4
"""Divisor of the items of tasks that execute answers: each answer has a process of its own."""

_CHOOSING_SHARE = 3
"""Items that a floor is measured on for each item that it is chosen on."""

_FEWER = dict.fromkeys(EXECUTES_ANSWERS, 8) | dict.fromkeys(SLOW_ON_WRONG_ANSWERS, 15)
"""Divisor of the items that a floor is chosen on, for tasks whose answers take long to score."""

_SLOW = {"futoshiki": 2, "intermediate_integration": 3, "knight_swap": 3}
"""Divisor of all items of a floor, for tasks whose items take seconds to make or to score."""

Answers = Mapping[str, str]
"""Answers to one item by the labels of constants or strategies."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditSettings:
    """What is examined.

    Attributes:
        tasks: names; empty means every task.
        items: of each task at its default configuration; floors take ten times as many.
        known: findings to expect, by task and kind.
    """

    tasks: Sequence[str] = ()
    items: int = 30
    known: Mapping[str, Mapping[str, Known]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """The results of all tasks, and the version of the library."""

    library_version: str
    tasks: Sequence[TaskAudit]

    @property
    def unexplained(self) -> list[Finding]:
        """The findings to look at before one trains on these rewards."""
        findings = [finding for task in self.tasks for finding in task.findings]
        return [finding for finding in findings if not finding.explanation]


async def audit_tasks(settings: AuditSettings) -> Audit:
    """Examine the tasks, with a progress bar on a terminal.

    Raises:
        UnknownTaskError: a name in the settings is no task.
        WorkerStartError: the worker processes don't start.
    """
    places = asyncio.Semaphore(_TASKS_AT_ONCE)
    async with TaskPool(PoolSettings(processes=default_processes()), Counter()) as pool:
        tasks = chosen_tasks(await pool.discover(), settings.tasks)
        ladders = await pool.ladders()

        async def one(task: str, category: str) -> TaskAudit:
            async with places:
                return await audit_task(pool, task, category, ladders[task].levels, settings)

        audits = await with_progress([one(*item) for item in tasks.items()], "audit")
    return Audit(library_version=version("reasoning-gym"), tasks=audits)


def chosen_tasks(discovery: Discovery, names: Sequence[str]) -> dict[str, str]:
    """Return the named tasks, or all of them, with their categories; raises UnknownTaskError."""
    tasks = {
        name: category
        for name, category in sorted(discovery.categories.items())
        if name not in NOT_A_TASK
    }
    require_known(names, tasks, "--tasks", what="task")
    return {name: category for name, category in tasks.items() if not names or name in names}


async def audit_task(
    pool: TaskPool, task: str, category: str, levels: Ladder, settings: AuditSettings
) -> TaskAudit:
    """Examine one task."""
    items = settings.items
    if task in EXECUTES_ANSWERS:
        items = math.ceil(items / _EXECUTING_SHARE)
    default = await _prove(pool, task, None, {}, 2 * items)
    observations = await observe_defaults(pool, default.problems)
    proofs = [
        default,
        *[await _prove(pool, task, *level, _LEVEL_ITEMS) for level in enumerate(levels)],
    ]
    return judge(
        task,
        category,
        observations,
        proofs,
        floors=await find_floors(pool, task, _FLOOR_ITEMS * settings.items),
        known=settings.known,
    )


async def _prove(
    pool: TaskPool, task: str, level: int | None, parameters: Mapping[str, Any], items: int
) -> LevelProof:
    """Prove a level up to its first failure, which is a finding and may have taken long."""
    return await prove_level(
        pool, task, level, parameters, items=items, seed=_SEED, stop_at_failure=True
    )


async def observe_defaults(pool: TaskPool, problems: Sequence[Problem]) -> list[Observation]:
    """Try every probe on the second half of the problems; the first half gives the constants."""
    half = len(problems) // 2
    sources, examined = problems[:half], problems[half:]
    oracles = [problem.oracle for problem in sources if problem.oracle is not None]
    constants = constants_for(oracles)
    observations: list[Observation] = []
    for index, problem in enumerate(examined):
        others = [*oracles[index:], *oracles[:index]]
        probes = probes_for(problem.question, problem.oracle, constants=constants, others=others)
        verdicts = await pool.verify(problem, [probe.answer for probe in probes])
        pairs = zip(probes, verdicts, strict=True)
        observations += [Observation(probe=probe, verdict=verdict) for probe, verdict in pairs]
    return observations


async def find_floors(pool: TaskPool, task: str, items: int) -> Floors:
    """Return what the best constant and the best strategy solve of a task's default items.

    Args:
        items: to measure on; the answers are chosen on at most a third as many others.
    """
    items = math.ceil(items / _SLOW.get(task, 1))
    choosing = math.ceil(items / _CHOOSING_SHARE / _FEWER.get(task, 1))
    problems = await _problems(pool, task, choosing + items)
    first, others = problems[:choosing], problems[choosing:]
    constants = constants_to_try(
        [problem.oracle for problem in first if problem.oracle is not None]
    )
    tried = [await _scores(pool, one, constants, _copies(one)) for one in first]
    constant, strategy = map(best, zip(*tried, strict=True)) if tried else ("", "")
    measured = [
        await _scores(pool, one, {constant: constant}, _only(strategy, _copies(one)))
        for one in others
    ]
    return Floors(
        chance=floor(constant, [scores for scores, _ in measured]),
        no_reasoning=floor(strategy, [scores for _, scores in measured]),
    )


def _copies(problem: Problem) -> Answers:
    """Answer without reasoning, except by what the task itself asks for, such as a sum."""
    own_work = OWN_WORK.get(problem.recipe.task, ())
    answers = strategies(problem.question)
    return {label: text for label, text in answers.items() if not label.startswith(own_work)}


def _only(label: str, answers: Answers) -> Answers:
    return {label: answers[label]} if label in answers else {}


async def _problems(pool: TaskPool, task: str, count: int) -> list[Problem]:
    """Make problems, others in place of those that fail."""
    problems: list[Problem] = []
    for recipe in evaluation_recipes(_FLOOR_SEED, [task], 2 * count):
        if len(problems) == count:
            break
        try:
            problems.append(await pool.generate(recipe))
        except GenerationError:
            continue
    return problems


def constants_to_try(oracles: Sequence[str]) -> Answers:
    """Return the constants to try; blank ones are never extracted as an answer."""
    texts = [*EMPTY, *JUNK, *constants_for(oracles)]
    return {text: text for text in texts if text.strip()}


async def _scores(pool: TaskPool, problem: Problem, *tries: Answers) -> list[dict[str, float]]:
    """Score several sets of answers in one call."""
    verdicts = await pool.verify(problem, [text for own in tries for text in own.values()])
    scores = iter(verdict.score or 0.0 for verdict in verdicts)
    return [{label: next(scores) for label in own} for own in tries]


def best(scores: Sequence[Mapping[str, float]]) -> str:
    """Return the label that solves most items, of equal ones that with the higher total score.

    Args:
        scores: by label, one mapping an item; a missing label scores 0.

    Example:
        >>> best([{"a": 0.4, "b": 1.0}, {"a": 0.4, "b": 0.0}, {"a": 0.4}])
        'b'
    """
    totals: defaultdict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for item in scores:
        for label, score in item.items():
            solved, total = totals[label]
            totals[label] = (solved + (score >= SOLVED_SCORE), total + score)
    return max(totals, key=totals.__getitem__, default="")


def floor(label: str, scores: Sequence[Mapping[str, float]]) -> Floor:
    """Estimate the share of items that a label solves, with its interval.

    Args:
        scores: as for `best`; no items give the interval from 0 to 1.
    """
    if not scores:
        return Floor(label=label, items=0, solved=0.0, low=0.0, high=1.0)
    estimate = share([[float(item.get(label, 0.0) >= SOLVED_SCORE)] for item in scores])
    return Floor(
        label=label, items=len(scores), solved=estimate.value, low=estimate.low, high=estimate.high
    )
