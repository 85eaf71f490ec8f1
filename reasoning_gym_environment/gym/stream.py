"""`AsyncProblemStream`: an endless stream of training problems with a curriculum."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, TypedDict, TypeVar

from ..errors import ConfigurationError
from ..problems.levels import ComplexityMode, require_difficulty_where_fixed
from ..problems.sampler import TaskSampling
from ..problems.task_selection import ProblemSettings
from ..problems.training import TrainingProblems
from ..records import Problem, Recipe


class StreamOptions(TypedDict, total=False):
    """The options of a stream, as the environment's options of the same names.

    Attributes:
        complexity_mode: "random", "curriculum" or "fixed"; unset means the library's default.
        difficulty: with "fixed": 0 is every task's easiest level, 1 its hardest.
        complexity_level: the old name of difficulty.
        curriculum_target_accuracy: with "curriculum", the share of solved completions; 0.7.
        sampling: "uniform", or "signal": by the probability that a group is partly solved.
        seed: of the stream; 0.
        replica: streams of one seed and different replicas have different problems.
        reserved: questions to leave out, such as those of an evaluation set.
    """

    exclude_tasks: Sequence[str]
    task_weights: Mapping[str, float]
    task_parameters: Mapping[str, Mapping[str, Any]]
    complexity_mode: str | None
    difficulty: float | None
    complexity_level: float | None
    curriculum_target_accuracy: float
    sampling: str
    seed: int
    replica: str
    reserved: Iterable[str]


Choice = TypeVar("Choice", bound=Enum)


def _choice(of: type[Choice], value: str, setting: str) -> Choice:
    """Return an enumeration's member by value; raise ConfigurationError for an unknown value."""
    try:
        return of(value)
    except ValueError:
        known = ", ".join(each.value for each in of)
        raise ConfigurationError(f"{setting} must be one of {known}, got {value!r}") from None


def problem_settings(tasks: Sequence[str], options: StreamOptions) -> ProblemSettings:
    """Validate a stream's options; raise ConfigurationError for an invalid one."""
    named = options.get("complexity_mode")
    mode = None if named is None else _choice(ComplexityMode, named, "complexity_mode")
    difficulty = options.get("difficulty")
    if difficulty is None:
        difficulty = options.get("complexity_level")
    require_difficulty_where_fixed(mode, difficulty)
    target = options.get("curriculum_target_accuracy", 0.7)
    if not 0 < target < 1:
        raise ConfigurationError(f"curriculum_target_accuracy must be in (0, 1), got {target}")
    return ProblemSettings(
        seed=options.get("seed", 0),
        include_tasks=tasks,
        exclude_tasks=options.get("exclude_tasks", ()),
        task_weights=options.get("task_weights", {}),
        task_parameters=options.get("task_parameters", {}),
        complexity_mode=mode,
        difficulty=difficulty,
        curriculum_target_accuracy=target,
        sampling=_choice(TaskSampling, options.get("sampling", "uniform"), "sampling"),
        max_token_length=None,
    )


class AsyncProblemStream:
    """An endless stream of training problems, whose levels follow the observed results.

    Created by `AsyncReasoningGym.stream`.

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
        """Return the next problem.

        Raises:
            GenerationError: no problem can be made.
            PoolClosedError: the gym is closed.
        """
        return await self._problems.next(_has_room)

    def observe(self, problem: Problem | Recipe, *, solved: int, attempts: int) -> None:
        """Record that `solved` of `attempts` scored completions of a problem were right."""
        if not 0 <= solved <= attempts:
            raise ValueError(f"solved must be from 0 to attempts ({attempts}), got {solved}")
        recipe = problem.recipe if isinstance(problem, Problem) else problem
        self._problems.record(recipe, solved=solved, scored=attempts)

    def levels(self) -> dict[str, Any]:
        """Return the curriculum's state: see `TrainingProblems.curriculum_stats`."""
        return self._problems.curriculum_stats()

    def state_dict(self, unfinished: Sequence[Problem] = ()) -> dict[str, Any]:
        """Return the state as JSON.

        Args:
            unfinished: problems handed out but not yet observed; a resumed stream repeats them.
        """
        return self._problems.state_dict(unfinished)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue another stream exactly; call it in the event loop.

        Raises:
            ValueError: the state is invalid, or another stream's.
            ConfigurationError: the state holds an invalid recipe.
        """
        self._problems.load_state_dict(state)

    def close(self) -> None:
        """Drop all pending problems."""
        self._problems.close()


async def _has_room(_: Problem) -> bool:
    """Accept every prompt, as tokens are not counted here."""
    return True
