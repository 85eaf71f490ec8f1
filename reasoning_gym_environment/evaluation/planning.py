"""The items of an evaluation: planned as recipes, and generated when they are first needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import GenerationError
from ..problems.held_out import held_out_hashes
from ..problems.seeds import evaluation_recipe_at, evaluation_recipes
from ..records import (
    Ladder,
    Problem,
    Recipe,
    recipe_key,
)
from ..sandbox.pool import Generate, generate_with_retry
from ..util.progress import with_progress

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationItem:
    """A problem and its difficulty; None is the default configuration."""

    problem: Problem
    difficulty: float | None

    @property
    def key(self) -> str:
        return recipe_key(self.problem.recipe)


def planned_recipes(
    *,
    tasks: Sequence[str],
    ladders: Mapping[str, Ladder],
    eval_seed: int,
    num_eval_samples_per_task: int,
    eval_difficulties: Sequence[float],
) -> list[tuple[Recipe, float | None]]:
    """Return the recipe and difficulty of every evaluation item; the default comes first.

    Args:
        ladders: by task; a task with fewer than two levels has no difficulty.
    """
    leveled = [task for task in tasks if len(ladders.get(task, ())) > 1]
    without_levels = sorted(set(tasks) - set(leveled))
    if eval_difficulties and without_levels:
        names = ", ".join(without_levels)
        logger.info("Evaluated only at their defaults, having no levels: %s", names)
    count = num_eval_samples_per_task
    planned: list[tuple[Recipe, float | None]] = []
    for recipe in evaluation_recipes(eval_seed, tasks, count):
        planned.append((recipe, None))
    for difficulty in eval_difficulties:
        for task in leveled:
            for index in range(count):
                recipe = evaluation_recipe_at(
                    difficulty,
                    ladders[task],
                    eval_seed=eval_seed,
                    task=task,
                    index=index,
                )
                planned.append((recipe, difficulty))
    return planned


class EvaluationSet:
    """The problems of the evaluation set; failed ones are skipped with a warning."""

    def __init__(
        self, generate: Generate, planned: Sequence[tuple[Recipe, float | None]]
    ) -> None:
        self._make = generate
        self._planned = planned
        self._generating: dict[int, asyncio.Task[EvaluationItem | None]] = {}
        self._items: list[EvaluationItem] | None = None
        self._questions: dict[str, frozenset[bytes]] = {}

    def __len__(self) -> int:
        """The number of planned items."""
        return len(self._planned)

    async def items(self) -> list[EvaluationItem]:
        """Return all items in order; generate missing ones, and retry failed ones."""
        if self._items is None:
            pending = self._generating.items()
            self._generating = {
                number: task
                for number, task in pending
                if not task.done()
                or not (task.cancelled() or task.exception() or not task.result())
            }
            jobs = [self._item(number) for number in range(len(self))]
            generated = await with_progress(jobs, "evaluation set")
            items = [item for item in generated if item is not None]
            if len(items) < len(self):
                return items
            self._items = items
        return self._items

    async def questions(self, task: str) -> frozenset[bytes]:
        """Return the `held_out_hashes` of a task's items; generate the missing ones."""
        if task not in self._questions:
            numbers = [
                n for n, (recipe, _) in enumerate(self._planned) if recipe.task == task
            ]
            items = await asyncio.gather(*map(self._item, numbers))
            problems = [item.problem for item in items if item is not None]
            hashes = frozenset[bytes]().union(
                *(held_out_hashes(task, p.question, p.oracle) for p in problems)
            )
            if None in items:  # `items` tries these again
                return hashes
            self._questions[task] = hashes
        return self._questions[task]

    async def _item(self, number: int) -> EvaluationItem | None:
        """Return an item; cancellation of one caller doesn't cancel the generation."""
        if number not in self._generating:
            task = asyncio.create_task(self._generate(*self._planned[number]))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._generating[number] = task
        return await asyncio.shield(self._generating[number])

    async def _generate(
        self, recipe: Recipe, difficulty: float | None
    ) -> EvaluationItem | None:
        try:
            problem = await generate_with_retry(self._make, recipe)
        except GenerationError as error:
            logger.warning("The evaluation set lacks an item: %s", error)
            return None
        return EvaluationItem(problem=problem, difficulty=difficulty)
