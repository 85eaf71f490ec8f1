"""Parameters of our own, for tasks where the library has none that moves their difficulty.

They choose among what the library makes: which of its rules or templates, or which of several
candidates. Every choice derives from the recipe's seed: a recipe stays one problem.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Any

from ..records import Recipe
from .measures import MEASURES, Measure

OWN_PARAMETERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"gsm_symbolic": ("templates",), "list_functions": ("functions",)}
    | dict.fromkeys(MEASURES, ("rank",))
)
"""Task to the names of its own parameters.

    templates, functions: numbers of the library's generators; the item comes from one of them.
    rank: in [0, 1]; of several candidates the one that stands there by the task's measure.
"""

_SPLIT = 2**52


def library_parameters(task: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Keep what the library is to see of a task's parameters."""
    own = OWN_PARAMETERS.get(task, ())
    return {name: value for name, value in parameters.items() if name not in own}


def parameter_names(task: str) -> tuple[str, ...]:
    """List all that a user may set for a task: the library's names, then our own."""
    from reasoning_gym.factory import DATASETS  # heavy: only workers come here

    fields = dataclasses.fields(DATASETS[task][1])
    library = (field.name for field in fields if field.init and field.name not in ("seed", "size"))
    return (*library, *OWN_PARAMETERS.get(task, ()))


def choose_entry(recipe: Recipe, seeded: Callable[[int], Any]) -> dict[str, Any]:
    """Make the entry that a recipe's own parameters choose, or the library's where it has none.

    Args:
        seeded: gives the recipe's dataset for a seed; it is used before the next is asked for.

    Raises:
        ValueError: a parameter of our own has a value that chooses nothing.
    """
    parameters = recipe.parameters
    if recipe.task in MEASURES and "rank" in parameters:
        return _ranked(recipe, MEASURES[recipe.task], seeded)
    dataset = seeded(recipe.seed)
    for name in OWN_PARAMETERS.get(recipe.task, ()):
        if name in parameters:
            dataset.task_indices = [_number(recipe, parameters[name], dataset.generators)]
    entry: dict[str, Any] = dataset[0]
    return entry


def _number(recipe: Recipe, numbers: Sequence[int], known: Mapping[int, Any]) -> int:
    """Draw one of a task's generators; not with the seed that the generator itself gets."""
    if not numbers or not set(numbers) <= known.keys():
        raise ValueError(f"{recipe.task} has the generators {sorted(known)}, not all of {numbers}")
    return Random(f"{recipe.task} {recipe.seed}").choice(numbers)


def _ranked(recipe: Recipe, measure: Measure, seeded: Callable[[int], Any]) -> dict[str, Any]:
    """Take the candidate at the rank; where answers are few, of those with the first one's answer.

    Choosing among all would make the answer itself depend on the level.
    """
    rank = float(recipe.parameters["rank"])
    if not 0 <= rank <= 1:
        raise ValueError(f"rank must lie in [0, 1], not {rank}")
    found = [
        entry
        for seed in _candidate_seeds(recipe, measure.candidates)
        for entry in measure.entries(seeded(seed))
    ]
    if measure.keeps_answer:
        found = [entry for entry in found if entry["answer"] == found[0]["answer"]]
    found.sort(key=measure.of)
    return found[round(rank * (len(found) - 1))]


def _candidate_seeds(recipe: Recipe, count: int) -> list[int]:
    """Draw seeds of the recipe's own kind: the lowest bit keeps training and evaluation apart."""
    draw = Random(f"{recipe.task} {recipe.seed}")
    return [2 * draw.randrange(_SPLIT) + recipe.seed % 2 for _ in range(count)]
