"""Holds what several adapters need: this process's gym, held-out problems, recipes as text."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ConfigurationError
from ..gym.blocking import ReasoningGym
from ..problems.levels import position_of
from ..records import Problem
from ..tasks.catalogue import Discovery, select_tasks


@functools.cache
def shared_gym() -> ReasoningGym:
    """Give this process's one gym, for frameworks that make their tasks and scorers by name."""
    return ReasoningGym()


def evaluation_problems(
    gym: ReasoningGym,
    tasks: Sequence[str] = (),
    *,
    per_task: int,
    complexity_level: float | None = None,
    seed: int = 0,
) -> list[Problem]:
    """Make held-out problems, which no training draws.

    Args:
        tasks: tasks and categories; empty means all.
        complexity_level: from 0, each task's easiest level, to 1, its hardest. None is the
            library's default configuration: the problems of `evaluate` with that eval_seed.

    Raises:
        UnknownTaskError: a name is neither a task nor a category.
        ConfigurationError: there is no such level, or nothing is asked for.
    """
    if per_task < 1:
        raise ConfigurationError(f"per_task is {per_task}; it is at least 1")
    if not 0 <= (complexity_level or 0) <= 1:
        raise ConfigurationError(f"complexity_level is {complexity_level}; it lies from 0 to 1")
    known = {task.name: task for task in gym.tasks()}
    categories = {name: task.category for name, task in known.items()}
    discovery = Discovery(categories=categories, failures={}, warning=None)
    return [
        problem
        for task in select_tasks(discovery, include=tasks)
        if task.used
        for problem in gym.problems(
            task.name,
            level=_level(complexity_level, known[task.name].levels),
            count=per_task,
            seed=seed,
            split="eval",
        )
    ]


def _level(complexity_level: float | None, levels: int) -> int | None:
    """Choose the nearest level of a ladder."""
    return None if complexity_level is None else round(position_of(complexity_level, levels))


def recipe_of(text: str) -> Mapping[str, Any]:
    """Read a recipe's JSON text; the ConfigurationError quotes what is none."""
    try:
        recipe = json.loads(text)
    except (TypeError, ValueError):
        recipe = None
    if not isinstance(recipe, dict):
        raise ConfigurationError(f"{text!r} is not the JSON text of a recipe")
    return recipe
