"""reasoning-gym's dataset objects, the last used ones kept per task and parameters."""

from __future__ import annotations

import decimal
import json
import pickle
import random
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..records import Problem, Recipe
from .facts import SEEDED_AT_CONSTRUCTION, SEEDS_NUMPY, SHARES_DATA, UNUSABLE_ORACLES
from .known_values import require_allowed
from .own_parameters import choose_entry, library_parameters

_MOST_KEPT = 420
"""Four levels of every task: about 180 MB."""


class Datasets:
    """Builds dataset objects once: construction can cost more than an item.

    Args:
        most_kept: the one that was not used for longest makes room for another.
    """

    def __init__(self, *, most_kept: int = _MOST_KEPT) -> None:
        from reasoning_gym.factory import create_dataset  # heavy: only workers come here

        self._create = create_dataset
        self._kept: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._most_kept = most_kept

    def get(self, task: str, parameters: Mapping[str, Any]) -> Any:
        """Give the dataset of that task and parameters; its seed is the caller's to set.

        Raises:
            ValueError, TypeError: the task is not known to take these parameters.
        """
        require_allowed(Recipe(task=task, seed=0, parameters=parameters))
        library = library_parameters(task, parameters)
        key = (task, json.dumps(library, sort_keys=True))
        if key not in self._kept:
            if task in SHARES_DATA:
                for known in [known for known in self._kept if known[0] == task]:
                    del self._kept[known]
            self._kept[key] = self._create(task, seed=0, size=1, **library)
        self._kept.move_to_end(key)
        if len(self._kept) > self._most_kept:
            self._kept.popitem(last=False)
        return self._kept[key]

    def kept(self) -> list[Any]:
        """List the datasets that are built."""
        return list(self._kept.values())

    def entry(self, recipe: Recipe) -> dict[str, Any]:
        """Make the library's entry for a recipe; the same in every process of one hash seed.

        Raises:
            ValueError, TypeError: the recipe is not one that its task is known to bear.
        """
        require_allowed(recipe)
        random.seed(recipe.seed)  # one generator of list_functions draws from the global one
        return choose_entry(recipe, partial(self._seeded, recipe.task, recipe.parameters))

    def _seeded(self, task: str, parameters: Mapping[str, Any], seed: int) -> Any:
        seed = seed % 2**32 if task in SEEDS_NUMPY else seed
        if task in SEEDED_AT_CONSTRUCTION:
            return self._create(task, seed=seed, size=1, **library_parameters(task, parameters))
        dataset = self.get(task, parameters)
        dataset.seed = seed
        dataset.size = 1  # word_ladder's sets 0 when it finds no item, and finds none from then on
        return dataset

    def problem(self, recipe: Recipe) -> Problem:
        """Make a problem; raises ValueError for an item that the library itself could not solve."""
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
