"""The training problems of a run: chosen tasks, then one stream with its curriculum."""

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
from .selection import ProblemSettings, Selection, select
from .stored_state import require_state
from .stream import ProblemStream, Reserved

logger = logging.getLogger(__name__)

GIVE_UP_AFTER = 1000
"""So many prompts in a row without room for a completion mean that none has any."""


class TrainingProblems:
    """Chooses the tasks and hands out training problems.

    Args:
        counts: where problems that are left out are counted.
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
        """Category by name of the tasks in use; empty before `prepare`."""
        return self._selection.categories

    @property
    def ladders(self) -> Mapping[str, Ladder]:
        """The ladders of the tasks in use; empty where nothing asked for them."""
        return self._selection.ladders

    async def prepare(self, *, with_ladders: bool) -> None:
        """Choose the tasks.

        Args:
            with_ladders: whether `ladders` is wanted where training itself needs none.

        Raises:
            UnknownTaskError: a configured task does not exist.
            ConfigurationError: no task is left, or one refuses its parameters.
        """
        self._selection = await select(self._pool, self._settings, with_ladders=with_ladders)

    def start_stream(self, replica: str, *, ahead: int, reserved: Reserved) -> None:
        """Begin the training stream; replicas of different identity draw different problems.

        Args:
            ahead: how many problems are made before they are asked for.
            reserved: gives the questions of a task that training must not see.
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
            self._sampler, self._pool, ahead=ahead, reserved=reserved, counts=self._counts
        )

    @property
    def started(self) -> bool:
        return self._stream is not None

    def make_ahead(self) -> None:
        """Begin to make the stream's first problems, before one is asked for."""
        assert self._stream is not None
        self._stream.fill()

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
            f"max_token_length {self._settings.max_token_length} leaves no room after any of "
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
            self._settings.max_token_length,
        )
        return True

    def group_finished(self, group: GroupResult) -> None:
        """Update levels and task sampling with a training group."""
        self.record(group.problem.recipe, solved=group.solved, scored=len(group.scored))

    def record(self, recipe: Recipe, *, solved: int, scored: int) -> None:
        """Let levels and the choice of tasks follow a group: `solved` of its `scored` rollouts."""
        assert self._sampler is not None
        move = self._sampler.record(recipe, solved=solved, scored=scored)
        if move is not None:
            self._counts["curriculum/moves"] += 1
            logger.info("Curriculum: %s", move)

    def curriculum_stats(self) -> dict[str, Any]:
        """Where the curriculum has each task; JSON.

        Returns:
            `curriculum_mode`, whether there is a curriculum; if so, `target_accuracy`,
            `total_tasks_tracked`, `tasks_with_adjustments`, `average_complexity` in [0, 1], and
            `task_details`: by task its `level`, `difficulty`, recent `solved_share` and more.
        """
        levels = self._selection.levels
        if not isinstance(levels, Curriculum):
            return {"curriculum_mode": False}
        target = self._settings.curriculum_target_accuracy
        return {"curriculum_mode": True, "target_accuracy": target, **levels.stats()}

    def state_dict(self, unfinished: Sequence[Problem]) -> dict[str, Any]:
        """JSON: the stream's state.

        Args:
            unfinished: problems handed out but not yet trained on; they come first after a resume.
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
        """Continue another run's stream.

        Problems of tasks that this run does not use are dropped, and so is what was learnt
        about the room of prompts under another token budget.

        Raises:
            ValueError: it is no stream's state, or another run's: of another seed, of another
                replica, or of other tasks alone.
            ConfigurationError: a problem drawn ahead is no sound recipe.
        """
        assert self._stream is not None
        assert self._sampler is not None
        require_state(state)
        drawn = [_read(recipe) for recipe in state["ahead"]]
        ahead = [r.to_json() for r in drawn if self._selection.weights.get(r.task, 0) > 0]
        sampler = state["sampler"]
        self._sampler.require_own(sampler)
        if drawn and not ahead:
            tasks = ", ".join(sorted({recipe.task for recipe in drawn})[:5])
            raise ValueError(f"its problems are of other tasks than this run's, such as {tasks}")
        if dropped := len(drawn) - len(ahead):
            logger.info("Dropped %d problems of tasks that this run does not use", dropped)
        if state.get("max_token_length") == self._settings.max_token_length:
            self._room.load_state_dict(state["prompt_room"])
        else:
            sampler = {**sampler, "levels": {**sampler.get("levels", {}), "caps": {}}}
        self._stream.load_state_dict({"sampler": sampler, "ahead": ahead})

    def close(self) -> None:
        """Drop what was made ahead."""
        if self._stream is not None:
            self._stream.cancel()


def _read(recipe: Any) -> Recipe:
    try:
        return read_recipe(recipe)
    except ValueError as error:
        raise ConfigurationError(
            f"the checkpoint holds a problem that can't be made: {error}"
        ) from error


def _shown(recipe: Recipe) -> tuple[str, int, str]:
    return recipe.task, recipe.seed, "default" if recipe.level is None else str(recipe.level)
