"""Plans the fixed evaluation set and makes its problems, each when it is first needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import GenerationError
from ..problems.seeds import evaluation_recipe_at, evaluation_recipes
from ..problems.stream import question_hash
from ..records import Ladder, Problem, Recipe
from ..sandbox.pool import MakesProblems, generate_surely
from ..util.progress import with_progress

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationItem:
    """A problem and the difficulty it was made at; None is the default configuration."""

    problem: Problem
    difficulty: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationPlan:
    """What decides the evaluation set, and nothing else does.

    Attributes:
        tasks: their names.
        per_task: items of each task at the default configuration and at each difficulty.
        difficulties: in [0, 1], beside the default configuration.
        ladders: by task; one of fewer than two levels has no difficulty to choose.
    """

    seed: int
    tasks: Sequence[str]
    per_task: int
    difficulties: Sequence[float]
    ladders: Mapping[str, Ladder]

    @property
    def leveled(self) -> list[str]:
        """The tasks whose difficulty can be chosen."""
        return [task for task in self.tasks if len(self.ladders.get(task, ())) > 1]

    def recipes(self) -> list[tuple[Recipe, float | None]]:
        """Every item's recipe and difficulty; the default configuration comes first."""
        default = evaluation_recipes(self.seed, self.tasks, self.per_task)
        return [(recipe, None) for recipe in default] + [
            (
                evaluation_recipe_at(
                    difficulty, self.ladders[task], eval_seed=self.seed, task=task, index=index
                ),
                difficulty,
            )
            for difficulty in self.difficulties
            for task in self.leveled
            for index in range(self.per_task)
        ]


class EvaluationSet:
    """Makes the problems of the evaluation set once; one that can't be made is left out, loudly."""

    def __init__(self, pool: MakesProblems, plan: EvaluationPlan) -> None:
        self._pool = pool
        self._planned = plan.recipes()
        self._made: dict[int, asyncio.Task[EvaluationItem | None]] = {}
        self._items: list[EvaluationItem] | None = None
        self._questions: dict[str, frozenset[bytes]] = {}
        without = sorted(set(plan.tasks) - set(plan.leveled))
        if plan.difficulties and without:
            names = ", ".join(without)
            logger.info("Only evaluated at their defaults, having no levels: %s", names)

    def __len__(self) -> int:
        """How many items are planned."""
        return len(self._planned)

    async def items(self) -> list[EvaluationItem]:
        """Give all items in their order; what isn't there yet is made now.

        One that could not be made before is tried again: perhaps the machine was busy.
        """
        if self._items is None:
            self._made = {n: making for n, making in self._made.items() if not _failed(making)}
            jobs = [self._item(number) for number in range(len(self))]
            made = await with_progress(jobs, "evaluation set")
            items = [item for item in made if item is not None]
            if len(items) < len(self):
                return items
            self._items = items
        return self._items

    async def questions(self, task: str) -> frozenset[bytes]:
        """Hash the questions of a task; its items are made now, if they aren't there yet."""
        if task not in self._questions:
            numbers = [n for n, (recipe, _) in enumerate(self._planned) if recipe.task == task]
            items = await asyncio.gather(*map(self._item, numbers))
            self._questions[task] = frozenset(
                question_hash(item.problem.question) for item in items if item is not None
            )
        return self._questions[task]

    async def _item(self, number: int) -> EvaluationItem | None:
        """An item, which is made to the end even if who asks for it is cancelled."""
        if number not in self._made:
            making = asyncio.create_task(self._make(*self._planned[number]))
            making.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._made[number] = making
        return await asyncio.shield(self._made[number])

    async def _make(self, recipe: Recipe, difficulty: float | None) -> EvaluationItem | None:
        try:
            problem = await generate_surely(self._pool, recipe)
        except GenerationError as error:
            logger.warning("The evaluation set lacks an item: %s", error)
            return None
        return EvaluationItem(problem=problem, difficulty=difficulty)


def _failed(making: asyncio.Task[EvaluationItem | None]) -> bool:
    """Say whether an item was tried in vain."""
    if not making.done():
        return False
    return making.cancelled() or making.exception() is not None or making.result() is None


async def build_evaluation_set(pool: MakesProblems, plan: EvaluationPlan) -> list[EvaluationItem]:
    """Make all problems of the evaluation set; one that can't be made is left out, loudly."""
    return await EvaluationSet(pool, plan).items()
