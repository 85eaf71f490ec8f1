"""The evaluation items of a configuration, as rows of their own."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence

from ..evaluation.planning import (
    EvaluationSet,
    Part,
    PlannedItem,
    planned_at_levels,
    planned_recipes,
)
from ..records import Ladder, Problem
from ..sandbox.pool import Generate
from ..settings import EnvironmentSettings


def planned_items(
    options: Namespace,
    config: EnvironmentSettings,
    ladders: Mapping[str, Ladder],
    parts: Sequence[Part],
) -> Sequence[PlannedItem]:
    """Plan the evaluation items of parts, or of difficulties: those that `evaluate` asks."""
    if not options.difficulties:
        return planned_at_levels(parts, config.eval_seed)
    planned = planned_recipes(
        tasks=list(ladders),
        ladders=ladders,
        eval_seed=config.eval_seed,
        num_eval_samples_per_task=options.count,
        eval_difficulties=options.difficulties,
    )
    return [item for item in planned if item[1] is not None]


async def evaluation_problems(
    generate: Generate, planned: Sequence[PlannedItem], asked: Collection[str]
) -> tuple[list[Problem], list[str]]:
    """Generate planned evaluation items; return lines that tell where there are fewer questions.

    Args:
        asked: questions that were evaluated already, and are left out.
    """
    evaluation = EvaluationSet(generate, planned, asked=asked)
    problems = [item.problem for item in await evaluation.items()]
    few = await evaluation.few_questions()
    return problems, [
        f"{name} has only {number} questions: each is written once"
        for name, number in few.items()
    ]
