"""The task pool: generators that make problems, verifier hosts that score answers.

All reasoning-gym code runs in these processes, never in the event loop's own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import (
    ConfigurationError,
    GenerationError,
    GenerationTimeoutError,
    WorkerDiedError,
    WorkerLostError,
    WorkerTimeoutError,
)
from ..records import SOLVED_SCORE, Problem, Recipe, Status, Verdict
from ..tasks.catalogue import Discovery
from ..tasks.ladders import TaskLadder
from ..tasks.recipes import require_valid_recipe, shorten
from .generator import LADDERS_REQUEST, CatalogueRequest, Request
from .nursery import Nursery
from .processes import StartWorker, WorkerGroup
from .protocol import Containment, VerifyRequest, unpack_verdicts

logger = logging.getLogger(__name__)

CATALOGUE_SECONDS = 120.0
HOST_GRACE_SECONDS = 5.0
"""What a host may take beyond the deadlines it enforces itself before it is killed."""

TRIES = 3
"""For an item of a set: what fails now and then must not make another set."""

MOST_MISSED = 2
"""Of the tries, so many may miss the deadline: a busy machine may miss it once, and a recipe that
always does costs no more."""


def default_processes() -> int:
    """Choose how many processes each role has: half the cores, at least 2, at most 8."""
    return max(2, min(8, (os.cpu_count() or 2) // 2))


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSettings:
    """Sizes and deadlines of a task pool.

    Attributes:
        processes: generators, and as many verifier hosts.
        generation_timeout: seconds for one problem.
        verify_timeout: seconds for one answer.
        verify_group_timeout: seconds for all answers of a group.
        solved_threshold: score from which an answer is solved.
        containment: what stands between model text and the machine.
        verify_memory: bytes a verifier may take beyond what its host has.
    """

    processes: int
    generation_timeout: float = 10.0
    verify_timeout: float = 5.0
    verify_group_timeout: float = 120.0
    verify_memory: int = 512 * 2**20
    containment: Containment = Containment.FULL
    solved_threshold: float = SOLVED_SCORE

    def __post_init__(self) -> None:
        if self.processes < 1:
            raise ConfigurationError(f"processes is {self.processes}; at least 1 is needed")


class TaskPool:
    """Makes problems and scores answers in worker processes.

    Args:
        counts: where generation timeouts and errors, and worker restarts, are counted.
        start_worker: where its workers come from; a nursery of its own where None.

    Example:
        async with TaskPool(PoolSettings(processes=2), Counter()) as pool:
            problem = await pool.generate(Recipe(task="gcd", seed=2))
            [verdict] = await pool.verify(problem, ["12"])
    """

    def __init__(
        self,
        settings: PoolSettings,
        counts: Counter[str],
        *,
        start_worker: StartWorker | None = None,
    ) -> None:
        self._settings = settings
        self._counts = counts
        self._nursery = Nursery()
        start = start_worker or self._nursery.start
        self._generators, self._hosts = (
            WorkerGroup(role, size=settings.processes, counts=counts, start_worker=start)
            for role in ("generator", "verifier")
        )

    @property
    def pids(self) -> list[int]:
        """The process ids of all workers."""
        return self._generators.pids + self._hosts.pids

    @property
    def ready(self) -> bool:
        """Whether there are a generator and a verifier host."""
        return bool(self._generators.pids and self._hosts.pids)

    async def __aenter__(self) -> TaskPool:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start all workers; raises WorkerStartError, and leaves none, if one does not come up."""
        try:
            await asyncio.gather(self._generators.start(), self._hosts.start())
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Kill all workers. May be called again."""
        await asyncio.gather(self._generators.close(), self._hosts.close())
        await self._nursery.close()

    async def discover(self, *, proven: frozenset[str] = frozenset()) -> Discovery:
        """Ask a generator what the installed library offers.

        Args:
            proven: tasks that are known to build, and are not tried; to try all takes a second.
        """
        request = CatalogueRequest(proven=proven)
        discovery: Discovery = await self._ask_generator(request, CATALOGUE_SECONDS)
        return discovery

    async def ladders(self) -> dict[str, TaskLadder]:
        """Ask a generator for the difficulty levels of every task.

        Raises:
            GenerationError: a task's levels can't be read.
        """
        ladders: dict[str, TaskLadder] | str
        ladders = await self._ask_generator(LADDERS_REQUEST, CATALOGUE_SECONDS)
        if isinstance(ladders, str):
            raise GenerationError(
                f"{ladders}; the tested version of reasoning-gym is in requirements.txt"
            )
        return ladders

    async def generate(self, recipe: Recipe) -> Problem:
        """Make a problem.

        Raises:
            GenerationError: the recipe is refused, or the library raised.
            GenerationTimeoutError: it took longer than the deadline.
        """
        result: Problem | str
        try:
            require_valid_recipe(recipe)
        except ValueError as error:
            self._counts["generation/errors"] += 1
            raise GenerationError(
                f"{shorten(recipe.task)}: the recipe is refused: {error}"
            ) from error
        try:
            result = await self._ask_living_generator(recipe)
        except WorkerTimeoutError as error:
            self._counts["generation/timeouts"] += 1
            raise GenerationTimeoutError(f"{recipe.task}: {error}") from error
        except WorkerLostError as error:
            self._counts["generation/errors"] += 1
            raise GenerationError(f"{recipe.task}: {error}") from error
        if isinstance(result, str):
            self._counts["generation/errors"] += 1
            raise GenerationError(f"{recipe.task}: {result}")
        return result

    async def _ask_living_generator(self, recipe: Recipe) -> Problem | str:
        """Ask again where a generator died, in TRIES tries; raises WorkerLostError."""
        result: Problem | str
        for _ in range(TRIES - 1):
            try:
                result = await self._ask_generator(recipe, self._settings.generation_timeout)
                return result
            except WorkerDiedError:
                self._counts["generation/asked_again"] += 1
        result = await self._ask_generator(recipe, self._settings.generation_timeout)
        return result

    async def _ask_generator(self, request: Request, timeout: float) -> Any:
        """The reply, unpickled: generators never see model text."""
        reply = await self._generators.submit(pickle.dumps(request), timeout=timeout)
        return pickle.loads(reply)

    async def verify(self, problem: Problem, answers: Sequence[str]) -> list[Verdict]:
        """Score answers: one verdict each, in the order given; equal answers are verified once."""
        distinct = tuple(dict.fromkeys(answers))
        verdicts = dict(zip(distinct, await self._verify(problem, distinct), strict=True))
        return [verdicts[answer] for answer in answers]

    async def _verify(self, problem: Problem, answers: tuple[str, ...]) -> list[Verdict]:
        """Score distinct answers; where a host is lost over them, each is tried by itself."""
        if not answers:
            return []
        try:
            return await self._ask_host(problem, answers)
        except WorkerLostError:
            if len(answers) > 1:
                alone = [await self._verify(problem, (answer,)) for answer in answers]
                return [verdict for verdicts in alone for verdict in verdicts]
        try:
            return await self._ask_host(problem, answers)
        except WorkerLostError as error:
            return [self._without_host(error)]

    def _without_host(self, error: WorkerLostError) -> Verdict:
        """Say what becomes of an answer that two hosts were lost over.

        Behind the filter no answer can end a host: one that died was killed from outside.
        """
        sandboxed = self._settings.containment is not Containment.FORKS
        if sandboxed and isinstance(error, WorkerDiedError):
            detail = "the verifier's host was killed from outside twice"
            return Verdict(score=None, status=Status.UNSCORED, detail=detail)
        detail = f"brought down its verifier host twice: {error}"
        return Verdict(score=0.0, status=Status.CRASHED, detail=detail)

    async def _ask_host(self, problem: Problem, answers: tuple[str, ...]) -> list[Verdict]:
        settings = self._settings
        request = VerifyRequest(
            task=problem.recipe.task,
            parameters=problem.recipe.parameters,
            entry=problem.entry,
            answers=answers,
            timeout=settings.verify_timeout,
            group_timeout=settings.verify_group_timeout,
            memory=settings.verify_memory,
            containment=settings.containment,
        )
        timeout = settings.verify_group_timeout + HOST_GRACE_SECONDS
        reply = await self._hosts.submit(pickle.dumps(request), timeout=timeout)
        try:
            return unpack_verdicts(reply, len(answers), solved_from=settings.solved_threshold)
        except ValueError as error:
            self._counts["verify/malformed_replies"] += 1
            logger.warning("%s: a verifier host's reply is malformed: %s", request.task, error)
            raise WorkerLostError(str(error)) from error


class MakesProblems(Protocol):
    """What `generate_surely` needs of a task pool."""

    async def generate(self, recipe: Recipe) -> Problem: ...


async def generate_surely(pool: MakesProblems, recipe: Recipe) -> Problem:
    """Make a problem that must be there: again where it failed, in TRIES tries at most.

    Raises:
        GenerationError: of the last try.
    """
    missed = 0
    for _ in range(TRIES - 1):
        try:
            return await pool.generate(recipe)
        except GenerationTimeoutError:
            missed += 1
            if missed == MOST_MISSED:
                raise
        except GenerationError:
            continue
    return await pool.generate(recipe)
