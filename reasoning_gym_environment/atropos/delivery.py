"""Delivery of groups: each is checked, then written and sent, and its outcome is recorded."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from ..records import Problem
from ..rollouts.accounting import GroupOutcome, Statistics
from ..util.concurrency import LARGE, DaemonWriter, run_in_thread_if_large
from ..util.files import append_whole
from ..util.outages import LogThrottle, UnreachableError
from .rows import COLUMNS, group_error, pack, task_of
from .trainer_api import CLOSE_SECONDS, ApiRefusedError, LostStateError, TrainerApi

logger = logging.getLogger(__name__)


class Delivery:
    """The way of a group to the API, or in `process` to Atropos's own file; each gets its outcome.

    Atropos's base class takes a refusal for success and lets a NaN reach the trainer's batch. The
    vocabulary is 0 if groups have no token ids.
    """

    def __init__(
        self,
        api: TrainerApi,
        statistics: Statistics,
        vocabulary: int,
        file: str | None,
    ) -> None:
        # What ends a run of which nothing arrives.
        self.fatal: ConfigurationError | None = None
        self._api = api
        self._statistics = statistics
        self._vocabulary = vocabulary
        self._file = Path(file) if file else None
        self._disk = DaemonWriter(Path(file or ""))
        self._in_flight: set[asyncio.Task[None]] = set()
        self._refusals = LogThrottle()
        self._bodies = asyncio.Semaphore(8)  # of 4 MB, in memory while the API is slow

    async def finish(self, delivery: Coroutine[Any, Any, GroupOutcome]) -> None:
        """Record the outcome of a delivery; cancelling the caller does not cancel it."""

        async def record() -> None:
            with self._statistics.delivering():
                self._statistics.record(await delivery)

        task = asyncio.create_task(record())
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        # The API may have the group before its worker is cancelled.
        await asyncio.shield(task)

    async def close(self) -> None:
        """Wait a few seconds for the groups in flight, then cancel them."""
        in_flight = list(self._in_flight)
        if in_flight:
            await asyncio.wait(in_flight, timeout=CLOSE_SECONDS)
        for task in in_flight:
            task.cancel()
        for error in await asyncio.gather(*in_flight, return_exceptions=True):
            if isinstance(error, Exception):
                logger.error("A group is lost: %r", error)

    async def check(
        self,
        group: Mapping[str, Any],
        problem: Problem | None,
        *,
        rows: int,
        registered: int,
        row_limit: int,
        drop_equal_scores: bool,
    ) -> GroupOutcome | None:
        """Return the outcome of a group that is not sent, and log why; None for a good one.

        Args:
            registered: the rows that the API gathers before a trainer gets any; 0 without an API.
            row_limit: groups with a row of this many tokens or more are dropped; ≤ 0 for no limit.
        """
        lengths = [*map(len, group["tokens"])]
        check = functools.partial(
            group_error,
            group,
            rows=rows,
            vocabulary=self._vocabulary,
        )
        if self._vocabulary and (
            reason := await run_in_thread_if_large(check, tokens=sum(lengths))
        ):
            return self._refuse(problem, reason)
        if registered and registered % rows:
            reason = f"{rows} rows don't divide the registered group_size {registered}"
            return self._refuse(
                problem, f"{reason}: the API would keep them and say nothing"
            )
        if drop_equal_scores and len(set(group["scores"])) == 1:
            return GroupOutcome.FILTERED
        if 0 < row_limit <= max(lengths):
            message = "A row of %d tokens reaches max_token_len: not sent"
            logger.warning(message, max(lengths))
            return GroupOutcome.TOO_LONG
        return None

    def _refuse(self, problem: Problem | None, reason: str) -> GroupOutcome:
        self._refusals.record_failure()
        if self._refusals.should_log:
            refused = self._refusals.failures
            task = task_of(problem)
            logger.warning(
                "Not sent: a group of %s, %d refused so far: %s", task, refused, reason
            )
        delivered = sum(
            self._statistics.counts[f"groups/{name}"] for name in ("sent", "written")
        )
        if self._refusals.failures >= 5 and not delivered:
            self.fatal = self.fatal or ConfigurationError(
                f"{self._refusals.failures} groups were refused and none was delivered: {reason}"
            )
        return GroupOutcome.REFUSED

    async def write(self, group: dict[str, Any], *, must_end: bool) -> bool:
        """Write to Atropos's own file, see `DaemonWriter`; return False on a failure."""
        file = self._file
        if not file:
            return True
        try:
            await self._disk.write(lambda: self._append(file, group), must_end=must_end)
        except OSError:  # logged and counted
            return False
        return True

    def _append(self, file: Path, group: dict[str, Any]) -> None:
        lists = {
            name: [list(row) for row in group[name]] for name in COLUMNS if group[name]
        }
        try:
            append_whole(file, (json.dumps({**group, **lists}) + "\n").encode())
        except OSError as error:
            self._count_missing(1, error)
            raise

    def _count_missing(self, groups: int, reason: object) -> None:
        self._statistics.counts["groups/not_written"] += groups
        logger.error(
            "Groups missing in data_path_to_save_groups: %d (%s)", groups, reason
        )

    def close_file(self) -> None:
        """Wait for pending writes for a while, then log and count the rest as not written."""
        lost = self._disk.close()
        if lost:
            self._count_missing(lost, "its disk does not respond")

    async def send(
        self, group: Mapping[str, Any], problem: Problem | None
    ) -> GroupOutcome:
        """Send a group to the API; failures are logged."""
        tokens = sum(map(len, group["tokens"]))
        try:
            async with self._bodies if tokens >= LARGE else contextlib.nullcontext():
                body = await run_in_thread_if_large(
                    functools.partial(pack, group), tokens=tokens
                )
                reply = await self._api.request("POST", "/scored_data", body, groups=1)
        except (ApiRefusedError, TypeError, ValueError) as error:
            return self._refuse(problem, str(error))
        except UnreachableError as error:
            logger.error("A group is lost: %s", error)
            return GroupOutcome.FAILED
        except LostStateError:
            return GroupOutcome.FAILED
        own_size = (group["group_overrides"] or {}).get("group_size")
        # The API buffers groups of another size, and the registered one is ours.
        if reply.get("status") == "buffered" and own_size is None:
            self._api.mark_lost("it has our id for another environment")
            return GroupOutcome.FAILED
        return GroupOutcome.SENT
