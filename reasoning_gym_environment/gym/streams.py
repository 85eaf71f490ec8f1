"""The stream of training problems of a gym, whose levels follow the scores of its problems."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn
from weakref import ref

from pydantic import InstanceOf

from ..errors import ConfigurationError
from ..problems.gathering import MISMATCHES, GroupGathering
from ..problems.options import StreamOptions
from ..problems.sampler import sampling_metrics
from ..problems.training import TrainingProblems
from ..records import Problem, Recipe, Score, recipe_key
from .arguments import AS_LIST, AnyScorable, Count, checked, to_scorable

logger = logging.getLogger(__name__)

STREAM_IS_NOT_PICKLED = (
    "a stream belongs to its process: pickle its state_dict(), and continue with load_state_dict "
    "of a stream with the same options"
)

_fed: set[ref[AsyncProblemStream]] = set()


def fed_streams() -> list[AsyncProblemStream]:
    """Return the streams of this process that learn from the scores of their gyms."""
    return [stream for each in list(_fed) if (stream := each()) is not None]


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskLevel:
    """Where a curriculum has a task.

    Attributes:
        level: on the task's ladder; between two levels, both are drawn.
        height: levels of the ladder.
        top_level: the highest level that is drawn.
        difficulty: the level as a number from 0 to 1.
        solved_share: of the recent completions at this level; None before the first.
        expected_signal: share of the groups there that are expected to have solved and unsolved
            completions; None while unknown.
        groups: results from the task's level at the time.
        stale_groups: results from other levels.
        adjustments: moves of the level.
    """

    level: float
    height: int
    top_level: int
    difficulty: float
    solved_share: float | None
    expected_signal: float | None
    groups: int
    stale_groups: int
    adjustments: int


class AsyncProblemStream:
    """An endless stream of training problems, whose levels follow the scores of its problems.

    Created by `AsyncReasoningGym.stream`. Scores of the same gym count by themselves.

    Attributes:
        gathering: problems that were handed out and await their scores.

    Example:
        stream = await gym.stream(complexity_mode="curriculum", sampling="signal", group_size=8)
        problem = await stream.next()
        scores = await gym.score_many((problem, completion) for completion in completions)
    """

    def __init__(
        self,
        problems: TrainingProblems,
        options: StreamOptions,
        *,
        require_own_loop: Callable[[], None],
    ) -> None:
        self._require_own_loop = require_own_loop
        self._problems = problems
        self._learns = options.learns
        self._heard_any = False
        self._scored_elsewhere: set[str] = set()
        self._warned_of_gym = False
        self._unawaited = 0  # results
        self.gathering = GroupGathering(options.group_size)

    def __reduce__(self) -> NoReturn:
        raise TypeError(STREAM_IS_NOT_PICKLED)

    def __aiter__(self) -> AsyncIterator[Problem]:
        return self

    async def __anext__(self) -> Problem:
        return await self.next()

    async def next(self) -> Problem:
        """Return the next problem; raises GenerationError if none can be made."""
        self._require_own_loop()
        self._warn_of_other_gym()
        problem = await self._problems.next()
        self.gathering.assign(problem.recipe)
        return problem

    def feed(self) -> None:
        """Tell all gyms of this process that this stream learns from the scores of its own."""
        _fed.add(ref(self, _fed.discard))

    def require_group_size(self, recipe: Recipe, group_size: int | None) -> None:
        """Check that a score of one of this stream's problems can be learned.

        Args:
            group_size: what the trainer gives each problem; this stream takes it unless it has one.

        Raises:
            ConfigurationError: this stream has no group size, or another.
        """
        if not self._learns or not self.gathering.awaits(recipe):
            return
        own_size = self.gathering.size
        if own_size is None and group_size is None:
            raise ConfigurationError(
                "group_size of this stream must be the completions of each problem, got None: set "
                "it, or score with another gym and report whole groups with observe"
            )
        if None not in (own_size, group_size) and own_size != group_size:
            raise ConfigurationError(
                f"group_size of this stream is {own_size}, but the trainer gives each problem "
                f"{group_size} completions: set both to the same number"
            )
        self.gathering.size = self._problems.group_size = own_size or group_size

    def note_other_gym(self, recipe: Recipe) -> None:
        """Take notice of a score that another gym gave: see `_warn_of_other_gym`."""
        if self._learns and not self._heard_any and self.gathering.awaits(recipe):
            self._scored_elsewhere.add(recipe_key(recipe))

    def _warn_of_other_gym(self) -> None:
        """Warn where another gym scores problems, and nobody observes them before the next one."""
        if self._heard_any or self._warned_of_gym:
            return
        if len(self._scored_elsewhere) >= MISMATCHES:
            self._warned_of_gym = True
            logger.warning(
                "Another gym scored %d problems of this stream, which teaches it nothing: score "
                "them with the gym that made the stream, or call observe",
                len(self._scored_elsewhere),
            )

    def report_scores(self, recipe: Recipe, scores: Sequence[Score]) -> bool:
        """Take scores of a problem; return whether they made a group whole, which is recorded."""
        self._heard_any = self._heard_any or self.gathering.awaits(recipe)
        group = self.gathering.report_result(
            recipe,
            completions=len(scores),
            scored=sum(score.score is not None for score in scores),
            solved=sum(score.solved for score in scores),
        )
        if group is None:
            return False
        self._problems.report_result(
            group.recipe, solved=group.solved, scored=group.scored
        )
        return True

    @checked
    def observe(self, problem: AnyScorable, *, solved: Count, attempts: Count) -> None:
        """Record that `solved` of `attempts` scored completions of a problem were right.

        For completions that were scored elsewhere. A problem that awaits no result, since it has
        one or was handed out long ago, is only counted: see `sampling`.

        Raises:
            ConfigurationError: this stream never draws such a problem.
        """
        if solved > attempts:
            raise ConfigurationError(
                f"solved must be from 0 to attempts ({attempts}), got {solved}"
            )
        which = to_scorable(problem)
        recipe = which.recipe if isinstance(which, Problem) else which
        if self.gathering.withdraw(recipe):
            self._heard_any = True
            self._problems.report_result(recipe, solved=solved, scored=attempts)
            return
        try:
            self._problems.require_drawable(recipe)
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        self._unawaited += 1

    def levels(self) -> dict[str, TaskLevel]:
        """Return where the curriculum has each task, by its name; without a curriculum, nothing."""
        details = self._problems.curriculum_stats().get("task_details", {})
        return {task: TaskLevel(**values) for task, values in details.items()}

    def sampling(self) -> dict[str, float]:
        """Return `sampling_metrics`, and how many results were of no use.

        Those are the groups that never became whole, and what `observe` was told of problems that
        awaited no result.
        """
        return {
            **sampling_metrics(self._problems.sampling),
            "sampling/incomplete_groups": float(self.gathering.incomplete),
            "sampling/unawaited_results": float(self._unawaited),
        }

    @checked
    def state_dict(
        self, unfinished: Annotated[Sequence[InstanceOf[Problem]], AS_LIST] = ()
    ) -> dict[str, Any]:
        """Return the state as JSON.

        Args:
            unfinished: problems handed out but not yet observed; a resumed stream repeats them.
        """
        return self._problems.state_dict(unfinished)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue another stream exactly; ConfigurationError if the state is invalid."""
        try:
            self._problems.load_state_dict(state)
        except ValueError as error:
            raise ConfigurationError(f"state: {error}") from error
        self.gathering = GroupGathering(self.gathering.size)

    def take_over(self, gathering: GroupGathering) -> None:
        """Await the scores that a closed stream of the same problems awaited."""
        self.gathering = gathering

    def close(self) -> None:
        """Drop all pending problems."""
        self._problems.close()
