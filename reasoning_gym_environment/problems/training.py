"""The training problems of a run: its tasks, and one stream with a curriculum."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ..errors import ConfigurationError
from ..records import GroupResult, Ladder, Problem, Recipe
from ..sandbox.pool import TaskPool
from ..tasks.recipes import read_recipe
from .curriculum import Curriculum
from .levels import Levels, PromptRoom
from .sampler import Sampler, TaskSampling
from .stream import ExcludedQuestions, ProblemStream, require_stream_state
from .task_selection import ProblemSettings, Selection, select

logger = logging.getLogger(__name__)

MAX_TOO_LONG = 1000
"""Give up after this many prompts in a row that leave no room for a completion."""


class TrainingProblems:
    """A run's stream of training problems, with its tasks and curriculum.

    Args:
        counts: counts the skipped problems.
    """

    def __init__(self, settings: ProblemSettings, pool: TaskPool, counts: Counter[str]) -> None:
        self._settings = settings
        self._pool = pool
        self._counts = counts
        self._selection = Selection(categories={}, weights={}, ladders={}, levels=Levels())
        self._room = PromptRoom()
        self._sampler: Sampler | None = None
        self._stream: ProblemStream | None = None

    @property
    def categories(self) -> Mapping[str, str]:
        """Category by task, of the tasks in use; empty before `prepare`."""
        return self._selection.categories

    @property
    def ladders(self) -> Mapping[str, Ladder]:
        """The ladders of the tasks in use; empty unless requested or needed."""
        return self._selection.ladders

    async def prepare(self, *, with_ladders: bool) -> None:
        """Select the tasks.

        Args:
            with_ladders: whether to load `ladders` even if training needs none.

        Raises:
            UnknownTaskError: a configured task does not exist.
            ConfigurationError: no task is left, or a task refuses its parameters.
        """
        self._selection = await select(self._pool, self._settings, with_ladders=with_ladders)

    def start_stream(self, replica: str, *, prefetch: int, excluded: ExcludedQuestions) -> None:
        """Start the training stream.

        Args:
            replica: this replica's name; others draw different problems.
            prefetch: the number of problems to make ahead of demand.
            excluded: returns the questions of a task that training must not see.
        """
        self._sampler = Sampler(
            self._selection.weights,
            run_seed=self._settings.seed,
            replica=replica,
            levels=self._selection.levels,
            overrides=self._settings.task_parameters,
            by_signal=self._settings.sampling is TaskSampling.SIGNAL,
        )
        self._stream = ProblemStream(
            self._sampler, self._pool, prefetch=prefetch, excluded=excluded, counts=self._counts
        )

    @property
    def started(self) -> bool:
        return self._stream is not None

    def fill(self) -> None:
        """Start to make the stream's first problems."""
        assert self._stream is not None
        self._stream.fill()

    async def next(self, has_room: Callable[[Problem], Awaitable[bool]]) -> Problem:
        """Return the next training problem whose prompt leaves room for a completion.

        Raises:
            ConfigurationError: too many prompts in a row leave none.
        """
        assert self._stream is not None
        tries = 0
        while tries < MAX_TOO_LONG:
            problem = await self._stream.next_problem()
            recipe = problem.recipe
            fits = await has_room(problem)
            tries = 0 if self._cap_if_too_long(recipe, fits=fits) else tries + 1
            if fits:
                logger.info("Selected %s (seed %d, level %s)", *_log_fields(recipe))
                return problem
            self._counts["sampling/prompts_too_long"] += 1
            logger.info("Skipping %s (seed %d, level %s): prompt too long", *_log_fields(recipe))
        raise ConfigurationError(
            f"max_token_length {self._settings.max_token_length} leaves no room after any of "
            f"{MAX_TOO_LONG} prompts: raise it, or shorten system_prompt"
        )

    def _cap_if_too_long(self, recipe: Recipe, *, fits: bool) -> bool:
        """Cap the ladder below a level whose questions mostly don't fit; return whether it did."""
        assert self._sampler is not None
        task, level = recipe.task, recipe.level
        if not level or not self._room.too_long(task, level, fits=fits):
            return False
        if not self._sampler.cap(task, level - 1):
            return False
        logger.warning(
            "%s: capping the ladder below level %d, whose questions exceed max_token_length %d",
            task,
            level,
            self._settings.max_token_length,
        )
        return True

    def group_finished(self, group: GroupResult) -> None:
        """Update levels and task sampling with a training group."""
        self.record(group.problem.recipe, solved=group.solved, scored=len(group.scored))

    def record(self, recipe: Recipe, *, solved: int, scored: int) -> None:
        """Update the curriculum and the sampler with a group: `solved` of its `scored` rollouts."""
        assert self._sampler is not None
        move = self._sampler.record(recipe, solved=solved, scored=scored)
        if move is not None:
            self._counts["curriculum/moves"] += 1
            logger.info("Curriculum: %s", move)

    def curriculum_stats(self) -> dict[str, Any]:
        """Return the curriculum's state as JSON.

        Returns:
            `curriculum_mode`, whether there is a curriculum. If so, `target_accuracy`,
            `total_tasks_tracked`, `tasks_with_adjustments`, `average_complexity` in [0, 1], and
            `task_details` by task: `level`, `difficulty`, recent `solved_share` and more.
        """
        levels = self._selection.levels
        if not isinstance(levels, Curriculum):
            return {"curriculum_mode": False}
        target = self._settings.curriculum_target_accuracy
        return {"curriculum_mode": True, "target_accuracy": target, **levels.stats()}

    def state_dict(self, unfinished: Sequence[Problem]) -> dict[str, Any]:
        """Return the stream's state as JSON.

        Args:
            unfinished: problems handed out but not yet trained on; a resumed stream repeats them.
        """
        assert self._stream is not None
        state = self._stream.state_dict()
        budget = self._settings.max_token_length
        return {
            **state,
            **({} if budget is None else {"max_token_length": budget}),
            "ahead": [p.recipe.to_json() for p in unfinished] + state["ahead"],
            "prompt_room": self._room.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a stored stream.

        Drops problems of tasks that this run does not use, and the caps on levels if the token
        budget has changed.

        Raises:
            ValueError: the state is invalid, or has another seed, another replica or only other
                tasks.
            ConfigurationError: a problem drawn ahead has an invalid recipe.
        """
        assert self._stream is not None
        assert self._sampler is not None
        require_stream_state(state)
        drawn = [_read(recipe) for recipe in state["ahead"]]
        ahead = [r.to_json() for r in drawn if self._selection.weights.get(r.task, 0) > 0]
        sampler = state["sampler"]
        self._sampler.require_own(sampler)
        if drawn and not ahead:
            tasks = ", ".join(sorted({recipe.task for recipe in drawn})[:5])
            raise ValueError(f"this run uses none of the state's tasks, such as {tasks}")
        if dropped := len(drawn) - len(ahead):
            logger.info("Dropped %d problems of tasks that this run does not use", dropped)
        if state.get("max_token_length") == self._settings.max_token_length:
            self._room.load_state_dict(state["prompt_room"])
        else:
            sampler = {**sampler, "levels": {**sampler.get("levels", {}), "caps": {}}}
        self._stream.load_state_dict({"sampler": sampler, "ahead": ahead})

    def close(self) -> None:
        """Drop all pending problems."""
        if self._stream is not None:
            self._stream.cancel()


def _read(recipe: Any) -> Recipe:
    try:
        return read_recipe(recipe)
    except ValueError as error:
        raise ConfigurationError(f"the checkpoint holds an invalid problem: {error}") from error


def _log_fields(recipe: Recipe) -> tuple[str, int, str]:
    return recipe.task, recipe.seed, "default" if recipe.level is None else str(recipe.level)
