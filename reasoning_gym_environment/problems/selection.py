"""The ladders and parameters of a run's tasks, checked before the first request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigurationError, GenerationError, did_you_mean
from ..records import Ladder, Recipe
from ..tasks.catalogue import require_known
from ..tasks.ladders import TaskLadder
from ..workers.pool import TaskPool
from .curriculum import Curriculum
from .levels import ComplexityMode, FixedLevels, Levels, RandomLevels
from .seeds import evaluation_seed

_TRIES = 3
"""Items tried before parameters are refused: the library fails at single items of some tasks."""


def levels_of(
    mode: ComplexityMode | None,
    ladders: Mapping[str, Ladder],
    *,
    difficulty: float | None,
    target: float,
) -> Levels:
    """What chooses the level of each problem.

    Args:
        difficulty: in [0, 1], for `fixed`.
        target: share of solved rollouts, for `curriculum`.
    """
    if mode is ComplexityMode.RANDOM:
        return RandomLevels(ladders)
    if mode is ComplexityMode.FIXED:
        return FixedLevels(ladders, difficulty or 0.0)
    if mode is ComplexityMode.CURRICULUM:
        return Curriculum(ladders, target)
    return Levels()


def require_names(
    parameters: Mapping[str, Mapping[str, Any]], ladders: Mapping[str, TaskLadder]
) -> None:
    """Raises ConfigurationError for a task or a parameter that does not exist."""
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
    pool: TaskPool, parameters: Mapping[str, Mapping[str, Any]], ladders: Mapping[str, Ladder]
) -> None:
    """Make an item of each task with parameters, at each level it may be drawn at.

    Args:
        ladders: the levels in use; a task without any is drawn at the library's default.

    Raises:
        ConfigurationError: the task refuses the values.
    """
    for task, values in parameters.items():
        for number, level in enumerate(ladders.get(task, ({},))):
            at = f" at its level {number} ({dict(level)})" if task in ladders else ""
            await _require_item(pool, task, {**level, **values}, f"{dict(values)}{at}")


async def _require_item(
    pool: TaskPool, task: str, parameters: Mapping[str, Any], shown: str
) -> None:
    error: GenerationError | None = None
    for index in range(_TRIES):
        recipe = Recipe(task=task, seed=evaluation_seed(0, task, index), parameters=parameters)
        try:
            await pool.generate(recipe)
            return
        except GenerationError as raised:
            error = raised
    raise ConfigurationError(
        f"task_parameters: no item of {task} with {shown}: {error}; levels set both ends of a "
        "range, so set both"
    ) from error
