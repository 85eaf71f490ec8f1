"""The problems that a run trains on: one class, which holds the tasks and their one stream."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from ..errors import ConfigurationError
from ..records import GroupResult, Problem, Recipe
from ..sandbox.pool import TaskPool
from ..tasks.recipes import read_recipe
from ..util.values import convert, shorten
from .levels import Count, Curriculum, DefaultLevels
from .options import TaskOptions
from .repeats import RepeatedQuestions
from .sampler import Sampler, SamplerState, count_group
from .selection import Selection, select
from .split import (
    NOTHING_RESERVED,
    SPLIT_RULE,
    ReservedQuestions,
    SplitProblems,
)
from .stream import MAX_SKIPPED, RecipeStream, Skip, first_usable

logger = logging.getLogger(__name__)

LEAST_TOO_LONG = 5
"""Questions of a level that don't fit before its ladder is capped: fewer may be exceptions."""


class StreamState(Struct):
    """The stored state of a run's stream; prompt_room rows are (task, level, fits, questions).

    A state without `split_rule` is of before questions decided their split.
    """

    sampler: SamplerState
    ahead: list[Any]
    prompt_room: list[tuple[str, Count, bool, Count]]
    max_token_length: Count | UnsetType = UNSET
    split_rule: str = ""


def require_stream_state(state: Any) -> None:
    """Raise ValueError, with the value's path, for an invalid stream state, `ahead` aside."""
    sampler = convert(state, StreamState).sampler
    dated = [
        (f"signal of {shorten(task)}", since) for task, *_, since in sampler.signal
    ]
    replay = sampler.memory
    dated += [
        (f"the level of {shorten(task)}", since)
        for task, *_, since in sampler.solved_shares
    ]
    for recipe, _, _, _, _, since, *_ in (*replay.ready, *replay.awaited):
        dated.append((f"a problem of {read_recipe(recipe).task} in the memory", since))
    for subject, since in dated:
        if since > sampler.draw:
            raise ValueError(
                f"{subject} is from draw {since}, after the last, {sampler.draw}"
            )


class TrainingProblems:
    """A run's stream of training problems, with its tasks and curriculum.

    Args:
        counts: counts the skipped problems.
        tasks: tasks and categories to use; empty means all.
        split: makes the problems.
        max_token_length: of prompt and completion; levels whose questions don't fit are left out.
            None if tokens are not counted.
        group_size: rollouts of a group; None if unknown.

    Attributes:
        selection: the run's tasks; empty before `prepare`.
        sampling: counts of the groups recorded so far, for `sampling_metrics`.
        max_token_length: as given, or what the trainer allows.
        group_size: as given; an integration may learn it later.
    """

    def __init__(
        self,
        options: TaskOptions,
        pool: TaskPool,
        counts: Counter[str],
        *,
        tasks: Sequence[str],
        seed: int,
        split: SplitProblems,
        max_token_length: int | None = None,
        group_size: int | None = None,
    ) -> None:
        self._options = options
        self._tasks = tasks
        self._seed = seed
        self._split = split
        self.max_token_length = max_token_length
        self.group_size = group_size
        # What limits prompt and completion, for messages.
        self._limit = f"max_token_length {max_token_length}"
        self._pool = pool
        self._counts = counts
        self.selection = Selection(
            categories={},
            weights={},
            ladders={},
            levels=DefaultLevels(),
        )
        self.sampling: Counter[str] = Counter()
        self._repeated_questions = RepeatedQuestions()
        # By task, level and whether the question fits.
        self._questions: Counter[tuple[str, int, bool]] = Counter()
        # Drawn, and neither handed out nor dropped; a checkpoint may come in between.
        self._in_check: list[Problem] = []
        self._sampler: Sampler | None = None
        self._stream: RecipeStream | None = None

    async def prepare(self, *, with_ladders: bool) -> None:
        """Select the tasks; see `select` for the argument and the errors."""
        self.selection = await select(
            self._pool,
            self._options,
            tasks=self._tasks,
            with_ladders=with_ladders,
        )

    def allow_tokens(self, max_token_length: int, limit: str) -> None:
        """Leave out longer prompts and completions from now on.

        Args:
            limit: what sets this limit, for messages.
        """
        self.max_token_length = max_token_length
        self._limit = limit

    def start_stream(
        self,
        replica: str,
        *,
        prefetch: int,
        reserved: ReservedQuestions = NOTHING_RESERVED,
    ) -> None:
        """Start the training stream.

        Args:
            replica: this replica's name; others draw different problems.
            prefetch: the number of problems to make ahead of demand.
            reserved: what this stream doesn't ask, beside evaluation's questions.
        """
        self._sampler = Sampler(
            self.selection.weights,
            run_seed=self._seed,
            replica=replica,
            levels=self.selection.levels,
            overrides=self._options.task_parameters,
            by_signal=self._options.sampling == "signal",
        )
        self._stream = RecipeStream(
            self._sampler,
            partial(self._split.make, reserved=reserved),
            prefetch=prefetch,
        )

    @property
    def started(self) -> bool:
        return self._stream is not None

    def fill(self) -> None:
        """Start to make the stream's first problems."""
        assert self._stream is not None
        self._stream.fill()

    async def next(
        self, has_room: Callable[[Problem], Awaitable[bool]] | None = None
    ) -> Problem:
        """Return the next training problem whose prompt leaves room for a completion.

        Args:
            has_room: whether a prompt does; None accepts all.

        Raises:
            ConfigurationError: too many prompts in a row leave none.
        """
        problem = await first_usable(lambda: self._draw(has_room))
        if problem is None:
            raise ConfigurationError(
                f"{self._limit} leaves no room after any of {MAX_SKIPPED} prompts: raise it, or "
                "shorten system_prompt"
            )
        return problem

    async def _draw(
        self, has_room: Callable[[Problem], Awaitable[bool]] | None
    ) -> Problem | Skip:
        """Take the stream's next problem, unless its prompt leaves no room."""
        assert self._stream is not None
        problem = await self._stream.next_problem()
        recipe = problem.recipe
        if self._sampler and self._sampler.is_replayed(recipe):
            problem = replace(problem, replayed=True)
        self._in_check.append(problem)
        try:
            fits = has_room is None or await has_room(problem)
        finally:
            self._in_check.remove(problem)
        level = "default" if recipe.level is None else str(recipe.level)
        described = (recipe.task, recipe.seed, level)
        is_capped = self._cap_if_too_long(recipe, fits=fits)
        if fits:
            if not problem.replayed:
                self._repeated_questions.add(problem)
            logger.debug("Selected %s (seed %d, level %s)", *described)
            return problem
        self._counts["sampling/prompts_too_long"] += 1
        logger.debug("Skipping %s (seed %d, level %s): prompt too long", *described)
        return Skip.LEVEL_CAPPED if is_capped else Skip.UNUSABLE

    def _cap_if_too_long(self, recipe: Recipe, *, fits: bool) -> bool:
        """Cap the ladder below a level whose questions mostly don't fit; return whether it did."""
        assert self._sampler is not None
        task = recipe.task
        level = recipe.level
        if not level:
            return False
        self._questions[task, level, fits] += 1
        too_long = self._questions[task, level, False]
        if too_long < LEAST_TOO_LONG or too_long <= self._questions[task, level, True]:
            return False
        if not self._sampler.cap(task, level - 1):
            return False
        logger.warning(
            "%s: capping the ladder below level %d, whose questions exceed %s",
            task,
            level,
            self._limit,
        )
        return True

    def group_finished(self, group: GroupResult, *, step: int | None) -> None:
        """Update levels and task sampling with a training group.

        Args:
            step: the trainer's step; None if unknown.
        """
        self.report_result(
            group.problem.recipe,
            solved=group.solved,
            scored=len(group.scored),
            step=step,
        )

    def report_result(
        self,
        recipe: Recipe,
        *,
        solved: int,
        scored: int,
        step: int | None = None,
    ) -> None:
        """Update the curriculum and the sampler with a group: `solved` of its `scored` rollouts."""
        assert self._sampler is not None
        count_group(
            self.sampling,
            replayed=self._sampler.is_replayed(recipe),
            solved=solved,
            scored=scored,
        )
        move = self._sampler.report_result(
            recipe,
            solved=solved,
            scored=scored,
            step=step,
        )
        if move is not None:
            self._counts["curriculum/moves"] += 1
            logger.debug("Curriculum: %s", move)

    def require_drawable(self, recipe: Recipe) -> None:
        """Raise ValueError for a recipe that no draw of this stream gives."""
        assert self._sampler is not None
        self._sampler.require_drawable(recipe)

    def curriculum_stats(self) -> dict[str, Any]:
        """Return the curriculum's state as JSON.

        Returns:
            `curriculum_mode`, whether there is a curriculum. If so, `target_accuracy`,
            `total_tasks_tracked`, `tasks_with_adjustments`, `average_complexity` in [0, 1], and
            `task_details` by task: `level`, `difficulty`, recent `solved_share`, the share of
            groups there that are expected to have signal as `expected_signal`, and more.
        """
        levels = self.selection.levels
        if not isinstance(levels, Curriculum):
            return {"curriculum_mode": False}
        stats = levels.stats()
        for task, details in stats["task_details"].items():
            details["expected_signal"] = self._expected_signal(task, details["level"])
        target = self._options.curriculum_target_accuracy
        return {"curriculum_mode": True, "target_accuracy": target, **stats}

    def _expected_signal(self, task: str, position: float) -> float | None:
        if self._sampler is None or self.group_size is None:
            return None
        return self._sampler.expected_signal(task, position, self.group_size)

    def state_dict(self, unfinished: Sequence[Problem]) -> dict[str, Any]:
        """Return the stream's state as JSON.

        Args:
            unfinished: problems handed out but not yet trained on; a resumed stream repeats them.
        """
        assert self._stream is not None
        state = self._stream.state_dict()
        budget = self.max_token_length
        handed_out = [*unfinished, *self._in_check]
        return {
            **state,
            "split_rule": SPLIT_RULE,
            **({} if budget is None else {"max_token_length": budget}),
            "ahead": [p.recipe.to_json() for p in handed_out] + state["ahead"],
            "prompt_room": [[*key, count] for key, count in self._questions.items()],
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
        try:
            drawn = [read_recipe(recipe) for recipe in state["ahead"]]
        except ValueError as error:
            message = f"the checkpoint holds an invalid problem: {error}"
            raise ConfigurationError(message) from error
        ahead = [
            r.to_json() for r in drawn if self.selection.weights.get(r.task, 0) > 0
        ]
        sampler = state["sampler"]
        self._sampler.require_own(sampler)
        if state.get("split_rule") != SPLIT_RULE:
            logger.warning(
                "This state was saved before questions decided their split: the run may have "
                "trained on evaluation's questions so far; from now on it asks none of them"
            )
        if drawn and not ahead:
            tasks = ", ".join(sorted({recipe.task for recipe in drawn})[:5])
            raise ValueError(
                f"this run uses none of the state's tasks, such as {tasks}"
            )
        dropped = len(drawn) - len(ahead)
        if dropped:
            logger.info(
                "Dropped %d problems of tasks that this run does not use", dropped
            )
        if state.get("max_token_length") == self.max_token_length:
            self._questions = Counter(
                {
                    (task, level, fits): n
                    for task, level, fits, n in state["prompt_room"]
                }
            )
        else:
            sampler = {**sampler, "levels": {**sampler.get("levels", {}), "caps": {}}}
        self._stream.load_state_dict({"sampler": sampler, "ahead": ahead})

    def close(self) -> None:
        """Drop all pending problems."""
        if self._stream is not None:
            self._stream.cancel()
