"""The plan of the fixed evaluation set, and its problems, generated when first needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..errors import GenerationError
from ..problems.seeds import evaluation_recipe_at, evaluation_recipes
from ..problems.stream import question_hash
from ..records import Ladder, Problem, Recipe
from ..sandbox.pool import Generate, generate_with_retry
from ..util.progress import with_progress

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationItem:
    """A problem and its difficulty; None is the default configuration."""

    problem: Problem
    difficulty: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationPlan:
    """All settings that determine the evaluation set.

    Attributes:
        tasks: their names.
        per_task: items of each task at the default configuration and at each difficulty.
        difficulties: in [0, 1], in addition to the default configuration.
        ladders: by task; a task with fewer than two levels has no difficulty.
    """

    seed: int
    tasks: Sequence[str]
    per_task: int
    difficulties: Sequence[float]
    ladders: Mapping[str, Ladder]

    def recipes(self) -> list[tuple[Recipe, float | None]]:
        """Return every item's recipe and difficulty; the default configuration comes first."""
        default = evaluation_recipes(self.seed, self.tasks, self.per_task)
        leveled = [task for task in self.tasks if len(self.ladders.get(task, ())) > 1]
        if self.difficulties and (without := sorted(set(self.tasks) - set(leveled))):
            names = ", ".join(without)
            logger.info("Evaluated only at their defaults, having no levels: %s", names)
        return [(recipe, None) for recipe in default] + [
            (
                evaluation_recipe_at(
                    difficulty, self.ladders[task], eval_seed=self.seed, task=task, index=index
                ),
                difficulty,
            )
            for difficulty in self.difficulties
            for task in leveled
            for index in range(self.per_task)
        ]


class PlannedItems(Protocol):
    """What is to be evaluated."""

    def recipes(self) -> list[tuple[Recipe, float | None]]: ...


class EvaluationSet:
    """The problems of the evaluation set; failed ones are skipped with a warning."""

    def __init__(self, generate: Generate, plan: PlannedItems) -> None:
        self._make = generate
        self._planned = plan.recipes()
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
            self._generating = {number: task for number, task in pending if not _failed(task)}
            jobs = [self._item(number) for number in range(len(self))]
            generated = await with_progress(jobs, "evaluation set")
            items = [item for item in generated if item is not None]
            if len(items) < len(self):
                return items
            self._items = items
        return self._items

    async def questions(self, task: str) -> frozenset[bytes]:
        """Return the hashes of a task's questions; generate its missing items."""
        if task not in self._questions:
            numbers = [n for n, (recipe, _) in enumerate(self._planned) if recipe.task == task]
            items = await asyncio.gather(*map(self._item, numbers))
            self._questions[task] = frozenset(
                question_hash(item.problem.question) for item in items if item is not None
            )
        return self._questions[task]

    async def _item(self, number: int) -> EvaluationItem | None:
        """Return an item; cancellation of one caller doesn't cancel the generation."""
        if number not in self._generating:
            task = asyncio.create_task(self._generate(*self._planned[number]))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._generating[number] = task
        return await asyncio.shield(self._generating[number])

    async def _generate(self, recipe: Recipe, difficulty: float | None) -> EvaluationItem | None:
        try:
            problem = await generate_with_retry(self._make, recipe)
        except GenerationError as error:
            logger.warning("The evaluation set lacks an item: %s", error)
            return None
        return EvaluationItem(problem=problem, difficulty=difficulty)


def _failed(task: asyncio.Task[EvaluationItem | None]) -> bool:
    """Return whether the generation of an item has failed."""
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or task.result() is None
