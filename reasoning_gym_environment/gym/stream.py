"""`AsyncProblemStream`: training problems without end, with curriculum and signal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, TypedDict, TypeVar

from ..errors import ConfigurationError
from ..problems.levels import ComplexityMode, require_level_where_fixed
from ..problems.sampler import TaskSampling
from ..problems.selection import ProblemSettings
from ..problems.training import TrainingProblems
from ..records import Problem, Recipe


class StreamOptions(TypedDict, total=False):
    """Which problems a stream has: as the environment's options of the same names.

    Attributes:
        complexity_mode: "random", "curriculum" or "fixed"; unset means the library's default.
        complexity_level: with "fixed", from 0, every task's easiest level, to 1, its hardest.
        curriculum_target_accuracy: with "curriculum", the share of solved completions; 0.7.
        sampling: "uniform", or "signal": by the chance that some of a group are solved, some not.
        seed: of the stream; 0.
        replica: streams of one seed and several replicas have different problems.
        reserved: questions that must not come, as those of an evaluation set.
    """

    exclude_tasks: Sequence[str]
    task_weights: Mapping[str, float]
    task_parameters: Mapping[str, Mapping[str, Any]]
    complexity_mode: str | None
    complexity_level: float | None
    curriculum_target_accuracy: float
    sampling: str
    seed: int
    replica: str
    reserved: Iterable[str]


Choice = TypeVar("Choice", bound=Enum)


def _choice(of: type[Choice], value: str, setting: str) -> Choice:
    """Read one of an enumeration's values; the ConfigurationError names those there are."""
    try:
        return of(value)
    except ValueError:
        known = ", ".join(each.value for each in of)
        raise ConfigurationError(f"{setting} is {value!r}; it is one of {known}") from None


def problem_settings(tasks: Sequence[str], options: StreamOptions) -> ProblemSettings:
    """Check a stream's options; the ConfigurationError names the one that can't work."""
    named = options.get("complexity_mode")
    mode = None if named is None else _choice(ComplexityMode, named, "complexity_mode")
    level = options.get("complexity_level")
    require_level_where_fixed(mode, level)
    target = options.get("curriculum_target_accuracy", 0.7)
    if not 0 < target < 1:
        raise ConfigurationError(f"curriculum_target_accuracy is {target}; it lies between 0 and 1")
    return ProblemSettings(
        seed=options.get("seed", 0),
        include_tasks=tasks,
        exclude_tasks=options.get("exclude_tasks", ()),
        task_weights=options.get("task_weights", {}),
        task_parameters=options.get("task_parameters", {}),
        complexity_mode=mode,
        complexity_level=level,
        curriculum_target_accuracy=target,
        sampling=_choice(TaskSampling, options.get("sampling", "uniform"), "sampling"),
        max_token_length=None,
    )


class AsyncProblemStream:
    """Hands out training problems, which follow what it is told of their results.

    `AsyncReasoningGym.stream` makes it.

    Example:
        stream = await gym.stream(complexity_mode="curriculum", sampling="signal")
        problem = await stream.next()
        stream.observe(problem, solved=3, attempts=8)
    """

    def __init__(self, problems: TrainingProblems) -> None:
        self._problems = problems

    def __aiter__(self) -> AsyncIterator[Problem]:
        return self

    async def __anext__(self) -> Problem:
        return await self.next()

    async def next(self) -> Problem:
        """The next problem.

        Raises:
            GenerationError: nothing can be made any more.
            PoolClosedError: the gym is closed.
        """
        return await self._problems.next(_has_room)

    def observe(self, problem: Problem | Recipe, *, solved: int, attempts: int) -> None:
        """Learn that `solved` of `attempts` scored completions of a problem were right."""
        if not 0 <= solved <= attempts:
            raise ValueError(f"solved is {solved}, which is not from 0 to attempts, {attempts}")
        recipe = problem.recipe if isinstance(problem, Problem) else problem
        self._problems.record(recipe, solved=solved, scored=attempts)

    def levels(self) -> dict[str, Any]:
        """Where the curriculum has each task: see `TrainingProblems.curriculum_stats`."""
        return self._problems.curriculum_stats()

    def state_dict(self, unfinished: Sequence[Problem] = ()) -> dict[str, Any]:
        """The state as JSON.

        Args:
            unfinished: problems handed out and not yet observed: they come again first.
        """
        return self._problems.state_dict(unfinished)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue another stream exactly; call it from the event loop.

        Raises:
            ConfigurationError: it holds a problem that can't be made.
        """
        self._problems.load_state_dict(state)

    def close(self) -> None:
        """Drop what was made ahead."""
        self._problems.close()


async def _has_room(_: Problem) -> bool:
    """Nobody counts tokens here: every prompt has room."""
    return True
