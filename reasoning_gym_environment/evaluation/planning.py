"""The items of an evaluation: planned as recipes, and generated when they are first needed."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ..errors import GenerationError
from ..problems.held_out import held_out_hashes
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
from ..sandbox.pool import Generate, generate_with_retry
from ..util.progress import with_progress
from ..util.values import group_by

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationItem:
    """A problem and its difficulty; None is the default configuration."""

    problem: Problem
    difficulty: float | None

    @property
    def key(self) -> str:
        return recipe_key(self.problem.recipe)


Planned = tuple[Recipe, float | None]
"""A recipe, and the difficulty at which it is asked; None is the default configuration."""


def planned_recipes(
    *,
    tasks: Sequence[str],
    ladders: Mapping[str, Ladder],
    eval_seed: int,
    num_eval_samples_per_task: int,
    eval_difficulties: Sequence[float],
) -> list[Planned]:
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
    planned: list[Planned] = []
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


def planned_at_levels(
    parts: Sequence[tuple[Recipe, int]], eval_seed: int
) -> list[Planned]:
    """Return the first evaluation items of each part: its recipe but for the seed, and a number."""
    return [
        (
            evaluation_recipe(eval_seed, part.task, index, part.level, part.parameters),
            None,
        )
        for part, count in parts
        for index in range(count)
    ]


Part = tuple[str, int | None]
"""A task and its level; no question occurs twice in a part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _MadePart:
    """A part's items by their place in the plan; the others can't be made, or are repeats.

    Attributes:
        repeated: places of the items that are left out, as the part has no other question.
        failed: whether some can't be made.
    """

    items: Mapping[int, EvaluationItem]
    repeated: Sequence[int]
    failed: bool


class EvaluationSet:
    """The problems of the evaluation set; failed ones are skipped with a warning.

    It asks no question of a task and level twice. Repeated ones are drawn again, or left out if
    there is no other.

    Args:
        is_fixed: whether the plan is final, as a suite is: also repeats are asked.
        excluded: the `held_out_hashes` of items that must not be asked.
    """

    def __init__(
        self,
        generate: Generate,
        planned: Sequence[Planned],
        *,
        is_fixed: bool = False,
        excluded: Collection[bytes] = (),
    ) -> None:
        self._generate = partial(generate_with_retry, generate)
        self._planned = planned
        self._is_fixed = is_fixed
        self._excluded = excluded
        self._places: dict[Part, list[int]] = group_by(
            self._part_of, range(len(planned))
        )
        self._making: dict[Part, asyncio.Task[_MadePart]] = {}
        self._items: list[EvaluationItem] | None = None
        self._questions: dict[str, frozenset[bytes]] = {}

    def __len__(self) -> int:
        """The number of planned items."""
        return len(self._planned)

    def _part_of(self, place: int) -> Part:
        recipe, _ = self._planned[place]
        return recipe.task, recipe.level

    async def items(self) -> list[EvaluationItem]:
        """Return all items in order; generate missing ones, and retry failed ones."""
        if self._items is not None:
            return self._items
        self._forget_failures()
        jobs = [self._part(part) for part in self._places]
        parts = await with_progress(jobs, "evaluation set")
        items = {place: item for part in parts for place, item in part.items.items()}
        ordered = [items[place] for place in sorted(items)]
        if not any(part.failed for part in parts):
            self._items = ordered
        return ordered

    async def few_questions(self) -> dict[str, int]:
        """Return the number of items of the tasks and levels that have no more questions."""
        parts = [await self._part(part) for part in self._places]
        repeated: set[str] = set()
        counts: Counter[str] = Counter()
        for part in parts:
            repeated.update(map(self._name, part.repeated))
            counts.update(map(self._name, part.items))
        return {name: counts[name] for name in sorted(repeated)}

    def _name(self, place: int) -> str:
        recipe, difficulty = self._planned[place]
        if difficulty is not None:
            return f"{recipe.task} at difficulty {difficulty:g}"
        if recipe.level is not None:
            return f"{recipe.task} at level {recipe.level}"
        return recipe.task

    async def questions(self, task: str) -> frozenset[bytes]:
        """Return the `held_out_hashes` of a task's items; generate the missing ones."""
        if task in self._questions:
            return self._questions[task]
        own = [part for part in self._places if part[0] == task]
        parts = await asyncio.gather(*map(self._part, own))
        problems = [item.problem for part in parts for item in part.items.values()]
        hashes = frozenset[bytes]().union(
            *(held_out_hashes(task, p.question, p.oracle) for p in problems)
        )
        if not any(part.failed for part in parts):  # `items` tries those again
            self._questions[task] = hashes
        return hashes

    def _forget_failures(self) -> None:
        """Forget the parts that lack an item, so that they are made again."""
        for part, task in list(self._making.items()):
            if task.done() and (
                task.cancelled() or task.exception() or task.result().failed
            ):
                del self._making[part]

    async def _part(self, part: Part) -> _MadePart:
        """Return a part; cancellation of one caller doesn't cancel the generation."""
        if part not in self._making:
            task = asyncio.create_task(self._make(self._places[part]))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._making[part] = task
        return await asyncio.shield(self._making[part])

    async def _make(self, places: Sequence[int]) -> _MadePart:
        recipes = [self._planned[place][0] for place in places]
        make = (
            make_all
            if self._is_fixed
            else partial(make_distinct, excluded=self._excluded)
        )
        made = await make(self._generate, recipes)
        items: dict[int, EvaluationItem] = {}
        repeated = []
        failed = False
        for place, one in zip(places, made, strict=True):
            if isinstance(one, GenerationError):
                logger.warning("The evaluation set lacks an item: %s", one)
                failed = True
            elif one is None:
                repeated.append(place)
            else:
                _, difficulty = self._planned[place]
                items[place] = EvaluationItem(problem=one, difficulty=difficulty)
        return _MadePart(items=items, repeated=repeated, failed=failed)
