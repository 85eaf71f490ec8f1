"""A taskset for verifiers (v1): `vf-eval reasoning-gym-taskset`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import verifiers.v1 as vf
from pydantic import Field

from ..inference.prompts import SYSTEM_PROMPTS
from ..records import Problem, Status, recipe_text
from .shared import evaluation_problems, parse_recipe, shared_gym

__all__ = ["ReasoningGymConfig", "ReasoningGymData", "ReasoningGymTask", "ReasoningGymTaskset"]


class ReasoningGymConfig(vf.TasksetConfig):
    """The options `--env.taskset.*`.

    Attributes:
        tasks: tasks and categories; empty means all.
        per_task: the number of held-out problems per task; None means an endless stream of
            training problems.
        difficulty: from 0, each task's easiest level, to 1, its hardest; None is the library's
            default configuration.
        complexity_level: the old name of difficulty.
    """

    tasks: list[str] = Field(default_factory=list)
    per_task: int | None = Field(default=None, ge=1)
    difficulty: float | None = None
    complexity_level: float | None = None
    seed: int = 0


class ReasoningGymData(vf.TaskData):
    """A question and the recipe of its problem, as JSON text."""

    recipe: str


class ReasoningGymTask(vf.Task[ReasoningGymData]):
    """A question whose reply is scored."""

    @vf.reward
    async def reasoning_gym(self, trace: vf.Trace) -> float:
        """Return the reply's score in [0, 1], and record every status as a metric of 0 or 1.

        Raises:
            RuntimeError: the reply is unscored; verifiers then counts an error, not a 0.
        """
        recipe = parse_recipe(self.data.recipe)
        score = await asyncio.to_thread(shared_gym().score, recipe, trace.last_reply)
        trace.record_metrics({status.value: float(status is score.status) for status in Status})
        if score.score is None:
            raise RuntimeError(f"{self.data.name} is unscored: {score.detail}")
        return score.score


class ReasoningGymTaskset(vf.Taskset[ReasoningGymTask, ReasoningGymConfig]):
    """An endless stream of training problems, or a number of held-out problems per task."""

    def __init__(self, config: ReasoningGymConfig) -> None:
        super().__init__(config)
        self.INFINITE = config.per_task is None

    def load(self) -> Iterator[ReasoningGymTask]:
        """Yield the tasks, always the same for the same configuration."""
        for problem in self._problems():
            data = ReasoningGymData(
                name=problem.recipe.task,
                system_prompt=SYSTEM_PROMPTS["think"],
                prompt=problem.question,
                recipe=recipe_text(problem.recipe),
            )
            yield ReasoningGymTask(data, self.config.task)

    def _problems(self) -> Iterable[Problem]:
        gym, config = shared_gym(), self.config
        difficulty = config.complexity_level if config.difficulty is None else config.difficulty
        if config.per_task is None:
            return gym.stream(
                config.tasks,
                complexity_mode=None if difficulty is None else "fixed",
                difficulty=difficulty,
                seed=config.seed,
            )
        return evaluation_problems(
            gym,
            config.tasks,
            per_task=config.per_task,
            difficulty=difficulty,
            seed=config.seed,
        )
