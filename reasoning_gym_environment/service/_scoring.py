"""What scores completions of a target, and the bounded queue in which they wait."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial

import prometheus_client as prometheus
from fastapi import HTTPException

from ..errors import GenerationError, GenerationTimeoutError, WorkerLostError
from ..gym.asynchronous import AsyncReasoningGym
from ..records import Score, Status
from ..scoring.extraction import in_tags
from ..util.values import shorten
from ._messages import Target, retry_later

MAX_BATCH = 8
"""Distinct completions scored together, and half as many for a client not known to be quick."""

NO_VERDICT = {Status.UNSCORED, Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.CRASHED}
"""Statuses that say nothing about the answer: this machine may be slow."""

ScoreBatch = Callable[[Sequence[str]], Awaitable[list[Score]]]
"""Scores completions, in order."""


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
            [label] = await self.gym.score_group(
                problem, [in_tags(str(problem.oracle))]
            )
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


@dataclass(eq=False, kw_only=True, slots=True)
class _Batch:
    """Completions that wait to be scored together.

    Attributes:
        texts: by the future that the caller awaits; without those whose caller is gone.
        distinct: the texts that were added; equal ones are verified once.
    """

    place: tuple[str, Hashable]  # client and key
    score: ScoreBatch
    texts: dict[asyncio.Future[Score], str] = field(default_factory=dict)
    distinct: set[str] = field(default_factory=set)
    timer: asyncio.TimerHandle | None = None  # ends the gathering, then the waiting


class ScoringQueue:
    """Bounded queue that batches completions, and whose clients take turns.

    One client has half of the queue at most. While others ask, one has a quarter of the slots until
    a batch of it was quick, and again when its answers hang. There are two slots per verifier host.

    Args:
        most: completions that may be pending.
        slots: batches scored at once.
        own_workers: clients, such as contained functions, that have as many slots for themselves.
        gathering: seconds for a batch to wait for more completions; scoring one alone takes longer.
        longest_wait: seconds for a batch to wait until it is scored.
    """

    def __init__(
        self,
        registry: prometheus.CollectorRegistry,
        *,
        most: int,
        slots: int,
        own_workers: Collection[str] = (),
        gathering: float = 0.005,
        longest_wait: float = 90.0,
    ) -> None:
        self._most = most
        self._free = self._slots = slots
        self._own_workers = frozenset(own_workers)
        self._gathering_seconds = gathering
        self._longest_wait = longest_wait
        self._pending: Counter[str] = Counter()  # completions by client
        self._gathering: dict[tuple[str, Hashable], _Batch] = {}
        # The first client is the one whose turn is next.
        self._waiting: dict[str, deque[_Batch]] = {}
        self._running: Counter[str] = Counter()
        self._asked_at: dict[str, float] = {}  # the client that asked last is last
        self._quick_at: dict[str, float] = {}  # when a batch of the client was quick
        self._tasks: set[asyncio.Task[None]] = set()
        counter = partial(prometheus.Counter, registry=registry)
        self._scored = counter(
            "reasoning_gym_answers", "Scored completions by status.", ["status"]
        )
        for status in Status:
            self._scored.labels(status.value)
        self._batches = counter(
            "reasoning_gym_batches", "Groups of completions scored together."
        )
        self._batched = counter(
            "reasoning_gym_batched_answers", "Completions in those groups."
        )
        prometheus.Gauge(
            "reasoning_gym_queued_answers",
            "Completions that are pending.",
            registry=registry,
        ).set_function(self._pending.total)

    def require_room(self, completions: int = 1, client: str = "") -> None:
        """Raise HTTPException 429 if the queue or the client's half lacks room for them."""
        pending = self._pending.total()
        of_client = self._pending[client]
        if pending + completions > self._most:
            raise retry_later(
                429,
                f"{pending} of {self._most} completions are pending: try again later",
            )
        if of_client + completions > max(1, self._most // 2):
            raise retry_later(
                429,
                f"{of_client} completions of this client are pending, of {self._most // 2} "
                "that one client may have: try again later",
            )

    async def score(
        self,
        score: ScoreBatch,
        completions: Sequence[str],
        *,
        key: Hashable,
        client: str,
    ) -> list[Score]:
        """Score completions, in order. Cancelling this call withdraws those that still wait.

        Args:
            score: of the completions with the same key.

        Raises:
            HTTPException: the queue is full, or the completions waited too long.
        """
        self.require_room(len(completions), client)
        loop = asyncio.get_running_loop()
        self._asked_at.pop(client, None)
        self._asked_at[client] = loop.time()
        placed = []
        for text in completions:
            place = client, key
            batch = self._gathering.get(place)
            size = MAX_BATCH if client in self._quick_at else MAX_BATCH // 2
            if batch is None or len(batch.distinct | {text}) > size:
                batch = self._gathering[place] = _Batch(place=place, score=score)
                batch.timer = loop.call_later(
                    self._gathering_seconds, self._enqueue, batch
                )
            scored = loop.create_future()
            batch.texts[scored] = text
            batch.distinct.add(text)
            placed.append((batch, scored))
        self._pending[client] += len(completions)
        try:
            scores = await asyncio.gather(*(scored for _, scored in placed))
        finally:
            self._pending[client] -= len(completions)
            if not self._pending[client]:
                del self._pending[client]
            for batch, scored in placed:
                if batch.texts.pop(scored, None) is not None and not batch.texts:
                    self._remove(batch)
        for status, count in Counter(score.status for score in scores).items():
            self._scored.labels(status.value).inc(count)
        return scores

    def _enqueue(self, batch: _Batch) -> None:
        client, _ = batch.place
        loop = asyncio.get_running_loop()
        batch.timer = loop.call_later(self._longest_wait, self._give_up, batch)
        self._waiting.setdefault(client, deque()).append(batch)
        self._start_batches()

    def _remove(self, batch: _Batch) -> None:
        """Take a batch out of the queue, if it is in it."""
        client, _ = batch.place
        if batch.timer is not None:
            batch.timer.cancel()
        if self._gathering.get(batch.place) is batch:
            del self._gathering[batch.place]
        if batch in self._waiting.get(client, ()):
            self._waiting[client].remove(batch)
            if not self._waiting[client]:
                del self._waiting[client]

    def _give_up(self, batch: _Batch) -> None:
        self._remove(batch)
        message = (
            f"waited {self._longest_wait:g} s for a free verifier: try again later"
        )
        for scored in batch.texts:
            if not scored.done():  # its caller may have gone
                scored.set_exception(retry_later(503, message, seconds=10))

    def _start_batches(self) -> None:
        """Give free slots to waiting clients in turn."""
        now = asyncio.get_running_loop().time()
        for times in (self._asked_at, self._quick_at):
            while times and next(iter(times.values())) < now - 60:
                del times[next(iter(times))]
        while True:
            ready_workers = [
                each for each in self._own_workers if each in self._waiting
            ]
            client = next(
                filter(self._may_run, self._waiting if self._free else ready_workers),
                None,
            )
            if client is None:
                return
            batch = self._waiting[client][0]
            self._remove(batch)
            if client in self._waiting:
                self._waiting[client] = self._waiting.pop(client)
            self._free -= client not in self._own_workers
            self._running[client] += 1
            task = asyncio.create_task(self._run(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _may_run(self, client: str) -> bool:
        """Return whether a client that waits may have one slot more."""
        if client in self._own_workers:
            return self._running[client] < self._slots
        is_alone = {client} >= (
            self._asked_at.keys() | self._waiting.keys()
        ) - self._own_workers
        has_share = self._running[client] < max(1, self._slots // 4)
        return is_alone or has_share or client in self._quick_at

    async def _run(self, batch: _Batch) -> None:
        """Score a batch and resolve the futures that are still awaited."""
        client, _ = batch.place
        texts = batch.texts
        batch.texts = {}
        self._batches.inc()
        self._batched.inc(len(texts))
        try:
            scores = await batch.score(list(texts.values()))
        except Exception as error:  # noqa: BLE001 - raised in each caller
            for scored in texts:
                if not scored.done():
                    scored.set_exception(error)
        else:
            for scored, score in zip(texts, scores, strict=True):
                if not scored.done():
                    scored.set_result(score)
            # a verdict that is missing counts as much as a verifier's time limit
            seconds = sum(5.0 if s.status in NO_VERDICT else s.seconds for s in scores)
            self._quick_at.pop(client, None)
            if seconds <= len(scores):
                self._quick_at[client] = asyncio.get_running_loop().time()
        finally:
            self._free += client not in self._own_workers
            self._running[client] -= 1
            if not self._running[client]:
                del self._running[client]
        self._start_batches()
