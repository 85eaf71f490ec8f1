"""Proves tasks in two task pools, and keeps what has been tried in a file, to continue from."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ConfigurationError, GenerationError
from ..sandbox.pool import PoolSettings, TaskPool
from ..tasks.catalogue import Discovery, require_known
from ..tasks.facts import LIBRARY, NOT_A_TASK
from ..tasks.ladders import TaskLadder
from ..tasks.modules import Declaration
from ..util.files import read_regular, write_whole
from ..util.progress import with_progress
from ..util.values import shorten
from .answers import AnswersProof, probed_items, prove_answers, sample_problems
from .checks import Result, TaskProof, judge
from .clock import REFRESH_SECONDS, ProcessorClock
from .findings import WAIVABLE, Finding, KnownFindings
from .ladder_proof import DRAWS, LevelProof, level_items, level_proofs, prove_level

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class Proofs:
    """The proofs of several tasks, as their file has them.

    Attributes:
        versions: of the library and of this package, and the digest of each module.
        tasks: the results; what isn't proved is tried again.
        unfinished: what has been tried of tasks with checks that were not tried.
    """

    versions: dict[str, str]
    tasks: dict[str, Result] = field(default_factory=dict)
    unfinished: dict[str, TaskProof] = field(default_factory=dict)

    def read(self, path: Path) -> None:
        """Take over what a file has of these versions; raise ConfigurationError if it is none."""
        if not path.exists():
            return
        try:
            content = read_regular(path)
            stored = msgspec.json.decode(content, type=Proofs)
        except (OSError, RecursionError, msgspec.DecodeError) as error:
            raise ConfigurationError(
                f"{path} is not a file of proofs: {error}"
            ) from None
        if stored.versions.items() <= self.versions.items():
            self.tasks |= stored.tasks
            self.unfinished |= stored.unfinished
        else:
            logger.info("%s is of other versions: all is tried again", path)

    def write(self, path: Path) -> None:
        """Replace a file by these proofs."""
        write_whole(
            path,
            msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n",
        )


async def prove_tasks(
    names: Sequence[str],
    settings: PoolSettings,
    *,
    items: int,
    seconds: float,
    known_findings: KnownFindings,
    files: Sequence[Path] = (),
) -> Proofs:
    """Prove the named tasks, or all of the modules, else of the library, with a progress bar.

    Args:
        items: of the default configuration; a tenth of them of each level, besides its draws.
        seconds: of processor time, for each task.
        files: where proofs go on from, and are kept.

    Raises UnknownTaskError, ConfigurationError, and WorkerStartError if workers don't start.
    """
    # Errors of a verifier on hostile texts are expected here.
    settings = replace(settings, logs_errors=False)
    clock = ProcessorClock()
    async with TaskPool(replace(settings, stateless=frozenset()), Counter()) as pool:
        own_tasks = frozenset(
            task for module in pool.modules.values() for task in module.categories
        )
        tasks = chosen_tasks(await pool.discover(), names, own_tasks)
        for task in tasks:
            require_waivable(task, declaration_of(pool, task))
        second_settings = replace(settings, hash_seed=1, stateless=own_tasks)
        async with TaskPool(second_settings, Counter()) as second_pool:
            proofs = Proofs(versions=installed_versions() | pool.versions)
            for file in files:
                proofs.read(file)
            ladders = await pool.ladders()
            places = asyncio.Semaphore(settings.processes)

            async def prove_one(task: str, category: str) -> None:
                if task in proofs.tasks and proofs.tasks[task].verdict == "proved":
                    return
                async with places:
                    # a copy, so that an interrupted run loses nothing that is stored
                    proof = copy.deepcopy(proofs.unfinished.get(task))
                    proof = proof or new_proof(task, category, ladders.get(task), pool)
                    clock.at_work += 1
                    try:
                        await prove_task(
                            pool, second_pool, proof, items, seconds, clock
                        )
                    finally:
                        clock.at_work -= 1
                proofs.tasks[task] = result = judge(
                    proof, items=items, known_findings=known_findings
                )
                proofs.unfinished.pop(task, None)
                if any(
                    check.verdict == "not_tried" for check in result.checks.values()
                ):
                    proofs.unfinished[task] = proof
                for file in files:
                    proofs.write(file)

            await with_progress([prove_one(*item) for item in tasks.items()], "prove")
    return replace(proofs, tasks={task: proofs.tasks[task] for task in tasks})


def installed_versions() -> dict[str, str]:
    """Return the versions on which every proof depends."""
    return {name: version(name) for name in (LIBRARY, "reasoning-gym-environment")}


def chosen_tasks(
    discovery: Discovery, names: Sequence[str], own_tasks: frozenset[str] = frozenset()
) -> dict[str, str]:
    """Return the named tasks, or all own or else all of them, with their categories.

    Raises UnknownTaskError.
    """
    tasks = {
        name: category
        for name, category in sorted(discovery.categories.items())
        if name not in NOT_A_TASK
    }
    require_known(names, tasks, "prove", what="task")
    chosen = names or own_tasks or tasks
    return {name: category for name, category in tasks.items() if name in chosen}


def declaration_of(pool: TaskPool, task: str) -> Declaration | None:
    """Return what an own task says of itself; None for the library's."""
    for module in pool.modules.values():
        if task in module.categories:
            # One that can't be built says nothing.
            return module.declarations.get(task, Declaration())
    return None


def require_waivable(task: str, declared: Declaration | None) -> None:
    """Raise ConfigurationError if a task waives what isn't a finding that can be waived."""
    for name in declared.waive if declared else ():
        if name not in WAIVABLE:
            raise ConfigurationError(
                f"{task} waives {shorten(name)}; only these findings can be waived: "
                f"{', '.join(sorted(WAIVABLE))}"
            )


def new_proof(
    task: str,
    category: str,
    ladder: TaskLadder | None,
    pool: TaskPool,
) -> TaskProof:
    """Return the proof of a task without items yet, and with what its module shows."""
    proof = TaskProof(
        task=task,
        category=category,
        default=LevelProof(task=task, level=None, parameters={}),
        levels=level_proofs(task, ladder or TaskLadder(levels=({},), origin="none")),
        declared=declaration_of(pool, task),
    )
    for module in pool.modules.values():
        if task in module.categories:
            proof.threads = module.threads - 1
            if module.devices:
                detail = (
                    "importing its module opens a GPU, which no forked process can use"
                )
                proof.findings.append(
                    Finding(check="contained", kind="import", detail=detail)
                )
    return proof


async def prove_task(
    pool: TaskPool,
    second_pool: TaskPool,
    proof: TaskProof,
    items: int,
    seconds: float,
    clock: ProcessorClock,
) -> None:
    """Try what is left to try of a task, as long as the seconds last.

    Args:
        second_pool: starts its processes with another hash seed.
        clock: counts the seconds.
    """
    deadline = clock.now() + seconds
    fewest = level_items(items)
    prove = partial(
        prove_level,
        pool,
        declared=proof.declared,
        deadline=deadline,
        now=clock.now,
    )
    await prove(proof.default, items=items, compared=items, second_pool=second_pool)
    if proof.default.questions and not proof.answers:
        await _inspect(pool, proof)
        answers = _answers_proof(pool, second_pool, proof, items)
        proof.add_answers(await _until(deadline, clock, answers))
    for level in proof.levels:
        await prove(level, items=fewest, compared=fewest, second_pool=second_pool)
    # A process of its own for each answer takes most of the time.
    keeps_nothing = proof.answers is not None and proof.answers.stateless
    for level in proof.levels:
        await prove(
            level,
            items=min(items, DRAWS),
            shared=second_pool if keeps_nothing else None,
        )


async def _inspect(pool: TaskPool, proof: TaskProof) -> None:
    """Note what a few items' entries are like."""
    sample = await sample_problems(pool, proof.task, 3, skip=proof.declared is None)
    for problem in sample:
        # What can't be made again is noted by the comparison.
        with contextlib.suppress(GenerationError):
            inspected = await pool.inspect(problem.recipe)
            proof.add_entry(
                json_changes=inspected.json_changes, memory=inspected.memory
            )


async def _answers_proof(
    pool: TaskPool, second_pool: TaskPool, proof: TaskProof, items: int
) -> AnswersProof:
    problems = await sample_problems(
        pool,
        proof.task,
        2 * probed_items(proof.task, items),
        skip=proof.declared is None,
    )
    return await prove_answers(pool, second_pool, problems, proof.declared)


async def _until(
    deadline: float,
    clock: ProcessorClock,
    work: Coroutine[Any, Any, AnswersProof],
) -> AnswersProof | None:
    """Return what some work returns; cancel it and return None at the deadline."""
    running = asyncio.ensure_future(work)
    try:
        while clock.now() < deadline:
            done, _ = await asyncio.wait({running}, timeout=REFRESH_SECONDS)
            if done:
                return running.result()
        return None
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
