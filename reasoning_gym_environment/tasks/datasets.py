"""reasoning-gym's dataset objects, kept per task and parameters."""

from __future__ import annotations

import decimal
import json
import pickle
from collections.abc import Mapping
from typing import Any

from reasoning_gym.factory import create_dataset

from ..core.records import Problem, Recipe
from .facts import SEEDED_AT_CONSTRUCTION, SEEDS_NUMPY, UNUSABLE_ORACLES


class Datasets:
    """Builds dataset objects once: construction can cost more than an item."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], Any] = {}

    def get(self, task: str, parameters: Mapping[str, Any]) -> Any:
        """The dataset of that task and parameters; its seed is the caller's to set."""
        key = (task, json.dumps(parameters, sort_keys=True))
        if key not in self._kept:
            self._kept[key] = create_dataset(task, seed=0, size=1, **parameters)
        return self._kept[key]

    def entry(self, recipe: Recipe) -> dict[str, Any]:
        """The library's entry for a recipe; the same in every process of one hash seed."""
        seed = recipe.seed % 2**32 if recipe.task in SEEDS_NUMPY else recipe.seed
        if recipe.task in SEEDED_AT_CONSTRUCTION:
            dataset = create_dataset(recipe.task, seed=seed, size=1, **recipe.parameters)
        else:
            dataset = self.get(recipe.task, recipe.parameters)
            dataset.seed = seed
        entry: dict[str, Any] = dataset[0]
        return entry

    def problem(self, recipe: Recipe) -> Problem:
        """Raises ValueError for an item that the library itself could not solve."""
        decimal.setcontext(decimal.Context())  # decimal_arithmetic lowers the process's precision
        entry = self.entry(recipe)
        mark = UNUSABLE_ORACLES.get(recipe.task)
        if mark and mark in entry["answer"]:
            raise ValueError(f"the library has no answer to its own problem: {entry['answer']}")
        return Problem(
            recipe=recipe,
            question=entry["question"],
            oracle=entry["answer"],
            entry=pickle.dumps(entry),
        )
