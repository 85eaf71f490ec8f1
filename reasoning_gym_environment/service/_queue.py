"""The bounded queue in which completions wait to be scored: in batches, and clients in turn."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from functools import partial

import prometheus_client as prometheus

from ..records import Score, Status
from ._messages import retry_later
from ._scoring import NO_VERDICT

MAX_BATCH = 8
"""Distinct completions scored together, and half as many for a client not known to be quick."""

QUICK_SECONDS = 1.0
"""A batch was quick if its completions took at most this on average."""

NO_VERDICT_SECONDS = 5.0
"""What a completion without a verdict counts as: a verifier's time limit."""

REMEMBERED_SECONDS = 60.0
"""After this a client that asked, or was quick, is forgotten."""

ScoreBatch = Callable[[Sequence[str]], Awaitable[list[Score]]]
"""Scores completions, in order."""


class _Batch:
    """Completions of one client that are scored together.

    Attributes:
        client: whose they are.
        key: what their problem has in common; with the client, the batch's place.
    """

    def __init__(self, client: str, key: Hashable, score: ScoreBatch) -> None:
        self.client = client
        self.key = key
        self._score = score
        # By the future that the caller awaits; without those whose caller is gone.
        self._texts: dict[asyncio.Future[Score], str] = {}
        self._distinct: set[str] = set()  # equal completions are verified once

    def __len__(self) -> int:
        return len(self._texts)

    def has_room(self, text: str, *, size: int) -> bool:
        """Return whether it holds at most `size` distinct completions with this one."""
        return len(self._distinct | {text}) <= size

    def add(self, text: str) -> asyncio.Future[Score]:
        """Add a completion; return the future of its score."""
        score = asyncio.get_running_loop().create_future()
        self._texts[score] = text
        self._distinct.add(text)
        return score

    def withdraw(self, score: asyncio.Future[Score]) -> None:
        """Leave out a completion whose caller is gone."""
        self._texts.pop(score, None)

    def fail(self, error: Exception) -> None:
        """Raise an error in each caller that still waits."""
        for score in self._texts:
            if not score.done():  # its caller may be about to go
                score.set_exception(error)

    async def score(self) -> list[Score]:
        """Score the completions for the callers that still wait; return no scores if that fails."""
        futures = list(self._texts)  # callers may withdraw meanwhile
        try:
            scores = await self._score(list(self._texts.values()))
        except Exception as error:  # noqa: BLE001 - raised in each caller
            self.fail(error)
            return []
        for future, score in zip(futures, scores, strict=True):
            if not future.done():
                future.set_result(score)
        return scores


class _Slots:
    """The slots in which batches are scored, and which client may have one more.

    While others ask, a client has a quarter of them until a batch of it was quick, and again when
    its answers hang.

    Args:
        count: of the slots that all clients share.
        own_workers: clients that have as many slots for themselves.
    """

    def __init__(self, count: int, own_workers: Collection[str]) -> None:
        self._count = count
        self._free = count
        self._own_workers = frozenset(own_workers)
        self._running: Counter[str] = Counter()  # batches by client
        self._asked_at: dict[str, float] = {}  # the client that asked last is last
        self._quick_at: dict[str, float] = {}  # when a batch of the client was quick

    def record_request(self, client: str) -> None:
        """Count a client among those that ask now."""
        self._asked_at.pop(client, None)
        self._asked_at[client] = asyncio.get_running_loop().time()

    def batch_size(self, client: str) -> int:
        """Return how many distinct completions a batch of a client may have."""
        return MAX_BATCH if client in self._quick_at else MAX_BATCH // 2

    def next_client(self, waiting: Collection[str]) -> str | None:
        """Return the first of the waiting clients that may score a batch now."""
        self._forget_old_clients()
        asking = (self._asked_at.keys() | waiting) - self._own_workers
        for client in waiting:
            if client in self._own_workers:
                may_run = self._running[client] < self._count
            else:
                is_alone = asking == {client}
                has_share = self._running[client] < max(1, self._count // 4)
                is_quick = client in self._quick_at
                may_run = self._free > 0 and (is_alone or has_share or is_quick)
            if may_run:
                return client
        return None

    def _forget_old_clients(self) -> None:
        oldest = asyncio.get_running_loop().time() - REMEMBERED_SECONDS
        for times in (self._asked_at, self._quick_at):
            while times and next(iter(times.values())) < oldest:
                del times[next(iter(times))]

    def take(self, client: str) -> None:
        """Give a slot to a client."""
        if client not in self._own_workers:
            self._free -= 1
        self._running[client] += 1

    def give_back(self, client: str, scores: Sequence[Score]) -> None:
        """Take a slot back; remember whether the scores came quickly, if there are any."""
        if client not in self._own_workers:
            self._free += 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        if not scores:
            return
        seconds = sum(
            NO_VERDICT_SECONDS if score.status in NO_VERDICT else score.seconds
            for score in scores
        )
        self._quick_at.pop(client, None)
        if seconds <= QUICK_SECONDS * len(scores):
            self._quick_at[client] = asyncio.get_running_loop().time()


class ScoringQueue:
    """Bounded queue that batches completions, and whose clients take turns.

    A batch gathers completions of one client and key for a moment, and more while it waits for a
    slot. It is scored when its client has the turn and may have a slot (see `_Slots`), or is given
    up. One client has half of the queue at most. There are two slots per verifier host.

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
        self._slots = _Slots(slots, own_workers)
        self._gathering_seconds = gathering
        self._longest_wait = longest_wait
        self._pending: Counter[str] = Counter()  # completions by client
        # By client and key: the batch that takes more completions.
        self._open: dict[tuple[str, Hashable], _Batch] = {}
        # Of batches not yet scored: it ends the gathering, then the waiting.
        self._timers: dict[_Batch, asyncio.TimerHandle] = {}
        # The first client is the one whose turn is next.
        self._waiting: dict[str, deque[_Batch]] = {}
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
        self._slots.record_request(client)
        batched = []
        for text in completions:
            batch = self._batch_with_room(client, key, text, score)
            batched.append((batch, batch.add(text)))
        self._pending[client] += len(completions)
        try:
            scores = await asyncio.gather(*(future for _, future in batched))
        finally:
            self._pending[client] -= len(completions)
            if not self._pending[client]:
                del self._pending[client]
            for batch, future in batched:
                batch.withdraw(future)
                if not batch:
                    self._remove(batch)
        for status, count in Counter(score.status for score in scores).items():
            self._scored.labels(status.value).inc(count)
        return scores

    def _batch_with_room(
        self, client: str, key: Hashable, text: str, score: ScoreBatch
    ) -> _Batch:
        """Return the open batch of a place if the text fits, else a new one."""
        batch = self._open.get((client, key))
        size = self._slots.batch_size(client)
        if batch is None or not batch.has_room(text, size=size):
            batch = self._open[client, key] = _Batch(client, key, score)
            self._set_timer(batch, self._gathering_seconds, self._enqueue)
        return batch

    def _set_timer(
        self, batch: _Batch, seconds: float, act: Callable[[_Batch], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        self._timers[batch] = loop.call_later(seconds, act, batch)

    def _enqueue(self, batch: _Batch) -> None:
        """Let a batch wait for its turn."""
        self._set_timer(batch, self._longest_wait, self._give_up)
        self._waiting.setdefault(batch.client, deque()).append(batch)
        self._start_batches()

    def _remove(self, batch: _Batch) -> None:
        """Take a batch out of the queue, if it is in it."""
        timer = self._timers.pop(batch, None)
        if timer is None:
            return
        timer.cancel()
        client = batch.client
        if self._open.get((client, batch.key)) is batch:
            del self._open[client, batch.key]
        if batch in self._waiting.get(client, ()):
            self._waiting[client].remove(batch)
            if not self._waiting[client]:
                del self._waiting[client]

    def _give_up(self, batch: _Batch) -> None:
        self._remove(batch)
        message = (
            f"waited {self._longest_wait:g} s for a free verifier: try again later"
        )
        batch.fail(retry_later(503, message, seconds=10))

    def _start_batches(self) -> None:
        """Give free slots to waiting clients in turn."""
        while (client := self._slots.next_client(self._waiting)) is not None:
            batch = self._waiting[client][0]
            self._remove(batch)
            if client in self._waiting:  # with more batches, behind the others
                self._waiting[client] = self._waiting.pop(client)
            self._slots.take(client)
            task = asyncio.create_task(self._run(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, batch: _Batch) -> None:
        """Score a batch in the slot that its client has, and give the slot to the next."""
        self._batches.inc()
        self._batched.inc(len(batch))
        scores: list[Score] = []
        try:
            scores = await batch.score()
        finally:
            self._slots.give_back(batch.client, scores)
        self._start_batches()
