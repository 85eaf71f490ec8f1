"""Adapts problems and scores to verifiers (v1): `vf-eval reasoning-gym-taskset`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import verifiers.v1 as vf
from pydantic import Field

from ..inference.prompts import SYSTEM_PROMPTS
from ..records import Problem, Status
from ..storage.rows import recipe_key
from .shared import evaluation_problems, recipe_of, shared_gym


class ReasoningGymConfig(vf.TasksetConfig):
    """Which problems there are, set by `--env.taskset.*`.

    Attributes:
        tasks: tasks and categories; empty means all.
        per_task: so many held-out problems of each task. Without it, training problems come
            without end.
        complexity_level: from 0, each task's easiest level, to 1, its hardest; None is the
            library's default configuration.
    """

    tasks: list[str] = Field(default_factory=list)
    per_task: int | None = Field(default=None, ge=1)
    complexity_level: float | None = None
    seed: int = 0


class ReasoningGymData(vf.TaskData):
    """A problem as it travels: its question, and its recipe as JSON text."""

    recipe: str


class ReasoningGymTask(vf.Task[ReasoningGymData]):
    """Asks one question and scores the reply."""

    @vf.reward
    async def reasoning_gym(self, trace: vf.Trace) -> float:
        """Score the reply in [0, 1]; each status is a metric, 1 for the one that it has.

        Raises:
            RuntimeError: nothing can be said; verifiers then counts an error, not a 0.
        """
        recipe = recipe_of(self.data.recipe)
        score = await asyncio.to_thread(shared_gym().score, recipe, trace.last_reply)
        trace.record_metrics({status.value: float(status is score.status) for status in Status})
        if score.score is None:
            raise RuntimeError(f"{self.data.name} is unscored: {score.detail}")
        return score.score


class ReasoningGymTaskset(vf.Taskset[ReasoningGymTask, ReasoningGymConfig]):
    """Makes training problems without end, or so many held-out problems of each task."""

    def __init__(self, config: ReasoningGymConfig) -> None:
        super().__init__(config)
        self.INFINITE = config.per_task is None

    def load(self) -> Iterator[ReasoningGymTask]:
        """Make the problems, the same for the same configuration."""
        for problem in self._problems():
            data = ReasoningGymData(
                name=problem.recipe.task,
                system_prompt=SYSTEM_PROMPTS["think"],
                prompt=problem.question,
                recipe=recipe_key(problem.recipe),
            )
            yield ReasoningGymTask(data, self.config.task)

    def _problems(self) -> Iterable[Problem]:
        gym, config = shared_gym(), self.config
        if config.per_task is None:
            return gym.stream(
                config.tasks,
                complexity_mode=None if config.complexity_level is None else "fixed",
                complexity_level=config.complexity_level,
                seed=config.seed,
            )
        return evaluation_problems(
            gym,
            config.tasks,
            per_task=config.per_task,
            complexity_level=config.complexity_level,
            seed=config.seed,
        )
