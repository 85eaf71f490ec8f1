"""The task pool, one class: generators make problems, and verifier hosts score answers.

All reasoning-gym code runs in these processes, never in the event loop's own.
"""

from __future__ import annotations

import logging
import math
import os
import pickle
import struct
import warnings
from collections import ChainMap, Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec

from ..errors import (
    ConfigurationError,
    GenerationError,
    GenerationTimeoutError,
    WorkerDiedError,
    WorkerLostError,
    WorkerOutOfMemoryError,
    WorkerTimeoutError,
)
from ..records import Fault, Problem, Recipe, Status, Verdict
from ..scoring.extraction import AnswerFormat, label_fault
from ..tasks.catalogue import Discovery
from ..tasks.facts import LIBRARY, known_categories, solved_score
from ..tasks.ladders import TaskLadder
from ..tasks.modules import ModuleTasks, read_proof
from ..tasks.recipes import require_valid_recipe
from ..util.modules import ModuleSource
from ..util.values import shorten
from ._fork_server import ForkServer
from ._protocol import (
    LENGTH,
    MAX_ANSWER,
    MAX_ANSWERS,
    CheckEntry,
    EntryAnswers,
    Inspect,
    Inspection,
    MadeProblem,
    Message,
    Reply,
    Request,
    SecondAnswer,
    Solve,
    is_starved,
    unpack_verdicts,
)
from .worker_groups import (
    FIRST_TRY_SECONDS,
    HOST_GRACE_SECONDS,
    SECOND_TRY_SECONDS,
    SecondTries,
    StartWorker,
    WorkerGroup,
    WorkerPool,
)

logger = logging.getLogger(__name__)


GROUP_SECONDS = 120.0
"""What all answers of a group may take on the wall, but for the second try of starved ones."""


MAX_ATTEMPTS = 3
"""Generators that may die of a recipe: something else may have killed one or two of them."""


FIXED_ITEM_SECONDS = 60.0
"""What an item of a fixed set may work or wait at least, since none takes its place: ten times the
slowest known item (of futoshiki and knight_swap: 6 s)."""


def default_processes() -> int:
    """Return how many processes each role has: half the cores, at least 2, at most 8."""
    return max(2, min(8, (os.cpu_count() or 2) // 2))


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSettings:
    """Sizes and deadlines of a task pool.

    Attributes:
        processes: generators, and as many verifier hosts.
        generation_timeout, verify_timeout: seconds that a process may work or wait.
        modules: those with a user's own tasks.
        stateless: own tasks that keep no state: their answers share a process. None takes those
            that are proved to keep none.
        hash_seed: of Python in all workers.
        logs_errors: whether errors of a user's verifier are warnings.
        others: as of `AsyncReasoningGym`.
    """

    processes: int
    generation_timeout: float = 10.0
    verify_timeout: float = 5.0
    solved_threshold: float | None = None
    answer_format: AnswerFormat = "tags"
    require_containment: bool = False
    modules: Sequence[ModuleSource] = ()
    task_environment: Sequence[str] = ()
    stateless: frozenset[str] | None = None
    hash_seed: int = 0
    logs_errors: bool = True

    def __post_init__(self) -> None:
        if self.processes < 1:
            raise ConfigurationError(
                f"processes must be an integer ≥ 1, got {self.processes}"
            )


class TaskSource(NamedTuple):
    """The workers of the library's tasks, or of those of a user's module."""

    module: ModuleSource | None
    generators: WorkerGroup
    hosts: WorkerGroup
    second_tries: SecondTries


class TaskPool(WorkerPool):
    """Makes problems and scores answers in worker processes.

    Each module with a user's own tasks has workers of its own: none can change another's tasks.

    Args:
        counts: counts generation timeouts and errors, and worker restarts.
        start_worker: starts the library's workers; by default a fork server of its own.

    Attributes:
        modules: what each module has, by its name; empty before the start.

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
        self._installed = version(LIBRARY)
        self._warned = False
        self._sources: list[TaskSource] = []
        self._by_task: dict[str, TaskSource] = {}
        self._stateless = settings.stateless or frozenset()
        self._raised: Counter[str] = Counter()  # of users' own verifiers, by task
        self.modules: dict[str, ModuleTasks] = {}
        self._constant_baselines: dict[str, float] = {}
        servers = []
        for module in (None, *settings.modules):
            server = ForkServer(
                source=module,
                environment=settings.task_environment if module else [],
                hash_seed=settings.hash_seed,
            )
            start = server.start if module else start_worker or server.start
            generators, hosts = (
                WorkerGroup(
                    role,
                    size=settings.processes,
                    counts=counts,
                    start_worker=start,
                )
                for role in ("generator", "verifier")
            )
            second_tries = SecondTries("verifier", counts=counts, start_worker=start)
            self._sources.append(TaskSource(module, generators, hosts, second_tries))
            servers.append(server)
        groups = [
            group
            for source in self._sources
            for group in (source.generators, source.hosts)
        ]
        super().__init__(
            groups,
            servers,
            second_tries=[source.second_tries for source in self._sources],
            require_containment=settings.require_containment,
        )

    async def _prepare(self) -> None:
        """Ask each module's workers for its tasks; ConfigurationError if two have the same name."""
        owner_by_name = dict.fromkeys(
            known_categories().values(), "a category of reasoning-gym"
        )
        for source in self._sources:
            if source.module is None:
                continue
            tasks_of_module, _ = await self._ask(source, "module", ModuleTasks)
            module_name = source.module.shown
            shared_categories = {
                category
                for task, category in tasks_of_module.categories.items()
                if task != category
            }
            for category in shared_categories & {*known_categories(), *self._by_task}:
                raise ConfigurationError(
                    f"task_modules: category {category} of {module_name} has the name of a task: "
                    "rename it"
                )
            owner_by_name = (
                dict.fromkeys(shared_categories, f"a category of {module_name}")
                | owner_by_name
            )
            for task in tasks_of_module.categories:
                if task in owner_by_name:
                    raise ConfigurationError(
                        f"task_modules: task {task} of {module_name} has the name of "
                        f"{owner_by_name[task]}: rename it, or leave one of the modules out"
                    )
            names = [*tasks_of_module.categories, source.module.name]
            owner_by_name |= dict.fromkeys(names, f"a task or module of {module_name}")
            self._by_task |= dict.fromkeys(tasks_of_module.categories, source)
            self.modules[source.module.name] = tasks_of_module
            proof = read_proof(source.module, tasks_of_module.digest)
            self._constant_baselines |= (
                proof.chance if self._settings.solved_threshold is None else {}
            )
            if self._settings.stateless is None:
                proved = tasks_of_module.categories.keys() == proof.proved
                logger.info(
                    "%s is %sproved", source.module.shown, "" if proved else "not "
                )
                self._stateless |= proof.stateless

    @property
    def answer_format(self) -> AnswerFormat:
        """Where completions have their answer; a label that can't be given there is faulty."""
        return self._settings.answer_format

    def _source(self, task: str) -> TaskSource:
        return self._by_task.get(task, self._sources[0])

    @property
    def versions(self) -> dict[str, str]:
        """The digest of each module, by its name; empty before the start."""
        return {name: module.digest for name, module in self.modules.items()}

    @property
    def categories(self) -> dict[str, str]:
        """The category of each task that is known without asking the library."""
        categories_of_modules = [module.categories for module in self.modules.values()]
        return dict(ChainMap(*categories_of_modules, known_categories()))

    def module_of(self, task: str) -> str | None:
        """Return the name of the module that a task belongs to; None is the library."""
        module = self._source(task).module
        return module.name if module else None

    async def discover(self, *, proven: frozenset[str] = frozenset()) -> Discovery:
        """Return all tasks; of the library's, `proven` ones are not tried: all take a second."""
        discovery, _ = await self._ask(self._sources[0], proven, Discovery)
        for module in self.modules.values():
            discovery.categories.update(module.categories)
            discovery.failures.update(module.failures)
        return discovery

    async def ladders(self) -> dict[str, TaskLadder]:
        """Return every task's levels of difficulty; raise GenerationError if some can't be read."""
        try:
            ladders, _ = await self._ask(
                self._sources[0], "ladders", dict[str, TaskLadder]
            )
        except GenerationError as error:
            raise GenerationError(
                f"{error}; the tested version of reasoning-gym is in requirements.txt"
            ) from error
        for module in self.modules.values():
            ladders.update(module.ladders)
        return ladders

    async def generate_fixed(self, recipe: Recipe) -> Problem:
        """Make a problem that no other can replace, as of an evaluation set; see `generate`."""
        limit = max(FIXED_ITEM_SECONDS, self._settings.generation_timeout)
        return await self._generate(recipe, limit)

    async def generate(self, recipe: Recipe) -> Problem:
        """Make a problem.

        Raises:
            GenerationError: the recipe is invalid, or the library raised.
            GenerationTimeoutError: it worked or waited for longer than its limit.
        """
        return await self._generate(recipe, self._settings.generation_timeout)

    async def _generate(self, recipe: Recipe, timeout: float) -> Problem:
        try:
            require_valid_recipe(recipe)
        except ValueError as error:
            self._counts["generation/errors"] += 1
            raise GenerationError(
                f"{shorten(recipe.task)}: invalid recipe: {error}"
            ) from error
        recipe_version = recipe.library_version
        if recipe_version not in (None, self._installed) and not self._warned:
            self._warned = True
            warnings.warn(
                f"Recipes made with {LIBRARY} {recipe_version} are generated with "
                f"{self._installed}: questions and answers may differ",
                stacklevel=2,
            )
        for attempts_left in reversed(range(MAX_ATTEMPTS)):
            try:
                source = self._source(recipe.task)
                item, entry = await self._ask(source, recipe, MadeProblem, timeout)
                break
            except WorkerTimeoutError as error:
                self._counts["generation/timeouts"] += 1
                level = "" if recipe.level is None else f" at level {recipe.level}"
                raise GenerationTimeoutError(
                    f"{recipe.task}{level}: {error}"
                ) from error
            except WorkerLostError as error:
                # Another generator may not die of this recipe.
                if attempts_left and isinstance(error, WorkerDiedError):
                    self._counts["generation/asked_again"] += 1
                    continue
                self._counts["generation/errors"] += 1
                # Memory ran out in several processes, so the recipe needs too much: no lost worker.
                cause = None if isinstance(error, WorkerOutOfMemoryError) else error
                raise GenerationError(f"{recipe.task}: {error}") from cause
            except GenerationError as error:
                self._counts["generation/errors"] += 1
                raise GenerationError(f"{recipe.task}: {error}") from None
        return Problem(
            recipe=replace(recipe, library_version=self._installed),
            question=item.question,
            oracle=item.oracle,
            entry=entry,
            # Nothing earns a label that can't be given, whatever else is wrong.
            fault=label_fault(item.oracle, self.answer_format) or item.fault,
            source=self.module_of(recipe.task) or "",
            constant_baseline=self._constant_baselines.get(recipe.task),
        )

    async def inspect(self, recipe: Recipe) -> Inspection:
        """Return what the entry of a recipe is like; raise GenerationError."""
        return await self._ask_of(recipe.task, Inspect(recipe), Inspection)

    async def second_answer(self, recipe: Recipe) -> str:
        """Answer a problem by the solver of its user's task; raise GenerationError."""
        return (await self._ask_of(recipe.task, Solve(recipe), SecondAnswer)).answer

    async def fault_of(self, task: str, entry: dict[str, Any]) -> Fault | None:
        """Return the fault of an entry from outside; GenerationError if it can't be checked."""
        label = entry.get("answer")
        if isinstance(label, str) and (fault := label_fault(label, self.answer_format)):
            return fault
        return (await self._ask_of(task, CheckEntry(task, entry), MadeProblem)).fault

    async def _ask_of(
        self, task: str, request: Request, kind: type[Message]
    ) -> Message:
        try:
            timeout = self._settings.generation_timeout
            message, _ = await self._ask(self._source(task), request, kind, timeout)
        except WorkerLostError as error:
            raise GenerationError(str(error)) from error
        return message

    async def _ask(
        self,
        source: TaskSource,
        request: Request,
        kind: type[Message],
        timeout: float = 120.0,
    ) -> tuple[Message, bytes]:
        """Return a generator's message and the bytes behind it; raise GenerationError with its own.

        Nothing is unpickled here: a user's module may have made the reply.
        """
        frame = await source.generators.submit(pickle.dumps(request), timeout=timeout)
        try:
            end = LENGTH.size + LENGTH.unpack_from(frame)[0]
            reply: Reply[Message] = msgspec.json.decode(
                frame[LENGTH.size : end],
                type=Reply[kind],  # type: ignore[valid-type]  # known as it runs
            )
        except (struct.error, msgspec.DecodeError) as error:
            raise GenerationError(f"malformed reply of a generator: {error}") from error
        if reply.message is None:
            raise GenerationError(reply.error)
        if source.module and reply.digest != self.versions.get(
            source.module.name, reply.digest
        ):
            raise GenerationError(
                f"{source.module.shown} has changed since the start: start again"
            )
        return reply.message, frame[end:]

    async def verify(self, problem: Problem, answers: Sequence[str]) -> list[Verdict]:
        """Return one verdict per answer, in order. Equal answers are verified once."""
        detail = f"an answer of more than {MAX_ANSWER} characters"
        too_long = Verdict(score=0.0, status=Status.WRONG, detail=detail)
        distinct = tuple(a for a in dict.fromkeys(answers) if len(a) <= MAX_ANSWER)
        verdicts = await self._verify(problem, distinct)
        by_answer = dict(zip(distinct, verdicts, strict=True))
        return [by_answer.get(answer, too_long) for answer in answers]

    async def _verify(
        self, problem: Problem, answers: tuple[str, ...]
    ) -> list[Verdict]:
        """Score distinct answers; if that costs a host, score each by itself."""
        if not answers:
            return []
        if sum(map(len, answers)) > MAX_ANSWERS:
            middle = len(answers) // 2
            first_half = await self._verify(problem, answers[:middle])
            return first_half + await self._verify(problem, answers[middle:])
        lost: WorkerLostError
        for _ in range(2):
            try:
                return await self._ask_host(problem, answers)
            except WorkerOutOfMemoryError as error:
                lost = error  # a host's, whatever the answers: see `_limits`
            except WorkerLostError as error:
                if len(answers) > 1:
                    verdicts: list[Verdict] = []
                    for answer in answers:
                        verdicts += await self._verify(problem, (answer,))
                    return verdicts
                lost = error
        return [verdict_of_lost(lost)] * len(answers)

    async def _ask_host(
        self, problem: Problem, answers: tuple[str, ...]
    ) -> list[Verdict]:
        """Score answers; those that the machine starved once more."""
        source = self._source(problem.recipe.task)
        request = self._request(problem, answers, FIRST_TRY_SECONDS, GROUP_SECONDS)
        timeout = GROUP_SECONDS + HOST_GRACE_SECONDS
        reply = await source.hosts.submit(pickle.dumps(request), timeout=timeout)
        verdicts = self._verdicts(request, reply)
        starved = tuple(
            answer
            for answer, verdict in zip(answers, verdicts, strict=True)
            if is_starved(verdict)
        )
        if not starved:
            return verdicts
        again = self._request(problem, starved, SECOND_TRY_SECONDS, SECOND_TRY_SECONDS)
        second_reply = await source.second_tries.submit(
            lambda seconds: pickle.dumps(replace(again, group_timeout=seconds))
        )
        if second_reply is None:
            return verdicts
        by_answer = {
            answer: verdict
            for answer, verdict in zip(
                starved, self._verdicts(again, second_reply), strict=True
            )
            if verdict.score is not None
        }
        return [
            by_answer.get(answer, verdict)
            for answer, verdict in zip(answers, verdicts, strict=True)
        ]

    def _request(
        self,
        problem: Problem,
        answers: tuple[str, ...],
        patience: float,
        group_timeout: float,
    ) -> EntryAnswers:
        return EntryAnswers(
            task=problem.recipe.task,
            parameters=problem.recipe.parameters,
            entry=problem.entry,
            answers=answers,
            timeout=self._settings.verify_timeout,
            # A longer limit leaves no room for two tries within a minute.
            patience=max(patience, self._settings.verify_timeout),
            group_timeout=group_timeout,
            is_own_task=problem.recipe.task in self._by_task,
            single_use=problem.recipe.task not in self._stateless,
        )

    def _verdicts(self, request: EntryAnswers, reply: bytes) -> list[Verdict]:
        """Read a host's reply; raise WorkerLostError if it is malformed."""
        settings = self._settings
        answers = request.answers
        try:
            solved_from = settings.solved_threshold or solved_score(request.task)
            verdicts = unpack_verdicts(reply, len(answers), solved_from=solved_from)
        except ValueError as error:
            self._counts["verify/malformed_replies"] += 1
            logger.warning(
                "%s: malformed reply of a verifier host: %s", request.task, error
            )
            raise WorkerLostError(str(error)) from error
        if request.is_own_task and settings.logs_errors:
            for verdict in verdicts:
                if verdict.status is Status.VERIFIER_ERROR:
                    self._raised[request.task] += 1
                name = f"{request.task}: verifier"
                warn_of_error(name, verdict, self._raised[request.task])
        return verdicts


def warn_of_error(name: str, verdict: Verdict, count: int) -> None:
    """Log the first error of a user's own function, the tenth, the hundredth and so on."""
    if verdict.status is Status.VERIFIER_ERROR and math.log10(count).is_integer():
        logger.warning("%s %s (error %d)", name, verdict.detail, count)


def verdict_of_lost(error: WorkerLostError) -> Verdict:
    """Return the verdict on an answer that was lost with its host twice."""
    if isinstance(error, WorkerOutOfMemoryError):
        detail = "two verifier hosts ran out of memory"
        return Verdict(score=None, status=Status.UNSCORED, detail=detail)
    # From outside: behind the filter no answer can.
    if isinstance(error, WorkerDiedError):
        detail = "the verifier's host was killed from outside twice"
        return Verdict(score=None, status=Status.UNSCORED, detail=detail)
    detail = f"brought down its verifier host twice: {error}"
    return Verdict(score=0.0, status=Status.CRASHED, detail=detail)


Generate = Callable[[Recipe], Coroutine[Any, Any, Problem]]
"""Makes the problem of a recipe, as `TaskPool.generate` does."""
