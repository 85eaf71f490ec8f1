"""What callers pass, checked where it enters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigurationError
from ..problems.seeds import evaluation_seed, training_seed
from ..records import Problem, Recipe
from ..tasks.recipes import read_recipe

Scorable = Problem | Recipe | Mapping[str, Any]
"""A problem, or its recipe, also as JSON: a recipe's problem is made again."""


def require_split(split: str) -> None:
    """Refuse what is neither "train" nor "eval"; raises ConfigurationError."""
    if split not in ("train", "eval"):
        raise ConfigurationError(f"split is {split!r}; it is train or eval")


def seed_of(split: str, seed: int, task: str, index: int) -> int:
    """Hash the seed of a task's item: even ones train, odd ones evaluate."""
    if split == "eval":
        return evaluation_seed(seed, task, index)
    return training_seed(seed, "", task, index)


def checked(recipe: Recipe | Mapping[str, Any]) -> Recipe:
    """Check a recipe from outside; raises ConfigurationError, which says what is wrong with it."""
    try:
        return read_recipe(recipe.to_json() if isinstance(recipe, Recipe) else recipe)
    except ValueError as error:
        raise ConfigurationError(f"this is no sound recipe: {error}") from error
