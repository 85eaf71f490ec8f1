"""Proves tasks in two task pools, and keeps what has been tried in a file, to continue from."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from ..errors import ConfigurationError, GenerationError
from ..sandbox.pool import PoolSettings, TaskPool
from ..scoring.extraction import AnswerFormat
from ..tasks.catalogue import Discovery, require_known
from ..tasks.facts import LIBRARY, NOT_A_TASK
from ..tasks.ladders import TaskLadder
from ..tasks.modules import Declaration
from ..util.concurrency import gather_or_cancel
from ..util.files import read_regular, write_whole
from ..util.progress import Progress
from ..util.values import shorten
from .answers import (
    ANSWERS_SEED,
    COMPARED_ITEMS,
    COMPARED_LEVEL_ITEMS,
    DOUBTED_LEVEL_ITEMS,
    LEVEL_ITEMS,
    probed_items,
    prove_answers,
    sample_problems,
)
from .checks import Result, TaskProof, explained, judge, keeps_nothing
from .clock import ProcessorClock
from .findings import WAIVABLE, Finding, KnownFindings
from .ladder_proof import (
    DRAWS,
    DRAWS_SEED,
    LevelProof,
    level_items,
    level_proofs,
    prove_level,
)

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class Proofs:
    """The proofs of several tasks, as their file has them.

    Attributes:
        versions: of the library and of this package, and the digest of each module.
        tasks: the results; what isn't proved is tried again.
        unfinished: what has been tried of tasks with checks that were not tried.
        answer_format: in which answers were given.
    """

    versions: dict[str, str]
    tasks: dict[str, Result] = field(default_factory=dict)
    unfinished: dict[str, TaskProof] = field(default_factory=dict)
    answer_format: AnswerFormat = "tags"

    def read(self, path: Path) -> None:
        """Take over what a file has of these versions and this answer format.

        Raises ConfigurationError if it isn't a file of proofs.
        """
        if not path.exists():
            return
        try:
            content = read_regular(path)
            stored = msgspec.json.decode(content, type=Proofs)
        except (OSError, RecursionError, msgspec.DecodeError) as error:
            raise ConfigurationError(
                f"{path} is not a file of proofs: {error}"
            ) from None
        is_same_format = stored.answer_format == self.answer_format
        if is_same_format and stored.versions.items() <= self.versions.items():
            self.tasks |= stored.tasks
            self.unfinished |= stored.unfinished
        else:
            logger.info(
                "%s is of other versions or another answer_format: all is tried again",
                path,
            )

    def has_proved(self, task: str) -> bool:
        """Return whether a task is proved."""
        return task in self.tasks and self.tasks[task].verdict == "proved"

    def started(self, task: str) -> TaskProof | None:
        """Return what has been tried of a task, to go on from; None if nothing is stored of it.

        It is a copy, so that an interrupted run loses nothing that is stored.
        """
        return copy.deepcopy(self.unfinished.get(task))

    def keep(self, proof: TaskProof, result: Result) -> None:
        """Take over a task's result, and what has been tried if more is left to try."""
        self.tasks[proof.task] = result
        self.unfinished.pop(proof.task, None)
        if any(check.verdict == "not_tried" for check in result.checks.values()):
            self.unfinished[proof.task] = proof

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
    seed: int = 0,
    keep: Callable[[Result], None] = lambda _: None,
) -> Proofs:
    """Prove the named tasks, or all of the modules, else of the library, with a progress bar.

    Args:
        items: of the default configuration; a tenth of them of each level, besides its draws.
        seconds: of processor time, for each task.
        files: where proofs go on from, and are kept.
        seed: another one proves on other items.
        keep: takes each result as it comes.

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
            proofs = Proofs(
                versions=installed_versions() | pool.versions,
                answer_format=pool.answer_format,
            )
            for file in files:
                proofs.read(file)
            ladders = await pool.ladders()
            places = asyncio.Semaphore(settings.processes)

            started = [
                proofs.started(task)
                or new_proof(task, category, ladders.get(task), pool)
                for task, category in tasks.items()
                if not proofs.has_proved(task)
            ]
            at_work: dict[str, int | None] = {}
            progress = Progress(
                "prove",
                total=sum(number_of_steps(proof) for proof in started),
                note=lambda: ", ".join(map(_place_name, at_work.items())),
            )

            async def prove_one(proof: TaskProof) -> None:
                task = proof.task
                announcements = _Announcements(proof, known_findings)

                def report(place: LevelProof, *, ended: bool) -> None:
                    at_work[task] = place.level
                    announcements.log_new(place)
                    progress.advance(ended)

                async with places:
                    clock.at_work += 1
                    try:
                        await prove_task(
                            pool,
                            second_pool,
                            proof,
                            items,
                            seconds,
                            clock,
                            report,
                            seed=seed,
                        )
                    finally:
                        clock.at_work -= 1
                        at_work.pop(task, None)
                result = judge(proof, items=items, known_findings=known_findings)
                proofs.keep(proof, result)
                for file in files:
                    proofs.write(file)
                keep(result)

            async with progress.shown():
                jobs = [asyncio.ensure_future(prove_one(proof)) for proof in started]
                await gather_or_cancel(jobs)
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
        module=pool.module_of(task),
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


DRAWING_SHARE = 0.2
ANSWERS_SHARE = 0.4
"""Of the seconds, how much may go into default items, and into answers to them. Answers are
dearest, and in the equal share of a step among many, few seconds would not reach a single item."""


class Report(Protocol):
    """Hears of a level that a step has tried, and whether nothing is left of the step."""

    def __call__(self, place: LevelProof, *, ended: bool) -> None: ...


def _report_nothing(place: LevelProof, *, ended: bool) -> None: ...


def number_of_steps(proof: TaskProof) -> int:
    """Return how many steps the proof of a task has."""
    return 2 * (1 + len(proof.levels)) + len(proof.levels)


def findings_of(proof: TaskProof, place: LevelProof) -> list[Finding]:
    """Return what a level's own items have shown so far."""
    answers = proof.answers_of(place.level)
    return [*place.weighty, *(answers.findings if answers else [])]


def _place_name(place: tuple[str, int | None]) -> str:
    task, level = place
    return task if level is None else f"{task} level {level}"


class _Announcements:
    """Logs the findings of a task once for each level, for whoever waits."""

    def __init__(self, proof: TaskProof, known_findings: KnownFindings) -> None:
        self._proof = proof
        self._known_findings = known_findings
        self._logged: set[tuple[str, int | None]] = set()

    def log_new(self, place: LevelProof) -> None:
        """Log what a level's items have shown since the last call."""
        findings = findings_of(self._proof, place)
        for finding in explained(self._proof, findings, self._known_findings):
            mark = (finding.kind, finding.level)
            if not finding.explanation and mark not in self._logged:
                self._logged.add(mark)
                logger.info("%s", self._line(finding))

    def _line(self, finding: Finding) -> str:
        place = _place_name((self._proof.task, finding.level))
        check = finding.check.replace("_", " ")
        line = f"{place}: {check}: {finding.detail}: {finding.example}"
        return line.removesuffix(": ")


async def prove_task(
    pool: TaskPool,
    second_pool: TaskPool,
    proof: TaskProof,
    items: int,
    seconds: float,
    clock: ProcessorClock,
    report: Report = _report_nothing,
    *,
    seed: int = 0,
) -> None:
    """Try what is left to try of a task, as long as the seconds last.

    The default configuration has most of them, and each level its share of the rest. What one
    leaves goes to those after it, and what all leave to those that did not end.

    Args:
        second_pool: starts its processes with another hash seed.
        clock: counts the seconds.
        seed: another one tries other items.
    """
    deadline = clock.now() + seconds
    proving = _TaskProving(pool, second_pool, proof, items, clock, seed)
    level_weight = (1 - DRAWING_SHARE - ANSWERS_SHARE) / (3 * len(proof.levels))
    steps = [
        _WeightedStep(proving.draw_items, proof.default, DRAWING_SHARE),
        _WeightedStep(proving.try_answers, proof.default, ANSWERS_SHARE),
    ]
    for level in proof.levels:
        steps += [
            _WeightedStep(proving.draw_items, level, level_weight),
            _WeightedStep(proving.try_answers, level, level_weight),
        ]
    steps += [
        _WeightedStep(proving.draw_more, level, level_weight) for level in proof.levels
    ]
    while steps and clock.now() < deadline:
        unfinished = []
        for index, weighted in enumerate(steps):
            weight_left = sum(step.weight for step in steps[index:])
            share = (deadline - clock.now()) * weighted.weight / weight_left
            ended = await weighted.step(weighted.place, clock.now() + share)
            if not ended:
                unfinished.append(weighted)
            report(weighted.place, ended=ended)
        steps = unfinished


Step = Callable[[LevelProof, float], Awaitable[bool]]
"""Tries something of a level until a deadline; returns whether nothing is left of it."""


class _WeightedStep(NamedTuple):
    """A step for a level, and its weight in sharing the time."""

    step: Step
    place: LevelProof
    weight: float


class _TaskProving:
    """The steps of a task's proof; each ends at its deadline and says whether nothing is left."""

    def __init__(
        self,
        pool: TaskPool,
        second_pool: TaskPool,
        proof: TaskProof,
        items: int,
        clock: ProcessorClock,
        seed: int,
    ) -> None:
        self._pool = pool
        self._second_pool = second_pool
        self._proof = proof
        self._items = items
        self._clock = clock
        # The two seeds differ in their last digit, so no other seed makes one of them the other.
        self._draws_seed = DRAWS_SEED + 10 * seed
        self._answers_seed = ANSWERS_SEED + 10 * seed

    async def draw_items(self, place: LevelProof, deadline: float) -> bool:
        """Draw items, make each again in the second pool, and score their own answers."""
        wanted = self._items if place.level is None else level_items(self._items)
        return await self._draw(place, deadline, items=wanted, compared=wanted)

    async def draw_more(self, level: LevelProof, deadline: float) -> bool:
        """Draw enough items of a level to see how often a question or answer repeats."""
        # A process of its own for each answer takes most of the time.
        shared = self._second_pool if keeps_nothing(self._proof) else None
        wanted = min(self._items, DRAWS)
        return await self._draw(level, deadline, items=wanted, shared=shared)

    async def _draw(
        self,
        place: LevelProof,
        deadline: float,
        *,
        items: int,
        compared: int = 0,
        shared: TaskPool | None = None,
    ) -> bool:
        await prove_level(
            self._pool,
            place,
            items=items,
            compared=compared,
            second_pool=self._second_pool,
            shared=shared,
            declared=self._proof.declared,
            deadline=deadline,
            now=self._clock.now,
            seed=self._draws_seed,
        )
        return place.tried >= items or place.is_given_up

    async def try_answers(self, place: LevelProof, deadline: float) -> bool:
        """Try all answers on some items of a level, on more if a wrong one is paid on these."""
        proof = self._proof
        task = proof.task
        before = proof.answers_of(place.level)
        is_default = place.level is None
        wanted = probed_items(task, self._items) if is_default else LEVEL_ITEMS
        if not is_default and before is not None and before.is_doubtful:
            wanted = DOUBTED_LEVEL_ITEMS
        if before is not None and before.items >= wanted:
            return True
        if not place.questions:
            return place.is_given_up or place.tried > 0
        if is_default and self._clock.now() < deadline:
            await _inspect(self._pool, proof)

        def is_over() -> bool:
            return self._clock.now() >= deadline

        # Half of the time is left for the answers to the items.
        now = self._clock.now()
        sampling_deadline = now + (deadline - now) / 2

        def is_sampling_over() -> bool:
            return self._clock.now() >= sampling_deadline

        problems = await sample_problems(
            self._pool,
            task,
            2 * wanted,
            place.parameters,
            level=place.level,
            skip=proof.declared is None,
            is_over=is_sampling_over,
            seed=self._answers_seed,
        )
        has_sampled_few = is_sampling_over() and len(problems) < 2 * wanted
        killing = [text for answers in proof.all_answers for text in answers.killing]
        answers = await prove_answers(
            self._pool,
            self._second_pool,
            problems,
            proof.declared,
            compared=COMPARED_ITEMS if is_default else COMPARED_LEVEL_ITEMS,
            killing=[] if is_default else killing,
            is_over=is_over,
        )
        if before is None or answers.items > before.items:
            proof.add_answers(place.level, answers)
        # In the next round, more items decide.
        needs_more = (
            not is_default and answers.is_doubtful and wanted < DOUBTED_LEVEL_ITEMS
        )
        return not (is_over() or needs_more or has_sampled_few)


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
