"""Helpers of several adapters: a shared gym, held-out problems, recipes as text."""

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

__all__ = ["evaluation_problems", "shared_gym"]


@functools.cache
def shared_gym() -> ReasoningGym:
    """Return this process's gym, for frameworks that create tasks and scorers by name."""
    return ReasoningGym()


def evaluation_problems(
    gym: ReasoningGym,
    tasks: Sequence[str] = (),
    *,
    per_task: int,
    difficulty: float | None = None,
    seed: int = 0,
) -> list[Problem]:
    """Make held-out problems, which training never draws.

    Args:
        tasks: tasks and categories; empty means all.
        difficulty: from 0, each task's easiest level, to 1, its hardest. None is the library's
            default configuration: the problems of `evaluate` with `seed` as its eval_seed.

    Raises:
        UnknownTaskError: a name is neither a task nor a category.
        ConfigurationError: `per_task` or `difficulty` is out of range.
    """
    if per_task < 1:
        raise ConfigurationError(f"per_task must be an integer ≥ 1, got {per_task}")
    if not 0 <= (difficulty or 0) <= 1:
        raise ConfigurationError(f"difficulty must be in [0, 1], got {difficulty}")
    known = gym.tasks()
    categories = {task.name: task.category for task in known}
    levels = {
        task.name: None if difficulty is None else round(position_of(difficulty, task.levels))
        for task in known
    }
    discovery = Discovery(categories=categories, failures={}, warning=None)
    return [
        problem
        for task in select_tasks(discovery, include=tasks)
        if task.used
        for problem in gym.problems(
            task.name,
            level=levels[task.name],
            count=per_task,
            seed=seed,
            split="eval",
        )
    ]


def parse_recipe(text: str) -> Mapping[str, Any]:
    """Parse a recipe's JSON text; raise ConfigurationError if it is not an object."""
    try:
        recipe = json.loads(text)
    except (TypeError, ValueError):
        recipe = None
    if not isinstance(recipe, dict):
        raise ConfigurationError(f"a recipe must be the text of a JSON object, got {text!r}")
    return recipe
