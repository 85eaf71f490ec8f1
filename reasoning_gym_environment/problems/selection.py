"""The tasks that a run uses, validated at its start, with their weights and levels."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import (
    ConfigurationError,
    GenerationError,
    GenerationTimeoutError,
    did_you_mean,
)
from ..records import Ladder, Recipe
from ..sandbox.pool import Generate, TaskPool
from ..tasks.catalogue import (
    count_used,
    describe_left_out,
    proven_tasks,
    require_known,
    select_tasks,
    task_weights,
)
from ..tasks.facts import LIBRARY, NOT_A_TASK
from ..tasks.ladders import TaskLadder
from ..tasks.library import way_out
from ..util.concurrency import gather_or_cancel
from .levels import Curriculum, DefaultLevels, FixedLevels, LevelPolicy, RandomLevels
from .options import TaskOptions
from .seeds import evaluation_seed

logger = logging.getLogger(__name__)

MAX_TIMEOUTS = 2
"""Items that may reach their time limit before parameters are refused. One may be a task's rare
hang, and each costs ten seconds."""


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
    levels: LevelPolicy


async def select(
    pool: TaskPool,
    options: TaskOptions,
    *,
    tasks: Sequence[str],
    with_ladders: bool,
) -> Selection:
    """Discover the tasks and select those of the run, with their weights and levels.

    Args:
        tasks: tasks and categories to use; empty means all.
        with_ladders: whether to load the ladders even if training needs none.

    Raises:
        UnknownTaskError: a configured task does not exist.
        ConfigurationError: no task is left, a task of a user's makes no item, or one refuses its
            parameters.
    """
    discovery = await pool.discover(proven=proven_tasks())
    if discovery.warning:
        logger.warning("%s", discovery.warning)
    if discovery.categories.keys() <= discovery.failures.keys() | NOT_A_TASK.keys():
        raise ConfigurationError(f"no task of {LIBRARY} loads: {way_out()}")
    selected = select_tasks(discovery, include=tasks, exclude=options.exclude_tasks)
    logger.info("%s%s", count_used(selected), describe_left_out(selected))
    weights = task_weights(selected, options.task_weights)
    ladders: dict[str, Ladder] = {}
    drawn: dict[str, Ladder] = {}
    if options.complexity_mode or options.task_parameters or with_ladders:
        all_ladders = await pool.ladders()
        require_names(options.task_parameters, all_ladders)
        ladders = {task: all_ladders[task].levels for task in weights}
        if options.complexity_mode:
            drawn = {
                task: ladder for task, ladder in ladders.items() if weights[task] > 0
            }
        used = {
            t: values for t, values in options.task_parameters.items() if t in ladders
        }
        await require_values(pool.generate, used, drawn)
    hint = "fix it, or leave it out with exclude_tasks"
    await gather_or_cancel(
        _require_item(pool.generate, task, {}, f"{task}: it makes no item", hint)
        for task, weight in weights.items()
        if weight > 0 and pool.module_of(task) and task not in options.task_parameters
    )
    return Selection(
        categories={task.name: task.category for task in selected if task.used},
        weights=weights,
        ladders=ladders,
        levels=_levels_of(options, drawn),
    )


def _levels_of(options: TaskOptions, ladders: Mapping[str, Ladder]) -> LevelPolicy:
    """Return the levels for the options' mode."""
    match options.complexity_mode:
        case "random":
            return RandomLevels(ladders)
        case "fixed":
            return FixedLevels(ladders, options.difficulty or 0.0)
        case "curriculum":
            return Curriculum(ladders, options.curriculum_target_accuracy)
        case None:
            return DefaultLevels()


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
    generate: Generate,
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
            subject = f"task_parameters: no item of {task} with {dict(values)}{at}"
            hint = "levels set both ends of a range, so set both"
            await _require_item(generate, task, {**level, **values}, subject, hint)


async def _require_item(
    generate: Generate,
    task: str,
    parameters: Mapping[str, Any],
    subject: str,
    hint: str,
) -> None:
    error: GenerationError | None = None
    missed = 0
    for index in range(3):  # single items of some tasks fail
        recipe = Recipe(
            task=task, seed=evaluation_seed(0, task, index), parameters=parameters
        )
        try:
            await generate(recipe)
            return
        except GenerationError as raised:
            error = raised
            missed += isinstance(raised, GenerationTimeoutError)
            if missed == MAX_TIMEOUTS:
                break
    raise ConfigurationError(f"{subject}: {error}; {hint}") from error
