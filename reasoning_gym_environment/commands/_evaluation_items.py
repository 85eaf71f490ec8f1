"""The evaluation items of a configuration: rows of their own, and held out from training rows."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..evaluation.planning import (
    EvaluationSet,
    Part,
    PlannedItem,
    planned_at_levels,
    planned_recipes,
)
from ..problems.held_out import HeldOut
from ..problems.stream import skip_faulty
from ..records import Ladder, Problem, recipe_key
from ..sandbox.pool import Generate, TaskPool
from ..settings import EnvironmentSettings
from ..storage.rows import StoredGroup


def planned_items(
    options: Namespace,
    config: EnvironmentSettings,
    ladders: Mapping[str, Ladder],
    parts: Sequence[Part],
) -> Sequence[PlannedItem]:
    """Plan the evaluation items of parts, or of difficulties: those that `evaluate` asks."""
    if not options.difficulties:
        return planned_at_levels(parts, config.eval_seed)
    as_asked = config.model_copy(
        update={
            "num_eval_samples_per_task": options.count,
            "eval_difficulties": options.difficulties,
        }
    )
    planned = _configured_items(as_asked, ladders)
    return [item for item in planned if item[1] is not None]


def _configured_items(
    config: EnvironmentSettings, ladders: Mapping[str, Ladder]
) -> list[PlannedItem]:
    """Plan the evaluation items of these tasks, as `evaluate` does with the same settings."""
    return planned_recipes(
        tasks=list(ladders),
        ladders=ladders,
        eval_seed=config.eval_seed,
        num_eval_samples_per_task=config.num_eval_samples_per_task,
        eval_difficulties=config.eval_difficulties,
    )


async def evaluation_problems(
    generate: Generate, planned: Sequence[PlannedItem], held_out: HeldOut
) -> tuple[list[Problem], list[str]]:
    """Generate planned evaluation items; return lines that tell where there are fewer questions."""
    evaluation = EvaluationSet(generate, planned, held_out=held_out)
    problems = [item.problem for item in await evaluation.items()]
    few = await evaluation.few_questions()
    return problems, [
        f"{name} has only {number} questions: each is written once"
        for name, number in few.items()
    ]


async def held_out_items(
    pool: TaskPool,
    config: EnvironmentSettings,
    ladders: Mapping[str, Ladder],
    parts: Sequence[Part],
    evaluated: Iterable[StoredGroup],
) -> HeldOut:
    """Return what no problem may ask.

    It is the evaluation set of the tasks in `ladders`, as many evaluation items of each part,
    whether or not its level is evaluated, and the evaluated samples.
    """
    evaluation = evaluation_set(pool, config, ladders, parts if ladders else ())
    of_tasks = await asyncio.gather(*map(evaluation.held_out, ladders))
    of_samples = [
        HeldOut.of(sample.task, sample.question, sample.oracle) for sample in evaluated
    ]
    return HeldOut.all_of([*of_tasks, *of_samples])


def evaluation_set(
    pool: TaskPool,
    config: EnvironmentSettings,
    ladders: Mapping[str, Ladder],
    parts: Sequence[Part] = (),
) -> EvaluationSet:
    """Return the configured evaluation set of these tasks, with as many items of each part."""
    planned = _configured_items(config, ladders)
    planned_keys = {recipe_key(recipe) for recipe, _ in planned}
    per_part = [Part(recipe, config.num_eval_samples_per_task) for recipe, _ in parts]
    planned += [
        item
        for item in planned_at_levels(per_part, config.eval_seed)
        if recipe_key(item[0]) not in planned_keys
    ]
    source = skip_faulty(pool.generate_fixed, Counter(), skip=config.skip_faulty_items)
    return EvaluationSet(source, planned)
