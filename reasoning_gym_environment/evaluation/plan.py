"""Plans the fixed evaluation set and makes its problems."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import GenerationError
from ..problems.seeds import evaluation_recipe_at, evaluation_recipes
from ..records import Ladder, Problem, Recipe
from ..util.progress import with_progress
from ..workers.pool import MakesProblems, generate_surely

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


async def build_evaluation_set(pool: MakesProblems, plan: EvaluationPlan) -> list[EvaluationItem]:
    """Make the problems of the evaluation set; one that can't be made is left out, loudly."""
    without = sorted(set(plan.tasks) - set(plan.leveled))
    if plan.difficulties and without:
        logger.info("Only evaluated at their defaults, having no levels: %s", ", ".join(without))

    async def make(recipe: Recipe, difficulty: float | None) -> EvaluationItem | None:
        try:
            problem = await generate_surely(pool, recipe)
        except GenerationError as error:
            logger.warning("The evaluation set lacks an item: %s", error)
            return None
        return EvaluationItem(problem=problem, difficulty=difficulty)

    jobs = [make(recipe, difficulty) for recipe, difficulty in plan.recipes()]
    return [item for item in await with_progress(jobs, "evaluation set") if item is not None]
