"""Batches of completions of the same problem, scored together, in a bounded queue."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import prometheus_client as prometheus
from fastapi import HTTPException

from ..errors import GenerationError, GenerationTimeoutError, WorkerLostError
from ..gym.asynchronous import AsyncReasoningGym
from ..gym.containment import ContainedFunction
from ..records import Problem, Score, Status
from ..util.text import shorten
from ._messages import Target, retry_later
from ._scheduling import NO_VERDICT, FairScheduler, Flow

GATHER_SECONDS = 0.005
"""Wait of a batch's first completion for others; scoring one alone takes longer."""

MAX_KNOWN_ENTRIES = 4096
"""Entries known to be valid, the newest ones."""


class Scorer:
    """Scores completions of a target's problem, or by its contained function."""

    def __init__(
        self, gym: AsyncReasoningGym, contained: Mapping[str, ContainedFunction] | None = None
    ) -> None:
        self._gym = gym
        self._contained = contained or {}
        self._valid_entries: dict[str, None] = {}

    async def score(self, target: Target, completions: Sequence[str]) -> list[Score]:
        """Score completions, in order.

        Raises:
            HTTPException: the target cannot be scored.
        """
        if target.function is not None:
            return await self._score_contained(target, completions)
        if target.entry is not None:
            return await self._score_entry(target, completions)
        return await self._score_recipe(target, completions)

    async def _score_contained(self, target: Target, completions: Sequence[str]) -> list[Score]:
        function = self._contained[target.function or ""]
        calls = ((completion, target.data) for completion in completions)
        return [Score.of(verdict) for verdict in await function.score_many_async(calls)]

    async def _score_recipe(self, target: Target, completions: Sequence[str]) -> list[Score]:
        try:
            problem = await self._gym.problem(target.recipe)
        except GenerationError as error:
            if _is_transient(error):
                return _unscored(str(error), completions)
            raise HTTPException(422, f"recipe: cannot generate its problem: {error}") from None
        if target.question not in (None, problem.question):
            raise HTTPException(
                422,
                f"question: the recipe asks {shorten(problem.question)}, the row "
                f"{shorten(target.question)}: the row is of another version of reasoning-gym or of "
                "another problem; leave question out if its wording was changed on purpose",
            )
        return await self._score(problem, completions)

    async def _score_entry(self, target: Target, completions: Sequence[str]) -> list[Score]:
        """Score completions of an entry whose own answer earns the full score."""
        problem = target.entry_problem()
        if target.key not in self._valid_entries:
            [own] = await self._score(problem, [f"<answer>{problem.oracle}</answer>"])
            if own.status in NO_VERDICT:
                detail = f"the entry's own answer has no verdict ({own.status.value}): {own.detail}"
                return _unscored(detail, completions)
            if own.score != 1.0:
                raise HTTPException(
                    422,
                    f"entry: its own answer, {shorten(problem.oracle)}, earns {own.score} "
                    f"({own.status.value}) by the default {problem.recipe.task} instead of 1: the "
                    "entry is broken or needs parameters that it does not name; send a recipe "
                    "instead",
                )
            self._valid_entries[target.key] = None
            if len(self._valid_entries) > MAX_KNOWN_ENTRIES:
                del self._valid_entries[next(iter(self._valid_entries))]
        return await self._score(problem, completions)

    async def _score(self, problem: Problem, completions: Sequence[str]) -> list[Score]:
        return await self._gym.score_many((problem, completion) for completion in completions)


def _unscored(detail: str, completions: Sequence[str]) -> list[Score]:
    return [Score(score=None, status=Status.UNSCORED, detail=detail)] * len(completions)


def _is_transient(error: GenerationError) -> bool:
    """Return whether generation failed for a slow or lost worker, not for the recipe."""
    return isinstance(error, GenerationTimeoutError) or isinstance(error.__cause__, WorkerLostError)


class _Part(NamedTuple):
    """Completions of one call in a batch, and the scores that it awaits."""

    completions: Sequence[str]
    scores: asyncio.Future[list[Score]]


@dataclass(eq=False, kw_only=True, slots=True)
class _Batch:
    """Completions of one target that will be scored together.

    Attributes:
        key: of the flow and the target.
        room: completions that can still be added.
        started: whether completions can no longer be added or withdrawn.
    """

    key: tuple[Flow, str]
    target: Target
    room: int
    parts: list[_Part] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    started: bool = False


class ScoringQueue:
    """Bounded queue that batches completions of the same target.

    Args:
        score: scores completions of one target, in order.
        registry: takes the queue's metrics.
        most: completions that may be pending.
        concurrency: batches scored at once.
        longest_wait: seconds for a batch to wait until it is scored.

    Attributes:
        pending: completions that wait or are being scored.
    """

    def __init__(
        self,
        score: Callable[[Target, Sequence[str]], Awaitable[list[Score]]],
        registry: prometheus.CollectorRegistry,
        *,
        most: int,
        concurrency: int,
        longest_wait: float,
    ) -> None:
        self._score = score
        self._most = most
        self._longest_wait = longest_wait
        self._scheduler = FairScheduler(concurrency)
        self._open: dict[tuple[Flow, str], _Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.pending = 0
        counter = partial(prometheus.Counter, registry=registry)
        self._scored = counter("reasoning_gym_answers", "Scored completions by status.", ["status"])
        for status in Status:
            self._scored.labels(status.value)
        self._batches = counter("reasoning_gym_batches", "Groups of completions scored together.")
        self._batched = counter("reasoning_gym_batched_answers", "Completions in those groups.")
        prometheus.Gauge(
            "reasoning_gym_queued_answers", "Completions that are pending.", registry=registry
        ).set_function(lambda: self.pending)

    def require_room(self, completions: int = 1) -> None:
        """Raise HTTPException 429 if the queue has no room for so many completions."""
        if self.pending + completions > self._most:
            raise retry_later(
                429, f"{self.pending} of {self._most} completions are pending: try again later"
            )

    async def score(
        self, target: Target, completions: Sequence[str], *, client: str
    ) -> list[Score]:
        """Score completions, in order. Cancelling this call withdraws those that still wait.

        Args:
            client: takes turns with others.

        Raises:
            HTTPException: the queue is full, the completions waited too long, or the target cannot
                be scored.
        """
        self.require_room(len(completions))
        placed = self._place(Flow(client, target.recipe.task), target, completions)
        self.pending += len(completions)
        try:
            scored = await asyncio.gather(*(part.scores for _, part in placed))
        finally:
            self.pending -= len(completions)
            for batch, part in placed:
                self._withdraw(batch, part)
        scores = list(itertools.chain.from_iterable(scored))
        for status, count in Counter(score.status for score in scores).items():
            self._scored.labels(status.value).inc(count)
        return scores

    def _place(
        self, flow: Flow, target: Target, completions: Sequence[str]
    ) -> list[tuple[_Batch, _Part]]:
        """Add completions to the open batch of their flow and target, and to new ones."""
        key = flow, target.key
        placed = []
        while completions:
            batch = self._open.get(key)
            if batch is None or not batch.room:
                room = self._scheduler.batch_size(flow)
                batch = self._open[key] = _Batch(key=key, target=target, room=room)
                batch.task = asyncio.create_task(self._run(batch))
                self._tasks.add(batch.task)
                batch.task.add_done_callback(self._tasks.discard)
            part = _Part(completions[: batch.room], asyncio.get_running_loop().create_future())
            batch.parts.append(part)
            batch.room -= len(part.completions)
            placed.append((batch, part))
            completions = completions[len(part.completions) :]
        return placed

    def _withdraw(self, batch: _Batch, part: _Part) -> None:
        """Remove a part whose caller is gone, and a batch that is empty after it."""
        part.scores.cancel()
        if batch.started or not part.scores.cancelled():
            return
        batch.parts.remove(part)
        batch.room += len(part.completions)
        if not batch.parts:
            self._close(batch)
            if batch.task is not None:
                batch.task.cancel()

    def _close(self, batch: _Batch) -> None:
        batch.started = True
        if self._open.get(batch.key) is batch:
            del self._open[batch.key]

    async def _run(self, batch: _Batch) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        flow, _ = batch.key
        try:
            async with self._scheduler.slot(flow, patience=self._longest_wait):
                self._close(batch)
                await self._score_batch(flow, batch)
        except TimeoutError:
            self._close(batch)
            message = f"waited {self._longest_wait:g} s for a free verifier: try again later"
            self._fail(batch, retry_later(503, message, seconds=10))

    async def _score_batch(self, flow: Flow, batch: _Batch) -> None:
        """Score a batch and resolve the parts that are still awaited."""
        completions = [text for part in batch.parts for text in part.completions]
        self._batches.inc()
        self._batched.inc(len(completions))
        try:
            scores = await self._score(batch.target, completions)
        except Exception as error:  # noqa: BLE001 - raised in each caller
            self._fail(batch, error)
            return
        self._scheduler.record(flow, scores)
        each = iter(scores)
        for part in batch.parts:
            own = [next(each) for _ in part.completions]
            if not part.scores.done():
                part.scores.set_result(own)

    @staticmethod
    def _fail(batch: _Batch, error: Exception) -> None:
        for part in batch.parts:
            if not part.scores.done():
                part.scores.set_exception(error)
