"""The evaluation items of a configuration: rows of their own, and held out from training rows."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..evaluation.planning import (
    EvaluationSet,
    Planned,
    planned_at_levels,
    planned_recipes,
)
from ..problems.held_out import held_out_hashes
from ..problems.stream import skip_faulty
from ..records import Ladder, Problem, Recipe, recipe_key
from ..sandbox.pool import Generate, TaskPool
from ..settings import EnvironmentSettings
from ..storage.rows import StoredGroup


def planned_items(
    options: Namespace,
    config: EnvironmentSettings,
    ladders: Mapping[str, Ladder],
    parts: Sequence[tuple[Recipe, int]],
) -> Sequence[Planned]:
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
) -> list[Planned]:
    """Plan the evaluation items of these tasks, as `evaluate` does with the same settings."""
    return planned_recipes(
        tasks=list(ladders),
        ladders=ladders,
        eval_seed=config.eval_seed,
        num_eval_samples_per_task=config.num_eval_samples_per_task,
        eval_difficulties=config.eval_difficulties,
    )


async def evaluation_problems(
    generate: Generate, planned: Sequence[Planned], excluded: frozenset[bytes]
) -> tuple[list[Problem], list[str]]:
    """Generate planned evaluation items; return lines that tell where there are fewer questions."""
    made = EvaluationSet(generate, planned, excluded=excluded)
    problems = [item.problem for item in await made.items()]
    few = await made.few_questions()
    return problems, [
        f"{name} has only {number} questions: each is written once"
        for name, number in few.items()
    ]


async def reserved_questions(
    pool: TaskPool,
    config: EnvironmentSettings,
    ladders: Mapping[str, Ladder],
    parts: Sequence[tuple[Recipe, int]],
    evaluated: Iterable[StoredGroup],
) -> frozenset[bytes]:
    """Return the hashes of what no problem may ask.

    They are the evaluation set of the tasks in `ladders`, as many evaluation items of each part,
    whether or not its level is evaluated, and the evaluated samples.
    """
    held_out = evaluation_set(pool, config, ladders, parts if ladders else ())
    reserved: set[bytes] = set()
    for questions in await asyncio.gather(*map(held_out.questions, ladders)):
        reserved |= questions
    for sample in evaluated:
        reserved |= held_out_hashes(sample.task, sample.question, sample.oracle)
    return frozenset(reserved)


def evaluation_set(
    pool: TaskPool,
    config: EnvironmentSettings,
    ladders: Mapping[str, Ladder],
    parts: Sequence[tuple[Recipe, int]] = (),
) -> EvaluationSet:
    """Return the configured evaluation set of these tasks, with as many items of each part."""
    planned = _configured_items(config, ladders)
    asked = {recipe_key(recipe) for recipe, _ in planned}
    per_part = [(part, config.num_eval_samples_per_task) for part, _ in parts]
    planned += [
        item
        for item in planned_at_levels(per_part, config.eval_seed)
        if recipe_key(item[0]) not in asked
    ]
    source = skip_faulty(pool.generate, Counter(), skip=config.skip_faulty_items)
    return EvaluationSet(source, planned)
