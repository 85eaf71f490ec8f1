"""The stream of training problems of a gym, whose levels follow the scores of its problems."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import InstanceOf

from ..errors import ConfigurationError
from ..problems.gathering import GroupGathering
from ..problems.sampler import sampling_metrics
from ..problems.training import TrainingProblems
from ..records import Problem, Recipe, Score
from .arguments import AS_LIST, AnyScorable, Count, checked, to_scorable


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
        group_size: int | None,
        *,
        require_own_loop: Callable[[], None],
    ) -> None:
        self._require_own_loop = require_own_loop
        self._problems = problems
        self._group_size = group_size
        self.gathering = GroupGathering(group_size)

    def __aiter__(self) -> AsyncIterator[Problem]:
        return self

    async def __anext__(self) -> Problem:
        return await self.next()

    async def next(self) -> Problem:
        """Return the next problem; raises GenerationError if none can be made."""
        self._require_own_loop()
        problem = await self._problems.next()
        self.gathering.assign(problem.recipe)
        return problem

    def report_scores(self, recipe: Recipe, scores: Sequence[Score]) -> bool:
        """Take scores of a problem; return whether they made a group whole, which is recorded."""
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

        For completions that were scored elsewhere: a group whose scores this gym gave is recorded
        already, and stays as it is.
        """
        if solved > attempts:
            raise ConfigurationError(
                f"solved must be from 0 to attempts ({attempts}), got {solved}"
            )
        which = to_scorable(problem)
        recipe = which.recipe if isinstance(which, Problem) else which
        if recipe.task not in self._problems.selection.weights:
            raise ConfigurationError(
                f"problem is of {recipe.task}, which this stream never draws"
            )
        if self.gathering.withdraw(recipe):
            self._problems.report_result(recipe, solved=solved, scored=attempts)

    def levels(self) -> dict[str, Any]:
        """Return the curriculum's state: see `TrainingProblems.curriculum_stats`."""
        return self._problems.curriculum_stats()

    def sampling(self) -> dict[str, float]:
        """Return `sampling_metrics` and the number of groups that never became whole."""
        incomplete = {"sampling/incomplete_groups": float(self.gathering.incomplete)}
        return {**sampling_metrics(self._problems.sampling), **incomplete}

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
        self.gathering = GroupGathering(self._group_size)

    def take_over(self, gathering: GroupGathering) -> None:
        """Await the scores that a closed stream of the same problems awaited."""
        self.gathering = gathering

    def close(self) -> None:
        """Drop all pending problems."""
        self._problems.close()
