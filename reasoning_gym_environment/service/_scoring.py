"""What scores completions of a target: a recipe's problem, or an entry."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from fastapi import HTTPException

from ..errors import GenerationError, GenerationTimeoutError, WorkerLostError
from ..gym.asynchronous import AsyncReasoningGym
from ..records import Score, Status
from ..scoring.extraction import shortest_reply
from ..util.values import shorten
from ._targets import Target

NO_VERDICT = {Status.UNSCORED, Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.CRASHED}
"""Statuses that say nothing about the answer: this machine may be slow."""


class Scorer:
    """Scores completions of a recipe's problem, or of an entry."""

    def __init__(self, gym: AsyncReasoningGym) -> None:
        self.gym = gym
        self._valid_entries: dict[Hashable, None] = {}  # the newest is last

    async def score(self, target: Target, completions: Sequence[str]) -> list[Score]:
        """Score completions, in order; HTTPException if the target cannot be scored."""
        if target.entry is not None:
            return await self._score_entry(target, completions)
        try:
            problem = await self.gym.problem(target.recipe)
        except GenerationError as error:
            if isinstance(error, GenerationTimeoutError) or isinstance(
                error.__cause__, WorkerLostError
            ):  # the worker failed, not the recipe
                return _unscored(str(error), completions)
            raise HTTPException(
                422, f"recipe: cannot generate its problem: {error}"
            ) from None
        if target.question not in (None, problem.question):
            raise HTTPException(
                422,
                f"question: the recipe asks {shorten(problem.question)}, the row "
                f"{shorten(target.question)}: the row is of another version of reasoning-gym or of "
                "another problem; leave question out if its wording was changed on purpose",
            )
        return await self.gym.score_group(problem, completions)

    async def _score_entry(
        self, target: Target, completions: Sequence[str]
    ) -> list[Score]:
        """Score completions of an entry whose own answer earns the full score."""
        problem = target.entry_problem()
        if target.key not in self._valid_entries:
            reply = shortest_reply(str(problem.oracle), self.gym.answer_format)
            [label] = await self.gym.score_group(problem, [reply])
            if label.status in NO_VERDICT:
                detail = (
                    "the entry's own answer has no verdict "
                    f"({label.status.value}): {label.detail}"
                )
                return _unscored(detail, completions)
            if label.score != 1.0:
                raise HTTPException(
                    422,
                    f"entry: its own answer, {shorten(problem.oracle)}, earns "
                    f"{label.score} ({label.status.value}) by the default "
                    f"{problem.recipe.task} instead of 1: the entry is broken or needs "
                    "parameters that it does not name; send a recipe "
                    "instead",
                )
            self._valid_entries[target.key] = None
            if len(self._valid_entries) > 4096:
                del self._valid_entries[next(iter(self._valid_entries))]
        return await self.gym.score_group(problem, completions)


def _unscored(detail: str, completions: Sequence[str]) -> list[Score]:
    return [Score(score=None, status=Status.UNSCORED, detail=detail)] * len(completions)
