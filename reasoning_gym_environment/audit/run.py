"""The audit through a real task pool: probes, levels, and floors without reasoning.

The best of hundreds of strategies is partly the luckiest, so a floor is chosen on one set of items
and measured on another.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from ..errors import GenerationError
from ..evaluation.estimators import share
from ..problems.sampler import evaluation_recipes
from ..problems.stream import skip_faulty
from ..records import Ladder, Problem
from ..sandbox.pool import PoolSettings, TaskPool, default_processes
from ..tasks.catalogue import Discovery, require_known
from ..tasks.facts import (
    EXECUTES_ANSWERS,
    NOT_A_TASK,
    SLOW_ON_WRONG_ANSWERS,
    Floor,
    Floors,
    solved_score,
)
from ..util.progress import with_progress
from ._strategies import OWN_WORK, strategies
from .findings import (
    EMPTY,
    JUNK,
    Finding,
    KnownFindings,
    Observation,
    TaskAudit,
    constants_for,
    judge,
    probes_for,
)
from .ladder_proof import prove_level

Answers = Mapping[str, str]
"""Answers to one item by the labels of constants or strategies."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """The results of all tasks."""

    library_version: str
    tasks: Sequence[TaskAudit]

    @property
    def unexplained(self) -> list[Finding]:
        """The findings to look at before training on these rewards."""
        findings = [finding for task in self.tasks for finding in task.findings]
        return [finding for finding in findings if not finding.explanation]


async def audit_tasks(names: Sequence[str], *, items: int, known: KnownFindings) -> Audit:
    """Audit the named tasks, or all, with a progress bar on a terminal.

    `items` of each are probed at its default configuration; floors take ten times as many.
    Raises UnknownTaskError, and WorkerStartError if the worker processes don't start.
    """
    places = asyncio.Semaphore(4)  # tasks at once
    async with TaskPool(PoolSettings(processes=default_processes()), Counter()) as pool:
        tasks = chosen_tasks(await pool.discover(), names)
        ladders = await pool.ladders()

        async def one(task: str, category: str) -> TaskAudit:
            async with places:
                levels = ladders[task].levels
                return await audit_task(pool, task, category, levels, items=items, known=known)

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
    pool: TaskPool, task: str, category: str, levels: Ladder, *, items: int, known: KnownFindings
) -> TaskAudit:
    """Audit one task."""
    # The first failure of a level is a finding, and may have taken long.
    prove = partial(prove_level, pool, task, seed=1, stop_at_failure=True)
    # Each answer that is executed has a process of its own.
    probed = math.ceil(items / 4) if task in EXECUTES_ANSWERS else items
    default = await prove(None, {}, items=2 * probed)
    observations = await observe_defaults(pool, default.problems)
    proofs = [await prove(*level, items=3) for level in enumerate(levels)]
    floors = await find_floors(pool, task, 10 * items)
    return judge(task, category, observations, [default, *proofs], floors=floors, known=known)


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
    """Measure which share of a task's default items the best constant and strategy solve.

    Args:
        items: to measure on; the answers are chosen on at most a third as many others.
    """
    # Items of these take seconds to generate or score.
    slow = {"futoshiki": 2, "intermediate_integration": 3, "knight_swap": 3}
    items = math.ceil(items / slow.get(task, 1))
    # Answers of these take long to score.
    fewer = 15 if task in SLOW_ON_WRONG_ANSWERS else 8 if task in EXECUTES_ANSWERS else 1
    choosing = math.ceil(items / 3 / fewer)
    problems = await _problems(pool, task, choosing + items)
    first, others = problems[:choosing], problems[choosing:]
    constants = constants_to_try([one.oracle for one in first if one.oracle is not None])
    tried = [await _scores(pool, one, constants, _copies(one)) for one in first]
    solved_from = solved_score(task)
    constant, strategy = (
        [best(own, solved_from) for own in zip(*tried, strict=True)] if tried else ("", "")
    )
    measured = [
        await _scores(pool, one, {constant: constant}, _copies(one, strategy)) for one in others
    ]
    return Floors(
        chance=floor(constant, [scores for scores, _ in measured], solved_from),
        no_reasoning=floor(strategy, [scores for _, scores in measured], solved_from),
    )


def _copies(problem: Problem, only: str | None = None) -> Answers:
    """Answer without reasoning, except by what the task itself asks for; `only` by one strategy."""
    own_work = OWN_WORK.get(problem.recipe.task, ())
    return {
        label: text
        for label, text in strategies(problem.question).items()
        if not label.startswith(own_work) and only in (None, label)
    }


async def _problems(pool: TaskPool, task: str, count: int) -> list[Problem]:
    """Generate problems, with others in place of those that fail."""
    problems: list[Problem] = []
    generate = skip_faulty(pool.generate, Counter())
    for recipe in evaluation_recipes(2, [task], 2 * count):
        if len(problems) < count:
            with contextlib.suppress(GenerationError):
                problems.append(await generate(recipe))
    return problems


def constants_to_try(oracles: Sequence[str]) -> Answers:
    """Return the constants to try, without blank ones, which are never extracted as an answer."""
    return {text: text for text in (*EMPTY, *JUNK, *constants_for(oracles)) if text.strip()}


async def _scores(pool: TaskPool, problem: Problem, *tries: Answers) -> list[dict[str, float]]:
    """Score several sets of answers in one call."""
    verdicts = await pool.verify(problem, [text for own in tries for text in own.values()])
    scores = iter(verdict.score or 0.0 for verdict in verdicts)
    return [{label: next(scores) for label in own} for own in tries]


def best(scores: Sequence[Mapping[str, float]], solved_from: float) -> str:
    """Return the label that solves most items; the higher total score breaks ties.

    A label that an item's scores lack has 0.

    Example:
        >>> best([{"a": 0.4, "b": 1.0}, {"a": 0.4, "b": 0.0}, {"a": 0.4}], 1.0)
        'b'
    """
    totals: defaultdict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for item in scores:
        for label, score in item.items():
            solved, total = totals[label]
            totals[label] = (solved + (score >= solved_from), total + score)
    return max(totals, key=totals.__getitem__, default="")


def floor(label: str, scores: Sequence[Mapping[str, float]], solved_from: float) -> Floor:
    """Estimate the share of items that a label solves; without items, the interval is [0, 1]."""
    if not scores:
        return Floor(label=label, items=0, solved=0.0, low=0.0, high=1.0)
    estimate = share([[float(item.get(label, 0.0) >= solved_from)] for item in scores])
    return Floor(
        label=label, items=len(scores), solved=estimate.value, low=estimate.low, high=estimate.high
    )
