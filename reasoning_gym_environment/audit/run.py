"""Runs the audit through a real task pool: generators make problems, verifier hosts score."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from ..records import Ladder, Problem
from ..sandbox.pool import PoolSettings, TaskPool, default_processes
from ..tasks.catalogue import Discovery, require_known
from ..tasks.facts import EXECUTES_ANSWERS, NOT_A_TASK
from ..util.progress import with_progress
from .findings import Finding, Observation, TaskAudit, judge
from .floors import find_floors
from .known import Known
from .ladder_proof import LevelProof, prove_level
from .probes import Probe, constants_for, probes_for

_SEED = 1
_TASKS_AT_ONCE = 4
_LEVEL_ITEMS = 3
_FLOOR_ITEMS = 10
"""For each item that is examined: a floor is a figure to compare with, not a search for faults."""

_EXECUTING_SHARE = 4
"""Tasks that execute answers are examined on fewer items: each answer has its own process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditSettings:
    """What is examined.

    Attributes:
        tasks: names; empty is every task.
        items: of each task, at its default configuration; floors take ten times as many.
        known: findings that are no news, by task and kind.
    """

    tasks: Sequence[str] = ()
    items: int = 30
    known: Mapping[str, Mapping[str, Known]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """The whole result, and the library version it is about."""

    library_version: str
    tasks: Sequence[TaskAudit]


async def observe(pool: TaskPool, problem: Problem, probes: Sequence[Probe]) -> list[Observation]:
    """Try probes on one problem."""
    verdicts = await pool.verify(problem, [probe.answer for probe in probes])
    return [Observation(probe=p, verdict=v) for p, v in zip(probes, verdicts, strict=True)]


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
        observations += await observe(pool, problem, probes)
    return observations


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
        seconds=[verdict.seconds for proof in proofs for verdict in proof.verdicts],
        known=settings.known,
    )


async def _prove(
    pool: TaskPool, task: str, level: int | None, parameters: Mapping[str, Any], items: int
) -> LevelProof:
    """Prove a level as far as its first failure: one is a finding, and a late one takes long."""
    return await prove_level(
        pool, task, level, parameters, items=items, seed=_SEED, stop_at_failure=True
    )


def chosen_tasks(discovery: Discovery, names: Sequence[str]) -> dict[str, str]:
    """Choose the tasks to examine, with their categories: those named, or all.

    Raises:
        UnknownTaskError: a name is no task.
    """
    tasks = {
        name: category
        for name, category in sorted(discovery.categories.items())
        if name not in NOT_A_TASK
    }
    require_known(names, tasks, "--tasks", what="task")
    return {name: category for name, category in tasks.items() if not names or name in names}


async def audit_tasks(settings: AuditSettings) -> Audit:
    """Examine the tasks, with a progress bar on a terminal.

    Raises:
        UnknownTaskError: a name in the settings is no task.
        WorkerStartError: the worker processes don't come up.
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


def unexplained(audit: Audit) -> list[Finding]:
    """List what a user should look at before training on these rewards."""
    return [finding for task in audit.tasks for finding in task.findings if not finding.explanation]
