"""Answers that wait for a verifier: those to one item together, and never too many of all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..gym.asynchronous import Score
from .items import Item
from .metrics import Metrics
from .refusals import busy

GATHER_SECONDS = 0.005
"""How long the first answer to an item waits for others; scoring one alone takes longer."""

MOST_TOGETHER = 16
"""Answers of one group: if all of them hang, they still don't use up the group's time."""


class _Answer(NamedTuple):
    completion: str
    score: asyncio.Future[Score]


@dataclass(eq=False, kw_only=True, slots=True)
class _Group:
    """Answers to one item that will be scored together.

    Attributes:
        turn: waits for the group's turn, and has it scored.
        begun: nobody joins or leaves any more.
    """

    key: str
    item: Item
    answers: list[_Answer] = field(default_factory=list)
    turn: asyncio.Task[None] | None = None
    begun: bool = False


class ScoringQueue:
    """Gathers answers to the same item and has a few groups scored side by side.

    Args:
        score: scores completions of one item, in their order.
        most: answers that may wait or be scored at once.
        side_by_side: groups that are scored at once.
    """

    def __init__(
        self,
        score: Callable[[Item, Sequence[str]], Awaitable[list[Score]]],
        metrics: Metrics,
        *,
        most: int,
        side_by_side: int,
    ) -> None:
        self._score = score
        self._metrics = metrics
        self._most = most
        self._turns = asyncio.Semaphore(side_by_side)
        self._open: dict[str, _Group] = {}
        self._running: set[asyncio.Task[None]] = set()
        self.held = 0

    def require_room(self, answers: int = 1) -> None:
        """Refuse what has no place; raises Refusal with status 429."""
        if self.held + answers > self._most:
            raise busy(429, f"{self.held} answers wait, and {self._most} may: try again later")

    async def score(self, item: Item, completions: Sequence[str]) -> list[Score]:
        """Score completions, in their order. Those of a caller that is cancelled are dropped.

        Raises:
            Refusal: there is no place for them, or the item can't be scored.
        """
        self.require_room(len(completions))
        self.held += len(completions)
        key = item.key
        placed = [self._place(key, item, completion) for completion in completions]
        try:
            return await asyncio.gather(*(answer.score for _, answer in placed))
        finally:
            self.held -= len(completions)
            for group, answer in placed:
                self._leave(group, answer)

    def _place(self, key: str, item: Item, completion: str) -> tuple[_Group, _Answer]:
        """Put an answer into the group that is open for its item, or into a new one."""
        group = self._open.get(key)
        if group is None or len(group.answers) == MOST_TOGETHER:
            group = self._open[key] = _Group(key=key, item=item)
            group.turn = asyncio.create_task(self._run(group))
            self._running.add(group.turn)
            group.turn.add_done_callback(self._running.discard)
        answer = _Answer(completion, asyncio.get_running_loop().create_future())
        group.answers.append(answer)
        return group, answer

    def _leave(self, group: _Group, answer: _Answer) -> None:
        """Take back an answer that nobody waits for, and a group that has none any more."""
        answer.score.cancel()
        if group.begun or not answer.score.cancelled():
            return
        group.answers.remove(answer)
        if not group.answers:
            self._shut(group)
            if group.turn is not None:
                group.turn.cancel()

    def _shut(self, group: _Group) -> None:
        group.begun = True
        if self._open.get(group.key) is group:
            del self._open[group.key]

    async def _run(self, group: _Group) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        async with self._turns:
            self._shut(group)
            await self._settle(group.item, group.answers)

    async def _settle(self, item: Item, answers: Sequence[_Answer]) -> None:
        """Score answers and tell those who still wait."""
        self._metrics.batches += 1
        self._metrics.batched += len(answers)
        try:
            scores = await self._score(item, [answer.completion for answer in answers])
        except Exception as error:  # noqa: BLE001 - it is each caller's, and raised there
            for answer in answers:
                if not answer.score.done():
                    answer.score.set_exception(error)
            return
        for answer, score in zip(answers, scores, strict=True):
            if not answer.score.done():
                answer.score.set_result(score)
