"""The items of an evaluation: planned as recipes, and generated when they are first needed."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import GenerationError
from ..problems.seeds import (
    evaluation_recipe,
    evaluation_recipes,
    evaluation_recipes_at,
)
from ..problems.sets import make_all, make_distinct
from ..records import (
    Ladder,
    Problem,
    Recipe,
    recipe_key,
)
from ..sandbox.pool import Generate
from ..util.progress import with_progress
from ..util.values import group_by
from .metrics import MissingItem

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationItem:
    """A problem and its difficulty; None is the default configuration."""

    problem: Problem
    difficulty: float | None

    @property
    def key(self) -> str:
        return recipe_key(self.problem.recipe)


PlannedItem = tuple[Recipe, float | None]
"""A recipe, and the difficulty at which it is asked; None is the default configuration."""


class Part(NamedTuple):
    """Problems of one task and level that are wanted.

    Attributes:
        recipe: what they have in common: all but the seed.
        size: their number.
    """

    recipe: Recipe
    size: int


def planned_recipes(
    *,
    tasks: Sequence[str],
    ladders: Mapping[str, Ladder],
    eval_seed: int,
    num_eval_samples_per_task: int,
    eval_difficulties: Sequence[float],
) -> list[PlannedItem]:
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
    planned: list[PlannedItem] = []
    for recipe in evaluation_recipes(eval_seed, tasks, count):
        planned.append((recipe, None))
    at_difficulties: list[tuple[Recipe, float]] = []
    for task in leveled:
        at_difficulties += evaluation_recipes_at(
            eval_difficulties,
            ladders[task],
            eval_seed=eval_seed,
            task=task,
            per_difficulty=count,
        )
    at_difficulties.sort(key=lambda item: eval_difficulties.index(item[1]))
    return [*planned, *at_difficulties]


def planned_at_levels(parts: Iterable[Part], eval_seed: int) -> list[PlannedItem]:
    """Return the first evaluation items of each part."""
    planned: list[PlannedItem] = []
    for recipe, size in parts:
        for index in range(size):
            item = evaluation_recipe(
                eval_seed, recipe.task, index, recipe.level, recipe.parameters
            )
            planned.append((item, None))
    return planned


TaskLevel = tuple[str, int | None]
"""A task and its level; None is the default configuration."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _LevelItems:
    """What came of the plan for one task and level. A place is an index of the plan.

    Attributes:
        items: by place.
        repeated: places without an item, as the level has no other question.
        failures: why an item could not be made, by place.
    """

    items: Mapping[int, EvaluationItem]
    repeated: Sequence[int]
    failures: Mapping[int, str]


class EvaluationSet:
    """The items of an evaluation, made from their plan when they are first needed.

    The items of a task's level are made together, once, and remembered, since none may ask what
    another one asks:

    - A repeated question is drawn again, and left out if the level has no other.
    - An item that can't be made is left out with a warning. The next call of `items` makes its
      level again. `missing` names those items.

    Args:
        plan: recipes and difficulties, in the order of `items`.
        is_fixed: whether the plan is final, as a suite is: also repeats are asked.
        asked: questions that count as repeats too.
    """

    def __init__(
        self,
        generate: Generate,
        plan: Sequence[PlannedItem],
        *,
        is_fixed: bool = False,
        asked: Collection[str] = (),
    ) -> None:
        self._generate = generate
        self._plan = plan
        self._is_fixed = is_fixed
        self._asked = asked
        self._places: dict[TaskLevel, list[int]] = group_by(
            self._level_at, range(len(plan))
        )
        self._making: dict[TaskLevel, asyncio.Task[_LevelItems]] = {}
        # Kept only when no item is missing that could still be made.
        self._items: list[EvaluationItem] | None = None

    def __len__(self) -> int:
        """The number of planned items."""
        return len(self._plan)

    async def items(self) -> list[EvaluationItem]:
        """Return all items in the order of the plan; make missing ones, and retry failed ones."""
        if self._items is not None:
            return self._items
        self._forget_failures()
        jobs = [self._level_items(level) for level in self._places]
        levels = await with_progress(jobs, "evaluation set")
        item_at: dict[int, EvaluationItem] = {}
        for level in levels:
            item_at.update(level.items)
        ordered = [item_at[place] for place in sorted(item_at)]
        if not any(level.failures for level in levels):
            self._items = ordered
        return ordered

    async def few_questions(self) -> dict[str, int]:
        """Return the number of items of the tasks and levels that have no more questions."""
        levels = [await self._level_items(level) for level in self._places]
        repeated: set[str] = set()
        counts: Counter[str] = Counter()
        for level in levels:
            repeated.update(map(self._name, level.repeated))
            counts.update(map(self._name, level.items))
        return {name: counts[name] for name in sorted(repeated)}

    async def missing(self) -> list[MissingItem]:
        """Return what the set lacks as it could not be made, in the order of the plan."""
        levels = [await self._level_items(level) for level in self._places]
        reasons: dict[int, str] = {}
        for level in levels:
            reasons.update(level.failures)
        return [
            MissingItem(*self._plan[place], reason)
            for place, reason in sorted(reasons.items())
        ]

    def _level_at(self, place: int) -> TaskLevel:
        recipe, _ = self._plan[place]
        return recipe.task, recipe.level

    def _name(self, place: int) -> str:
        recipe, difficulty = self._plan[place]
        if difficulty is not None:
            return f"{recipe.task} at difficulty {difficulty:g}"
        if recipe.level is not None:
            return f"{recipe.task} at level {recipe.level}"
        return recipe.task

    async def _level_items(self, level: TaskLevel) -> _LevelItems:
        """Make a level's items once, whoever asks first.

        Cancellation of one caller doesn't cancel the generation, which others may await.
        """
        if level not in self._making:
            making = asyncio.create_task(self._make(self._places[level]))
            making.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._making[level] = making
        return await asyncio.shield(self._making[level])

    async def _make(self, places: Sequence[int]) -> _LevelItems:
        recipes = [self._plan[place][0] for place in places]
        results: Sequence[Problem | GenerationError | None]
        if self._is_fixed:
            results = await make_all(self._generate, recipes)
        else:
            results = await make_distinct(self._generate, recipes, asked=self._asked)
        items: dict[int, EvaluationItem] = {}
        repeated = []
        failures = {}
        for place, result in zip(places, results, strict=True):
            if isinstance(result, GenerationError):
                logger.warning("The evaluation set lacks an item: %s", result)
                failures[place] = str(result)
            elif result is None:
                repeated.append(place)
            else:
                _, difficulty = self._plan[place]
                items[place] = EvaluationItem(problem=result, difficulty=difficulty)
        return _LevelItems(items=items, repeated=repeated, failures=failures)

    def _forget_failures(self) -> None:
        """Forget the levels that lack an item which may be made now."""
        for level, making in list(self._making.items()):
            if not making.done():
                continue
            if making.cancelled() or making.exception() or making.result().failures:
                del self._making[level]
