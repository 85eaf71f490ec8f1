"""The tasks of a run with their weights, ladders and parameters, validated at startup."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigurationError, GenerationError, GenerationTimeoutError, did_you_mean
from ..records import Ladder, Recipe
from ..sandbox.pool import MAX_TIMEOUTS, ProblemGenerator, TaskPool
from ..tasks.catalogue import TaskInfo, proven_tasks, require_known, select_tasks, task_weights
from ..tasks.ladders import TaskLadder
from .curriculum import Curriculum
from .levels import ComplexityMode, FixedLevels, Levels, RandomLevels
from .sampler import TaskSampling
from .seeds import evaluation_seed

logger = logging.getLogger(__name__)

_TRIES = 3
"""The number of items to try before refusing parameters: single items of some tasks fail."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProblemSettings:
    """The options that determine a run's training problems, with their names.

    Attributes:
        max_token_length: of prompt and completion; levels whose questions don't fit are left out.
            None if tokens are not counted.
    """

    seed: int
    include_tasks: Sequence[str]
    exclude_tasks: Sequence[str]
    task_weights: Mapping[str, float]
    task_parameters: Mapping[str, Mapping[str, Any]]
    complexity_mode: ComplexityMode | None
    difficulty: float | None
    curriculum_target_accuracy: float
    sampling: TaskSampling
    max_token_length: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The tasks that a run uses.

    Attributes:
        categories: category by task.
        weights: relative weight by task.
        ladders: by task; empty unless requested or needed.
        levels: chooses the level of each problem.
    """

    categories: Mapping[str, str]
    weights: Mapping[str, float]
    ladders: Mapping[str, Ladder]
    levels: Levels


async def select(pool: TaskPool, settings: ProblemSettings, *, with_ladders: bool) -> Selection:
    """Discover the tasks and select those of the run, with their weights and levels.

    Args:
        with_ladders: whether to load the ladders even if training needs none.

    Raises:
        UnknownTaskError: a configured task does not exist.
        ConfigurationError: no task is left, or a task refuses its parameters.
    """
    discovery = await pool.discover(proven=proven_tasks())
    if discovery.warning:
        logger.warning("%s", discovery.warning)
    tasks = select_tasks(discovery, include=settings.include_tasks, exclude=settings.exclude_tasks)
    logger.info("%s", _summary(tasks))
    weights = task_weights(tasks, settings.task_weights)
    ladders: dict[str, Ladder] = {}
    drawn: dict[str, Ladder] = {}
    if settings.complexity_mode or settings.task_parameters or with_ladders:
        known = await pool.ladders()
        require_names(settings.task_parameters, known)
        ladders = {task: known[task].levels for task in weights}
        if settings.complexity_mode:
            drawn = {task: ladder for task, ladder in ladders.items() if weights[task] > 0}
        used = {t: values for t, values in settings.task_parameters.items() if t in ladders}
        await require_values(pool, used, drawn)
    return Selection(
        categories={task.name: task.category for task in tasks if task.used},
        weights=weights,
        ladders=ladders,
        levels=levels_of(settings, drawn),
    )


def _summary(tasks: Sequence[TaskInfo]) -> str:
    """Return how many tasks are used, and how many are left out, by reason."""
    reasons = Counter(task.reason for task in tasks if not task.used)
    left_out = "; ".join(f"{number} left out: {reason}" for reason, number in reasons.items())
    used = f"{sum(task.used for task in tasks)} of {len(tasks)} tasks are used"
    return f"{used}; {left_out}" if left_out else used


def levels_of(settings: ProblemSettings, ladders: Mapping[str, Ladder]) -> Levels:
    """Return the levels for the settings' mode."""
    match settings.complexity_mode:
        case ComplexityMode.RANDOM:
            return RandomLevels(ladders)
        case ComplexityMode.FIXED:
            return FixedLevels(ladders, settings.difficulty or 0.0)
        case ComplexityMode.CURRICULUM:
            return Curriculum(ladders, settings.curriculum_target_accuracy)
        case None:
            return Levels()


def require_names(
    parameters: Mapping[str, Mapping[str, Any]], ladders: Mapping[str, TaskLadder]
) -> None:
    """Raise ConfigurationError if a task or parameter does not exist."""
    require_known(parameters, ladders, "task_parameters", what="task")
    for task, values in parameters.items():
        names = ladders[task].parameters
        for name in values:
            if name not in names:
                hint = did_you_mean(name, names, otherwise=f"it has {', '.join(names)}")
                raise ConfigurationError(
                    f"task_parameters: {task} has no parameter {name!r}; {hint}"
                )


async def require_values(
    pool: ProblemGenerator,
    parameters: Mapping[str, Mapping[str, Any]],
    ladders: Mapping[str, Ladder],
) -> None:
    """Try the parameters: make an item of each task at each of its levels.

    Args:
        ladders: the levels in use; other tasks are tried at the library's default.

    Raises:
        ConfigurationError: a task refuses its parameters.
    """
    for task, values in parameters.items():
        for number, level in enumerate(ladders.get(task, ({},))):
            at = f" at its level {number} ({dict(level)})" if task in ladders else ""
            await _require_item(pool, task, {**level, **values}, f"{dict(values)}{at}")


async def _require_item(
    pool: ProblemGenerator, task: str, parameters: Mapping[str, Any], described: str
) -> None:
    error: GenerationError | None = None
    missed = 0
    for index in range(_TRIES):
        recipe = Recipe(task=task, seed=evaluation_seed(0, task, index), parameters=parameters)
        try:
            await pool.generate(recipe)
            return
        except GenerationError as raised:
            error = raised
            missed += isinstance(raised, GenerationTimeoutError)
            if missed == MAX_TIMEOUTS:
                break
    raise ConfigurationError(
        f"task_parameters: no item of {task} with {described}: {error}; levels set both ends of a "
        "range, so set both"
    ) from error
