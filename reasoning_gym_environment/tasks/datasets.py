"""reasoning-gym's dataset objects, and the problems they make.

The library evaluates some of its parameters, so a recipe is checked before the library sees it:
its shape by `recipes`, its parameters against the values each is known to take. These are the
defaults, the plain types and choices of the annotation, and the levels of all ladders.
"""

from __future__ import annotations

import dataclasses
import decimal
import json
import pickle
import random
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from functools import cache, partial
from importlib.metadata import version
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..records import Problem, Recipe
from ..util.values import shorten
from .catalogue import require_known
from .facts import LIBRARY, NOT_A_TASK, SEEDED_AT_CONSTRUCTION, SHARES_DATA
from .item_checks import item_fault
from .ladders import (
    OWN_LADDERS,
    REPAIRS,
    choose_entry,
    curriculum_levels,
    library_parameters,
    parameter_names,
)
from .recipes import (
    KnownParameter,
    require_known_values,
    require_parameters_of_level,
    require_valid_recipe,
)


class Datasets:
    """A least-recently-used cache of dataset objects: building one can cost more than an item.

    The default size is four levels of every task, about 180 MB.

    Args:
        own: tasks of a user's module, each of whose items has a new object, as their class may
            read its seed anywhere.
    """

    def __init__(
        self, *, own_tasks: Collection[str] = (), cache_size: int = 420
    ) -> None:
        # Heavy: only workers come here.
        from reasoning_gym.factory import create_dataset

        self._create = create_dataset
        self._version = version(LIBRARY)
        self._own = own_tasks
        self._cache: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._cache_size = cache_size
        self._memory: Callable[[], int] = int
        self._max_memory = 0

    def limit_memory(self, memory: Callable[[], int], limit: int) -> None:
        """Evict datasets from now on while `memory` measures more than `limit` bytes in use."""
        self._memory = memory
        self._max_memory = limit

    def get(self, task: str, parameters: Mapping[str, Any]) -> Any:
        """Return the dataset of a task and allowed parameters; the caller sets its seed."""
        require_allowed(Recipe(task=task, seed=0, parameters=parameters))
        library = library_parameters(task, parameters)
        key = (task, json.dumps(library, sort_keys=True))
        if key not in self._cache:
            if task in SHARES_DATA:
                for cached in [cached for cached in self._cache if cached[0] == task]:
                    del self._cache[cached]
            self._cache[key] = self._create(task, seed=0, size=1, **library)
            while len(self._cache) > 1 and (
                len(self._cache) > self._cache_size or self._memory() > self._max_memory
            ):
                self._cache.popitem(last=False)
        self._cache.move_to_end(key)
        return self._cache[key]

    def cached(self) -> list[Any]:
        """Return the dataset objects in the cache."""
        return list(self._cache.values())

    def entry(self, recipe: Recipe) -> dict[str, Any]:
        """Make the entry of an allowed recipe; the same in every process of one hash seed."""
        require_allowed(recipe)
        # list_functions and codeio draw from the global generators.
        seed_globals(recipe.seed)
        if recipe.task in self._own:
            return self._own_entry(recipe)
        return choose_entry(
            recipe, partial(self._seeded, recipe.task, recipe.parameters)
        )

    def _own_entry(self, recipe: Recipe) -> dict[str, Any]:
        """Make an entry of a user's task; raise TypeError if it is not one."""
        from reasoning_gym.factory import has_curriculum

        require_parameters_of_level(recipe, has_levels=has_curriculum(recipe.task))
        seed = recipe.seed % 2**32  # which numpy takes; the lowest bit stays
        dataset = self._create(
            recipe.task,
            seed=seed,
            size=1,
            **recipe.parameters,
        )
        # What the class fills once must not change what the item draws.
        seed_globals(seed)
        entry = dataset[0]
        question = entry["question"]
        answer = entry["answer"]
        if not (isinstance(question, str) and question.strip()):
            raise TypeError(f"question must be a text, got {shorten(question)}")
        if not isinstance(answer, str | None):
            raise TypeError(f"answer must be a text or None, got {shorten(answer)}")
        return {**entry}

    def second_answer(self, recipe: Recipe) -> str:
        """Answer a user's problem by the task's own solver; TypeError unless that gives a text."""
        from reasoning_gym.factory import DATASETS  # only workers come here

        dataset: Any = DATASETS[recipe.task][0]
        answer = dataset.solve(self.entry(recipe))
        if not isinstance(answer, str):
            raise TypeError(f"solve must return a text, got {shorten(answer)}")
        return answer

    def _seeded(self, task: str, parameters: Mapping[str, Any], seed: int) -> Any:
        if task == "pool_matrix":
            seed %= 2**32  # it seeds numpy, which takes 32 bits
        if task in SEEDED_AT_CONSTRUCTION:
            return self._create(
                task,
                seed=seed,
                size=1,
                **library_parameters(task, parameters),
            )
        dataset = self.get(task, parameters)
        dataset.seed = seed
        # word_ladder sets 0 if it finds no item, and finds none from then on.
        dataset.size = 1
        return dataset

    def problem(self, recipe: Recipe) -> Problem:
        """Make a problem; raise ValueError if it is too large or the library couldn't solve it."""
        # decimal_arithmetic lowers the process's precision.
        decimal.setcontext(decimal.Context())
        entry = self.entry(recipe)
        if recipe.task == "intermediate_integration" and "Integral(" in entry["answer"]:
            raise ValueError(
                f"the library has no answer to its own problem: {entry['answer']}"
            )
        pickled = pickle.dumps(entry)
        if len(pickled) > 2**20:  # the largest of all ladders has 36,000 bytes
            raise ValueError(
                f"the problem has {len(pickled) / 2**20:.1f} MiB, more than the limit of 1 MiB: "
                "lower its parameters"
            )
        return Problem(
            recipe=dataclasses.replace(recipe, library_version=self._version),
            # A subclass of `str`, such as NumPy's, can't be sent as it is.
            question=str(entry["question"]),
            oracle=None if entry["answer"] is None else str(entry["answer"]),
            entry=pickled,
            fault=item_fault(recipe.task, entry),
        )


def seed_globals(seed: int) -> None:
    """Seed the global generators, from which some items are drawn."""
    import numpy as np  # only workers come here

    random.seed(seed)
    np.random.seed(seed % 2**32)


def require_allowed(recipe: Recipe) -> None:
    """Check a recipe before the library sees it; raise ValueError or TypeError with the reason."""
    require_valid_recipe(recipe)
    require_parameters_of_level(recipe)
    require_known_values(recipe.parameters, known_parameters(recipe.task))


@cache
def known_parameters(task: str) -> Mapping[str, KnownParameter]:
    """Return what is known of each parameter of a task; raise UnknownTaskError."""
    # Heavy: only workers come here.
    from reasoning_gym.factory import CURRICULA, DATASETS

    require_known([task], DATASETS.keys() - NOT_A_TASK.keys(), "task", what="task")
    configuration = DATASETS[task][1]
    hints = get_type_hints(configuration)
    values: dict[str, list[Any]] = {name: [] for name in parameter_names(task)}
    for field in dataclasses.fields(configuration):
        if field.name in values:
            make = field.default_factory
            default = field.default if make is dataclasses.MISSING else make()
            values[field.name] += [default, *_values_of_type(hints[field.name])]
    levels: list[Mapping[str, Any]] = (
        curriculum_levels(task) if task in CURRICULA else []
    )
    for table in (OWN_LADDERS, REPAIRS):
        levels += table[task].levels if task in table else ()
    for level in levels:
        for name in values.keys() & level.keys():
            values[name].append(level[name])
    return {
        name: KnownParameter.of(known_values) for name, known_values in values.items()
    }


def _values_of_type(hint: Any) -> Iterator[Any]:
    """Yield a value of each plain type that an annotation names, or all values of a choice."""
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    elif isinstance(hint, type) and issubclass(hint, Enum):
        yield from (str(member.value) for member in hint)
    else:
        parts = get_args(hint) if get_origin(hint) is Union else (hint,)
        for part in parts:
            kind = get_origin(part) or part
            if kind in (bool, int, float, str, list, tuple):
                yield kind()


def text_of(value: Any) -> str:
    """Write a value that can be pickled, so that equal values are equal texts in every process.

    Example:
        >>> text_of({"a": ({2, 1}, 0.5)})
        "{'a': ({1, 2}, 0.5)}"
    """
    match value:
        case dict():
            pairs = (
                f"{text_of(key)}: {text_of(inner)}" for key, inner in value.items()
            )
            return f"{{{', '.join(pairs)}}}"
        case list():
            return f"[{', '.join(map(text_of, value))}]"
        case tuple():
            return f"({', '.join(map(text_of, value))})"
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(text_of, value)))}}}"
        case str() | bytes() | int() | float() | None:
            return repr(value)
    if hasattr(value, "__qualname__"):  # a class or function
        return str(value.__qualname__)
    return f"{type(value).__qualname__} {text_of(value.__reduce_ex__(4)[1:3])}"


def json_changes(entry: Mapping[str, Any]) -> str:
    """Name the fields of an entry, and of its metadata, that JSON would change."""

    def survives(value: Any) -> bool:
        try:
            return text_of(json.loads(json.dumps(value))) == text_of(value)
        except (TypeError, ValueError):
            return False

    fields = {**entry, **entry["metadata"]}
    return ", ".join(
        name for name in fields if name != "metadata" and not survives(fields[name])
    )
