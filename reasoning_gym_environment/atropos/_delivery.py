"""Delivery of collected groups: to the trainer's API, or in `process` to a file."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from ..records import Problem
from ..rollouts.metrics import GroupOutcome, Statistics
from ..util.concurrency import LARGE, StallTolerantSemaphore, offload
from ..util.outages import Outage, UnreachableError
from ._trainer_api import ApiRefusedError, LostStateError, TrainerApi
from .scored_data import COLUMNS, find_fault, pack

logger = logging.getLogger(__name__)

_CLOSE_SECONDS = 5.0
"""How long groups in flight have to arrive at the end of a run."""
_MAX_BODIES = 8
"""Bodies of long groups in memory: one takes 4 MB, and the API may be slow."""
_ABSENT = ("ref_logprobs", "group_overrides", "distill_token_ids", "distill_logprobs")
"""Fields of Atropos's groups that ours don't have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryRules:
    """Where a group goes, and which groups are dropped.

    Attributes:
        env_id: our id at the API; None writes to the file alone.
        rows: number of rollouts of a valid group.
        drop_equal_scores: whether to drop groups whose scores are all equal.
        row_limit: drop groups with a row of this many tokens or more; 0 or less for no limit.
    """

    env_id: int | None
    rows: int
    drop_equal_scores: bool
    row_limit: int


class Delivery:
    """Validates groups and delivers them; each gets its outcome in the group accounting.

    Atropos's base class takes a refusal for success and lets a NaN reach the trainer's batch.

    Args:
        vocabulary: the number of token ids.
        writer: Atropos's own file of groups, if any.
        on_accept: called with each group that is going to be sent or written.
    """

    def __init__(
        self,
        api: TrainerApi,
        statistics: Statistics,
        *,
        vocabulary: int,
        writer: Any,
        on_accept: Callable[[dict[str, Any], Problem | None], Awaitable[None]],
    ) -> None:
        self._api = api
        self._statistics = statistics
        self._vocabulary = vocabulary
        self._writer = writer
        self._on_accept = on_accept
        self._in_flight: set[asyncio.Task[None]] = set()
        self._workers: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._refusals = Outage()
        self._writing = asyncio.Lock()
        self._bodies = StallTolerantSemaphore(_MAX_BODIES)

    async def deliver(
        self, group: dict[str, Any], problem: Problem | None, rules: DeliveryRules
    ) -> None:
        """Deliver a group; cancelling the caller does not cancel the delivery."""
        task = asyncio.create_task(self._record(self._deliver(group, problem, rules)))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        if worker := asyncio.current_task():
            self._workers.add(worker)
        await asyncio.shield(task)  # the API may have the group before its worker is cancelled

    def has_group_of(self, worker: asyncio.Task[Any] | None) -> bool:
        """Return whether a worker's group was handed to `deliver`."""
        return worker in self._workers

    async def close(self) -> None:
        """Wait a few seconds for the groups in flight, then cancel them."""
        in_flight = list(self._in_flight)
        if in_flight:
            await asyncio.wait(in_flight, timeout=_CLOSE_SECONDS)
        for task in in_flight:
            task.cancel()
        for error in await asyncio.gather(*in_flight, return_exceptions=True):
            if isinstance(error, Exception):
                logger.error("A group is lost: %r", error)

    async def _record(self, delivery: Coroutine[Any, Any, GroupOutcome]) -> None:
        accounting = self._statistics.accounting
        with accounting.delivering():
            accounting.record(await delivery)

    async def _deliver(
        self, group: dict[str, Any], problem: Problem | None, rules: DeliveryRules
    ) -> GroupOutcome:
        tokens = sum(map(len, group["tokens"]))
        check = functools.partial(find_fault, group, rows=rules.rows, vocabulary=self._vocabulary)
        if reason := await offload(check, tokens=tokens):
            return self._refuse(problem, reason)
        if _is_filtered(group, rules):
            return GroupOutcome.FILTERED
        for name in _ABSENT:
            group.setdefault(name, None)
        await self._on_accept(group, problem)
        written = await self._write(group, tokens=tokens)
        if rules.env_id is None:
            return GroupOutcome.WRITTEN if written else GroupOutcome.FAILED
        return await self._send({**group, "env_id": rules.env_id}, problem, tokens=tokens)

    async def _write(self, group: dict[str, Any], *, tokens: int) -> bool:
        """Write to Atropos's own file; return False on a failure, which is logged and counted."""
        if self._writer is None:
            return True

        def write() -> None:
            lists = {name: [list(row) for row in group[name]] for name in COLUMNS if group[name]}
            self._writer.write({**group, **lists})

        try:
            async with self._writing:
                await offload(write, tokens=tokens)
        except OSError as error:
            self._statistics.counts["groups/not_written"] += 1
            logger.error("A group is missing in data_path_to_save_groups: %s", error)
            return False
        return True

    async def _send(
        self, group: dict[str, Any], problem: Problem | None, *, tokens: int
    ) -> GroupOutcome:
        try:
            async with self._bodies.slot() if tokens >= LARGE else contextlib.nullcontext():
                body = await offload(functools.partial(pack, group), tokens=tokens)
                reply = await self._api.request("POST", "/scored_data", body, groups=1)
        except (ApiRefusedError, TypeError, ValueError) as error:
            return self._refuse(problem, str(error))
        except UnreachableError as error:
            logger.error("A group is lost: %s", error)
            return GroupOutcome.FAILED
        except LostStateError:
            return GroupOutcome.FAILED
        if reply.get("status") == "buffered":  # only groups of another size than registered are
            self._api.mark_lost("it has our id for another environment")
            return GroupOutcome.FAILED
        return GroupOutcome.SENT

    def _refuse(self, problem: Problem | None, reason: str) -> GroupOutcome:
        if self._refusals.failed():
            task = problem.recipe.task if problem else "an unknown task"
            refused = self._refusals.lost
            logger.warning("Not sent: a group of %s, %d refused so far: %s", task, refused, reason)
        return GroupOutcome.REFUSED


def _is_filtered(group: Mapping[str, Any], rules: DeliveryRules) -> bool:
    """Return whether no trainer learns from the group, or has room for its longest row."""
    if rules.drop_equal_scores and len(set(group["scores"])) == 1:
        return True
    longest = max(map(len, group["tokens"]))
    if 0 < rules.row_limit <= longest:
        logger.warning("A row of %d tokens reaches max_token_len: not sent", longest)
        return True
    return False
