"""Every task's ladder of difficulty: the library's curriculum, a repaired one, or our own.

Range attributes of a curriculum become a window near the level, from the value before it to its
own, so that a higher level has no easy items left.

`ladder_repairs.json` and `own_ladders.json` have the other ladders, each with its reason. Under
"values", each parameter has one value per level. Under "ranges", `x` has bounds, and each level's
`min_x` and `max_x` are two neighbors. "levels" lists levels that set different parameters.

Extra parameters are for tasks where none of the library's changes the difficulty, or keeps one
answer from being right too often. They choose among the library's items: by rule, by template, by
rank among several candidates, or by answer. Every choice derives from the recipe's seed, so a
recipe still determines its problem.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from ..records import Ladder, Recipe
from .item_checks import item_fault
from .item_orders import MEASURES, Entry, Measure


class Replacement(NamedTuple):
    """A ladder that replaces the library's, and the reason."""

    reason: str
    levels: tuple[Mapping[str, Any], ...]


def levels_from(columns: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Turn a table's columns, which must be equally high, into levels, one per row.

    Example:
        >>> levels_from({"ranges": {"n": [2, 4, 8]}, "values": {"p": [0.5, 0.1]}})
        ({'p': 0.5, 'min_n': 2, 'max_n': 4}, {'p': 0.1, 'min_n': 4, 'max_n': 8})
    """
    by_field = dict(columns.get("values", {}))
    for name, bounds in columns.get("ranges", {}).items():
        by_field[f"min_{name}"] = bounds[:-1]
        by_field[f"max_{name}"] = bounds[1:]
    rows = zip(*by_field.values(), strict=True)
    return tuple(dict(zip(by_field, row, strict=True)) for row in rows)


def _read(file: str) -> Mapping[str, Replacement]:
    table = json.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))
    return MappingProxyType(
        {
            task: Replacement(
                entry["reason"], tuple(entry.get("levels") or levels_from(entry))
            )
            for task, entry in table.items()
        }
    )


REPAIRS = _read("ladder_repairs.json")
"""Repaired ladders, for curricula that are broken, slow, too long or start too hard."""

OWN_LADDERS = _read("own_ladders.json")
"""Our own ladders, for curricula that are missing or useless."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskLadder:
    """The levels of one task.

    Attributes:
        levels: dataset parameters in plain JSON, easiest first; at least one.
        origin: "curriculum", "repaired", "own", or "none" for a single level.
        reason: why it differs from the library's curriculum; empty if it doesn't.
        parameters: names of all parameters that a user may set.
    """

    levels: Ladder
    origin: str
    reason: str = ""
    parameters: tuple[str, ...] = ()


def build_ladders(tasks: Iterable[str]) -> dict[str, TaskLadder]:
    """Build the tasks' ladders, ordered by name; raise ValueError that names an unreadable one."""
    ladders = {}
    for task in sorted(tasks):
        try:
            ladders[task] = replace(_build(task), parameters=parameter_names(task))
        except Exception as error:
            raise ValueError(
                f"the levels of {task}: {type(error).__name__}: {error}"
            ) from error
    return ladders


def _build(task: str) -> TaskLadder:
    from reasoning_gym.factory import CURRICULA  # heavy: only workers come here

    if task in OWN_LADDERS:
        replacement = OWN_LADDERS[task]
        return TaskLadder(
            levels=replacement.levels, origin="own", reason=replacement.reason
        )
    if task in REPAIRS:
        return ladder_of(task, REPAIRS[task].levels, repaired=REPAIRS[task].reason)
    if task not in CURRICULA:
        return TaskLadder(
            levels=({},), origin="none", reason="the library has no curriculum"
        )
    return ladder_of(task, curriculum_levels(task))


def curriculum_levels(task: str) -> list[Mapping[str, Any]]:
    """Return the parameters of every level of the task's curriculum."""
    from reasoning_gym.factory import create_curriculum

    attributes = list(create_curriculum(task).attributes.values())
    height = max((len(attribute.levels) for attribute in attributes), default=1)
    return [
        {name: value for at in attributes for name, value in _fields(at, level).items()}
        for level in range(height)
    ]


def _fields(attribute: Any, level: int) -> dict[str, Any]:
    """Return the parameters that an attribute sets; above its last value, it keeps that value."""
    values = attribute.levels
    if not hasattr(attribute, "lower_field_name"):
        return {attribute.field_name: values[min(level, len(values) - 1)]}
    lowest_top = 1 if attribute.ensure_interval else 0
    top = min(level + lowest_top, len(values) - 1)
    window = values[max(top - 1, 0)], values[top]
    return {
        attribute.lower_field_name: min(window),
        attribute.upper_field_name: max(window),
    }


def ladder_of(
    task: str, levels: Iterable[Mapping[str, Any]], *, repaired: str = ""
) -> TaskLadder:
    """Build a ladder of the levels that the task's configuration accepts, without repetitions.

    The ladder's reason lists the refused levels; another version of the library may refuse some.
    """
    reasons = [repaired] if repaired else []
    kept: list[Mapping[str, Any]] = []
    for number, parameters in enumerate(levels):
        refusal = _refusal(task, parameters)
        if refusal:
            reasons.append(f"level {number} is refused: {refusal}")
        elif not kept or parameters != kept[-1]:
            kept.append(parameters)
    origin = "none" if not kept else "repaired" if reasons else "curriculum"
    return TaskLadder(
        levels=tuple(kept) or ({},), origin=origin, reason="; ".join(reasons)
    )


def _refusal(task: str, parameters: Mapping[str, Any]) -> str:
    """Return why the task's configuration refuses these parameters; empty if it accepts them."""
    from reasoning_gym.factory import DATASETS

    try:
        accepted = library_parameters(task, parameters)
        configuration = DATASETS[task][1](seed=0, size=1, **accepted)
        if hasattr(configuration, "validate"):
            configuration.validate()
    except Exception as error:  # noqa: BLE001 - a configuration may raise anything: it is reported
        return f"{type(error).__name__}: {error}"
    return ""


BALANCED = frozenset(
    task
    for task, (_, levels) in (*REPAIRS.items(), *OWN_LADDERS.items())
    if any("candidates" in at for at in levels)
)
"""Tasks with the parameter `candidates`."""


def extra_parameters(task: str) -> tuple[str, ...]:
    """Return the names of a task's extra parameters.

    `templates` and `functions` are numbers of the library's generators; one of them makes the item.
    `rank` is in [0, 1]: the item's position among the candidates, ordered by the task's measure.
    `candidates` is their number; the item has one of their answers, each equally likely.
    """
    generator_parameters = {
        "gsm_symbolic": ("templates",),
        "list_functions": ("functions",),
    }
    names = ("rank",) if task in MEASURES else generator_parameters.get(task, ())
    return (*names, "candidates") if task in BALANCED else names


def library_parameters(task: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's parameters without the extra ones."""
    extra = extra_parameters(task)
    return {name: value for name, value in parameters.items() if name not in extra}


def parameter_names(task: str) -> tuple[str, ...]:
    """List the parameters that a user may set: the library's, then the extra ones."""
    from reasoning_gym.factory import DATASETS  # heavy: only workers come here

    fields = dataclasses.fields(DATASETS[task][1])
    library = (
        field.name
        for field in fields
        if field.init and field.name not in ("seed", "size")
    )
    return (*library, *extra_parameters(task))


def choose_entry(recipe: Recipe, seeded: Callable[[int], Any]) -> dict[str, Any]:
    """Make the entry that a recipe's extra parameters choose, or else the library's.

    `seeded` returns the dataset for a seed, valid until the next call. Raises ValueError if the
    value of an extra parameter matches no item.
    """
    parameters = recipe.parameters
    if recipe.task in MEASURES and "rank" in parameters:
        return _ranked(recipe, MEASURES[recipe.task], seeded)
    if recipe.task in BALANCED and "candidates" in parameters:
        return _balanced(recipe, seeded)
    dataset = seeded(recipe.seed)
    for name in extra_parameters(recipe.task):
        if name in parameters:
            numbers = parameters[name]
            generators = dataset.generators
            if not numbers or not set(numbers) <= generators.keys():
                raise ValueError(
                    f"{recipe.task} has only the generators {sorted(generators)}, got {numbers}"
                )
            # Drawn with a seed other than the item's.
            dataset.task_indices = [
                Random(f"{recipe.task} {recipe.seed}").choice(numbers)
            ]
    entry: dict[str, Any] = dataset[0]
    return entry


def _ranked(
    recipe: Recipe, measure: Measure, seeded: Callable[[int], Any]
) -> dict[str, Any]:
    """Return the candidate at the rank.

    If the task has few answers, the candidates are those with the first one's answer, or with one
    that is drawn. Otherwise the answer would depend on the level.
    """
    rank = float(recipe.parameters["rank"])
    if not 0 <= rank <= 1:
        raise ValueError(f"rank must be in [0, 1], got {rank}")
    draw = Random(f"{recipe.task} {recipe.seed}")
    number = recipe.parameters.get("candidates", measure.candidates)
    seeds = _candidates(recipe, draw, number)
    candidates = [entry for seed in seeds for entry in measure.entries(seeded(seed))]
    if not candidates:
        raise ValueError(f"none of {number} items with these parameters can be asked")
    if "candidates" in recipe.parameters:
        candidates = _same_answer(candidates, draw)
    elif measure.same_answer:
        candidates = [
            entry for entry in candidates if entry["answer"] == candidates[0]["answer"]
        ]
    candidates.sort(key=measure.difficulty)
    return candidates[round(rank * (len(candidates) - 1))]


def _balanced(recipe: Recipe, seeded: Callable[[int], Any]) -> Entry:
    """Return one of several candidates, so that each of their answers is equally likely."""
    draw = Random(f"{recipe.task} {recipe.seed}")
    seeds = _candidates(recipe, draw, recipe.parameters["candidates"])
    every = [seeded(seed)[0] for seed in seeds]
    # Faulty ones are drawn again later, which would favor answers that seldom are.
    sound = [
        entry for entry in every if item_fault(recipe.task, entry) is None
    ] or every
    return _same_answer(sound, draw)[0]


def _candidates(recipe: Recipe, draw: Random, number: int) -> list[int]:
    """Return the candidates' seeds, whose lowest bit separates training and evaluation."""
    if number < 1:
        raise ValueError(f"candidates must be an integer ≥ 1, got {number}")
    return [2 * draw.randrange(2**52) + recipe.seed % 2 for _ in range(number)]


def _same_answer(entries: Sequence[Entry], draw: Random) -> list[Entry]:
    """Return the entries with one of their answers, each of which is equally likely."""
    answer = draw.choice(list(dict.fromkeys(entry["answer"] for entry in entries)))
    return [entry for entry in entries if entry["answer"] == answer]
