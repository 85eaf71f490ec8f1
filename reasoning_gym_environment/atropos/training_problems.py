"""Which problems a run has: its tasks, its evaluation set and its training stream."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from ..config import ReasoningGymEnvConfig
from ..errors import ConfigurationError
from ..evaluation.plan import EvaluationItem, EvaluationPlan, build_evaluation_set
from ..problems.curriculum import Curriculum
from ..problems.levels import Levels, PromptRoom
from ..problems.sampler import Sampler, TaskSampling
from ..problems.selection import levels_of, require_names, require_values
from ..problems.stream import ProblemStream, question_hash
from ..records import GroupResult, Ladder, Problem, Recipe, Status
from ..rollouts.metrics import Statistics
from ..tasks.catalogue import select_tasks, task_weights
from ..workers.pool import TaskPool

logger = logging.getLogger(__name__)

GIVE_UP_AFTER = 1000
"""So many prompts in a row without room for a completion mean that none has any."""


class TrainingProblems:
    """Chooses the tasks, makes the evaluation set, and hands out training problems.

    Attributes:
        categories: category by name of the tasks in use; filled by `prepare`.
        evaluation_set: the same for one `eval_seed` and choice of tasks; filled by `prepare`.
    """

    def __init__(
        self, config: ReasoningGymEnvConfig, pool: TaskPool, statistics: Statistics
    ) -> None:
        self._config = config
        self._pool = pool
        self._counts = statistics.counts
        self._weights: dict[str, float] = {}
        self._levels = Levels()
        self._room = PromptRoom()
        self._sampler: Sampler | None = None
        self._stream: ProblemStream | None = None
        self.categories: dict[str, str] = {}
        self.evaluation_set: list[EvaluationItem] = []

    async def prepare(self) -> None:
        """Discover the tasks and make the evaluation set.

        Raises:
            UnknownTaskError: a configured task does not exist.
            ConfigurationError: no task is left, or one refuses its parameters.
        """
        discovery = await self._pool.discover()
        if discovery.warning:
            logger.warning("%s", discovery.warning)
        config = self._config
        tasks = select_tasks(discovery, include=config.include_tasks, exclude=config.exclude_tasks)
        for task in tasks:
            if not task.used:
                logger.info("Left out: %s (%s)", task.name, task.reason)
        configured = cast(dict[str, float], config.task_weights)  # validated to be parsed
        self._weights = task_weights(tasks, configured)
        self.categories = {task.name: task.category for task in tasks if task.used}
        ladders = await self._prepare_levels()
        plan = EvaluationPlan(
            seed=config.eval_seed,
            tasks=sorted(self.categories),
            per_task=config.num_eval_samples_per_task,
            difficulties=cast(list[float], config.eval_levels),  # validated to be parsed
            ladders=ladders,
        )
        self.evaluation_set = await build_evaluation_set(self._pool, plan)

    async def _prepare_levels(self) -> dict[str, Ladder]:
        """Choose how levels are drawn; returns the ladders of the tasks in use where needed."""
        config = self._config
        if not (config.complexity_mode or self._overrides or config.eval_levels):
            return {}
        known = await self._pool.ladders()
        require_names(self._overrides, known)
        used = {task: known[task].levels for task in self.categories}
        drawn = {task: ladder for task, ladder in used.items() if self._weights[task] > 0}
        ladders = drawn if config.complexity_mode else {}
        overrides = {task: values for task, values in self._overrides.items() if task in used}
        await require_values(self._pool, overrides, ladders)
        self._levels = levels_of(
            config.complexity_mode,
            ladders,
            difficulty=config.complexity_level,
            target=config.curriculum_target_accuracy,
        )
        return used

    @property
    def _overrides(self) -> dict[str, dict[str, Any]]:
        return cast(dict[str, dict[str, Any]], self._config.task_parameters)  # validated to be one

    def start_stream(self, replica: str, *, ahead: int) -> None:
        """Begin the training stream; replicas of different identity draw different problems.

        Args:
            ahead: how many problems are made before they are asked for.
        """
        self._sampler = Sampler(
            self._weights,
            run_seed=self._config.seed,
            replica=replica,
            levels=self._levels,
            overrides=self._overrides,
            by_signal=self._config.sampling is TaskSampling.SIGNAL,
        )
        self._stream = ProblemStream(
            self._sampler,
            self._pool,
            ahead=ahead,
            reserved=frozenset(
                question_hash(item.problem.question) for item in self.evaluation_set
            ),
            counts=self._counts,
        )

    @property
    def started(self) -> bool:
        return self._stream is not None

    async def next(self, has_room: Callable[[Problem], Awaitable[bool]]) -> Problem:
        """The next training problem whose prompt leaves room for a completion.

        Raises:
            ConfigurationError: no prompt does.
        """
        assert self._stream is not None
        tries = 0
        while tries < GIVE_UP_AFTER:
            problem = await self._stream.next_problem()
            recipe = problem.recipe
            fits = await has_room(problem)
            tries = 0 if self._cap_if_too_long(recipe, fits=fits) else tries + 1
            if fits:
                logger.info("Selected %s (seed %d, level %s)", *_shown(recipe))
                return problem
            self._counts["sampling/prompts_too_long"] += 1
            logger.info("%s (seed %d, level %s): no room after the prompt", *_shown(recipe))
        raise ConfigurationError(
            f"max_token_length {self._config.max_token_length} leaves no room after any of "
            f"{GIVE_UP_AFTER} prompts: raise it, or shorten system_prompt"
        )

    def _cap_if_too_long(self, recipe: Recipe, *, fits: bool) -> bool:
        """Take a level whose questions mostly don't fit, and those above, out of the run.

        Returns:
            Whether that was done now.
        """
        assert self._sampler is not None
        task, level = recipe.task, recipe.level
        if not level or not self._room.too_long(task, level, fits=fits):
            return False
        if not self._sampler.cap(task, level - 1):
            return False
        logger.warning(
            "%s stays below level %d from here on: its questions don't fit max_token_length %d",
            task,
            level,
            self._config.max_token_length,
        )
        return True

    def record(self, group: GroupResult) -> None:
        """Let the levels and the choice of tasks follow a group's result."""
        assert self._sampler is not None
        solved = sum(a.verdict.status is Status.SOLVED for a in group.scored)
        move = self._sampler.record(group.problem.recipe, solved=solved, scored=len(group.scored))
        if move is not None:
            self._counts["curriculum/moves"] += 1
            logger.info("Curriculum: %s", move)

    def curriculum_stats(self) -> dict[str, Any]:
        """Where each task stands; empty unless the mode is `curriculum`."""
        return self._levels.stats() if isinstance(self._levels, Curriculum) else {}

    def state_dict(self, unfinished: Sequence[Problem]) -> dict[str, Any]:
        """JSON: the stream's state.

        Args:
            unfinished: problems handed out but not yet trained on; they come first after a resume.
        """
        assert self._stream is not None
        state = self._stream.state_dict()
        return {
            **state,
            "ahead": [p.recipe.to_json() for p in unfinished] + state["ahead"],
            "max_token_length": self._config.max_token_length,
            "prompt_room": self._room.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue another run's stream.

        Problems of tasks that this run does not use are dropped, and so is what was learnt
        about the room of prompts under another token budget.
        """
        assert self._stream is not None
        ahead = [recipe for recipe in state["ahead"] if self._weights.get(recipe["task"], 0) > 0]
        if dropped := len(state["ahead"]) - len(ahead):
            logger.info("Dropped %d problems of tasks that this run does not use", dropped)
        sampler = state["sampler"]
        if state.get("max_token_length") == self._config.max_token_length:
            self._room.load_state_dict(state["prompt_room"])
        else:
            sampler = {**sampler, "levels": {**sampler.get("levels", {}), "caps": {}}}
        self._stream.load_state_dict({"sampler": sampler, "ahead": ahead})

    def close(self) -> None:
        """Drop what was made ahead."""
        if self._stream is not None:
            self._stream.cancel()


def _shown(recipe: Recipe) -> tuple[str, int, str]:
    return recipe.task, recipe.seed, "default" if recipe.level is None else str(recipe.level)
