"""Scores completions of an item through a gym, or says why that item can't be scored."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import GenerationError, GenerationTimeoutError, WorkerLostError
from ..gym.asynchronous import AsyncReasoningGym, Score
from ..records import Problem, Status
from ..tasks.recipes import shorten
from .items import EntryItem, Item, RecipeItem
from .refusals import Refusal

REMEMBERED = 4096
"""So many entries are known to be sound, the newest ones."""

_NO_VERDICT = {Status.UNSCORED, Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.CRASHED}
"""Of an entry's own answer: it may be as sound as any, and this machine too slow or too full."""


class Scorer:
    """Makes an item's problem and scores completions of it."""

    def __init__(self, gym: AsyncReasoningGym) -> None:
        self._gym = gym
        self._sound: dict[str, None] = {}

    async def score(self, item: Item, completions: Sequence[str]) -> list[Score]:
        """Score completions, in their order.

        Raises:
            Refusal: the item can't be scored, whatever is answered to it.
        """
        if isinstance(item, EntryItem):
            return await self._score_entry(item, completions)
        return await self._score_recipe(item, completions)

    async def _score_recipe(self, item: RecipeItem, completions: Sequence[str]) -> list[Score]:
        try:
            problem = await self._gym.problem(item.recipe)
        except GenerationError as error:
            if _is_ours(error):
                return _unscored(str(error), completions)
            raise Refusal(422, f"recipe: its problem can't be made: {error}") from None
        if item.question not in (None, problem.question):
            raise Refusal(
                422,
                f"question: the recipe asks {shorten(problem.question)}, the row "
                f"{shorten(item.question)}: it was made with another version of reasoning-gym, or "
                "is another problem's; leave question out if its words were changed on purpose",
            )
        return await self._of(problem, completions)

    async def _score_entry(self, item: EntryItem, completions: Sequence[str]) -> list[Score]:
        """Score completions of an entry whose own answer earns all it can."""
        problem = item.problem()
        if item.key not in self._sound:
            [own] = await self._of(problem, [f"<answer>{problem.oracle}</answer>"])
            if own.status in _NO_VERDICT:
                detail = f"the entry's own answer has no verdict ({own.status.value}): {own.detail}"
                return _unscored(detail, completions)
            if own.score != 1.0:
                raise Refusal(
                    422,
                    f"entry: its own answer, {shorten(problem.oracle)}, earns {own.score} "
                    f"({own.status.value}) by the default {problem.recipe.task} in place of 1: it "
                    "is broken, or needs parameters that it doesn't name; send a recipe in its "
                    "place",
                )
            self._sound[item.key] = None
            if len(self._sound) > REMEMBERED:
                del self._sound[next(iter(self._sound))]
        return await self._of(problem, completions)

    async def _of(self, problem: Problem, completions: Sequence[str]) -> list[Score]:
        return await self._gym.score_many((problem, completion) for completion in completions)


def _unscored(detail: str, completions: Sequence[str]) -> list[Score]:
    return [Score(score=None, status=Status.UNSCORED, detail=detail)] * len(completions)


def _is_ours(error: GenerationError) -> bool:
    """Whether a problem failed by a slow or a lost process, and not by its recipe."""
    return isinstance(error, GenerationTimeoutError) or isinstance(error.__cause__, WorkerLostError)
