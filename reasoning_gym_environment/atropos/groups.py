"""The life of a group, from an item to what becomes of its completions.

`work_on` collects an item's groups, through the environment's `collect_trajectories` and
`postprocess_histories`, and delivers them. Unless a subclass overrides it, `collect_trajectories`
calls `sample_and_score`, which requests the completions of a problem, has them scored by the
environment's `score`, and saves them. `_deliver` checks rows, then sends or writes them. Each way
out sets the group's outcome, and `failures.py` says what else a failure does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..errors import TRY_AGAIN, ConfigurationError
from ..inference.errors import InferenceError
from ..records import GroupResult, Problem
from ..rollouts.accounting import Group, GroupOutcome
from ..rollouts.backoff import FailureBackoff
from ..storage.dumps import dump_kind
from ..storage.rows import StoredGroup
from ..util.concurrency import run_in_thread_if_large
from ..util.log_throttle import THROTTLE, throttled
from ..util.outages import UnreachableError
from .api_client import ApiRefusedError, LostStateError
from .config import ReasoningGymEnvConfig
from .failures import (
    DELIVERY_RAISED,
    GROUP_REFUSED,
    METHOD_RAISED,
    NOT_DELIVERED,
    NOT_SCORED,
    NOTHING_COLLECTED,
    REQUEST_REFUSED,
    SERVER_FAILED,
    WORKER_TIMEOUT,
    Failure,
    FailureCounts,
)
from .hooks import Hooks
from .items import Items, item_key
from .parts import Parts
from .rows import completed, group_error, task_of, to_scored_data_group, trained_tokens
from .state import RunState
from .subclass import checked_groups, checked_score, require_problem
from .trainer_api import CLOSE_SECONDS

logger = logging.getLogger(__name__)
logger.addFilter(THROTTLE)


@dataclass(eq=False)
class Work:
    """A worker's item.

    Attributes:
        holds_item: whether the item is lost if the worker ends now, since no group of it was
            collected and it was not put back.
        collecting: the task that collects its groups, once it runs.
    """

    item: Any
    holds_item: bool = True
    collecting: asyncio.Task[Any] | None = None

    def release(self) -> None:
        """Note that the item is done, or was put back."""
        self.holds_item = False

    def interrupt(self, worker: asyncio.Task[None]) -> None:
        """Cancel the worker, after the item was put back.

        The collection first: a reply that has just come would be scored and stored before the
        worker, which runs a round of the event loop later, could cancel it.
        """
        self.release()
        if self.collecting is not None:
            self.collecting.cancel()
        worker.cancel()


class WorkerTimeoutError(Exception):
    """An item's groups did not come within `worker_timeout`."""


class UnscoredError(Exception):
    """No rollout of a group has a score."""


class Groups:
    """Works on items: collects their groups, delivers them, and counts what became of each.

    Args:
        state: of the run.
        items: to which lost ones go back.
        max_losses: failures in a row that end the run, see `FailureCounts`.
        name: of the environment's class, for messages.

    Attributes:
        backoff: the pauses while inference fails.
    """

    def __init__(
        self,
        parts: Parts,
        hooks: Hooks,
        state: RunState,
        items: Items,
        *,
        max_losses: int,
        name: str,
    ) -> None:
        self.backoff = FailureBackoff()
        self._parts = parts
        self._settings = parts.settings
        self._config: ReasoningGymEnvConfig = parts.settings.env
        self._hooks = hooks
        self._state = state
        self._items = items
        self._name = name
        self._counts = parts.statistics.counts
        self._failures = FailureCounts(
            serves=parts.settings.serves, max_losses=max_losses
        )
        self._scored_groups = 0
        self._last_refusal = ""
        self._in_saving: list[str] = []  # keys of problems, which may be equal
        self._unreported_groups = 0
        self._deliveries: set[asyncio.Task[list[GroupOutcome]]] = set()

    async def work_on(self, item: Any, work: Work | None = None) -> bool:
        """Collect and deliver an item's groups; return whether the item is done.

        Args:
            work: is told when it no longer holds the item.

        Raises:
            FixableError: the run can't go on.
        """
        is_done = await self._collect_and_deliver(work or Work(item))
        try:
            await self._hooks.cleanup()
        except Exception as error:  # noqa: BLE001 - logged, and it ends the run
            self._count_failure(item, DELIVERY_RAISED, error)
            return False
        if is_done:
            self._failures.forget(DELIVERY_RAISED)
        return is_done

    async def _collect_and_deliver(self, work: Work) -> bool:
        item = work.item
        group = self._parts.statistics.begin_group()
        try:
            groups, more_items = await self._collect_in_time(work)
        except asyncio.CancelledError:
            group.end(GroupOutcome.INTERRUPTED)
            raise  # whoever cancels knows whether the item is asked again
        except UnscoredError as error:
            group.mark_collected()
            return self._fail(group, work, NOT_SCORED, error)
        except InferenceError as error:
            failure = SERVER_FAILED if error.is_transient else REQUEST_REFUSED
            return self._fail(group, work, failure, error)
        except WorkerTimeoutError as error:
            return self._fail(group, work, WORKER_TIMEOUT, error)
        except Exception as error:  # noqa: BLE001 - logged, and it ends the run
            return self._fail(group, work, METHOD_RAISED, error)
        group.mark_collected()
        self._items.add(more_items)
        self._items.forget_retries(item)
        if groups is None and not more_items:
            return self._fail(group, work, NOTHING_COLLECTED, "it gave no group")
        try:
            outcomes = await self._deliver_all(groups, item, group)
        except Exception as error:  # noqa: BLE001 - logged, and it ends the run
            self._count_failure(item, DELIVERY_RAISED, error)
            return False
        if groups is not None:  # a subclass's own groups were not observed
            self._inference_is_back()
        self._failures.forget(METHOD_RAISED, NOT_SCORED)
        if GroupOutcome.REFUSED in outcomes:
            self._count_refusal(item)
        if self._settings.command == "process" and _is_undelivered(outcomes):
            reason = "its groups were refused or not written: see the log"
            self._count_failure(item, NOT_DELIVERED, reason)
            return False
        self._failures.forget(NOTHING_COLLECTED, NOT_DELIVERED)
        return groups is not None

    async def _collect_in_time(self, work: Work) -> tuple[Any, list[Any]]:
        """Return an item's groups and more items; raises WorkerTimeoutError."""
        item = work.item
        seconds = self._config.worker_timeout
        limit = seconds if seconds > 0 and self._settings.serves else None
        collecting = asyncio.create_task(self._collect_groups(work))
        work.collecting = collecting
        try:
            await asyncio.wait({collecting}, timeout=limit)
            if self.is_saving(item):  # nothing is won by a second group of it
                await asyncio.wait({collecting})
            if not collecting.done():
                raise WorkerTimeoutError(
                    f"its completions did not come within worker_timeout, {seconds:g} s"
                )
            try:
                return collecting.result()
            except asyncio.CancelledError as error:  # else `wait` would have raised it
                raise RuntimeError("a task that it awaits was cancelled") from error
        finally:
            collecting.cancel()
            await asyncio.gather(collecting, return_exceptions=True)

    def is_saving(self, item: Any) -> bool:
        """Return whether a group of the item is scored, and on its way to the disk."""
        return item_key(item) in self._in_saving

    async def _collect_groups(self, work: Work) -> tuple[Any, list[Any]]:
        collected = await self._hooks.collect(work.item)
        groups = await checked_groups(collected, self._hooks.postprocess, self._name)
        # Here, not where this task is awaited: an evaluation that interrupts workers may begin in
        # between, and would have an item asked again whose group is on the disk.
        work.release()
        return groups

    async def sample_and_score(self, problem: Problem) -> dict[str, Any]:
        """Return a problem's completions as rows for the trainer, scored and saved.

        Raises:
            InferenceError: no server gave valid completions.
            UnscoredError: no rollout has a score.
        """
        require_problem(problem, self._parts.problems.selection.categories, self._name)
        completions = await self._parts.inference.sample(
            problem.question,
            n=self._config.group_size,
            length_limit=self._state.length_limit,
            sampling=self._parts.sampling,
        )
        scored = await self._hooks.score(problem, completions)
        result = checked_score(scored, completions, self._name)
        self._observe(result)
        key = item_key(problem)
        self._in_saving.append(key)
        try:
            await self._save(result)
        finally:
            self._in_saving.remove(key)
        if not result.scored:
            raise UnscoredError(result.attempts[0].verdict.detail)
        return to_scored_data_group(
            result,
            self._parts.inference.prompt(problem.question).messages,
            generation_params=self._parts.sampling.distribution,
            mask_truncated=self._config.mask_too_long_completions,
            include_messages=self._config.include_messages,
        )

    def _observe(self, result: GroupResult) -> None:
        """Tell a scored group to all that learn from it or count it."""
        self._scored_groups += 1
        self._parts.start_stream(self._state.replica)
        self._inference_is_back()
        self._parts.problems.group_finished(result, step=self._state.trainer_step)
        self._parts.statistics.group_finished(result)
        self._parts.progress.group_finished(result)

    async def _save(self, result: GroupResult) -> None:
        """Dump a group if its kind is dumped; it is on disk when this returns.

        A cancelled worker does not stop the write, which has begun before this first waits.
        """
        config = self._config
        kind = dump_kind(result.rewards, threshold=config.rollout_save_score_threshold)
        if kind not in config.dumped_kinds:
            return
        identity = {
            **self._state.identity(self._parts.versions),
            "step": self._state.trainer_step,
            "number": self._scored_groups,
        }
        messages = self._parts.inference.prompt(result.problem.question).messages
        row = StoredGroup.of_run(result, messages, identity, self._parts.scoring)
        await self._parts.dumps.write(kind, row.to_json())

    async def _deliver_all(
        self, groups: Any, item: Any, group: Group
    ) -> list[GroupOutcome]:
        """Deliver the groups of an item, to which a subclass may have made more or none.

        Args:
            groups: what the item's collection returned.
            group: the first of them; dropped if there is none.
        """
        as_list = groups if isinstance(groups, list) else [groups]
        collected = [rows for rows in as_list if rows is not None]
        if not collected:
            group.end(NOTHING_COLLECTED.outcome)
            return []
        own_groups = [group]
        for _ in collected[1:]:
            more = self._parts.statistics.begin_group()
            more.mark_collected()
            own_groups.append(more)
        delivery = asyncio.create_task(self._deliver_each(own_groups, collected, item))
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._end_delivery)
        # The API may have a group before its worker is cancelled.
        return await asyncio.shield(delivery)

    async def _deliver_each(
        self, groups: Sequence[Group], collected: Sequence[Any], item: Any
    ) -> list[GroupOutcome]:
        """Deliver rows one after the other; those after a failure have failed too."""
        outcomes = []
        try:
            for group, rows in zip(groups, collected, strict=True):
                outcomes.append(await self._deliver(group, rows, item))
        except BaseException as error:
            is_cancelled = isinstance(error, asyncio.CancelledError)
            rest = GroupOutcome.CANCELLED if is_cancelled else GroupOutcome.FAILED
            for group in groups:
                if group.outcome is None:
                    group.end(rest)
            raise
        return outcomes

    def _end_delivery(self, delivery: asyncio.Task[list[GroupOutcome]]) -> None:
        self._deliveries.discard(delivery)
        error = None if delivery.cancelled() else delivery.exception()
        if error is not None:
            logger.error("A group is lost: %r", error)

    async def _deliver(
        self, group: Group, rows: Mapping[str, Any], item: Any
    ) -> GroupOutcome:
        """Check rows, then send or write them; what becomes of them is the group's outcome."""
        outcome = GroupOutcome.FAILED
        try:
            outcome = await self._deliver_rows(rows, item)
        except asyncio.CancelledError:
            outcome = GroupOutcome.CANCELLED
            raise
        finally:
            group.end(outcome)
        return outcome

    async def _deliver_rows(self, rows: Mapping[str, Any], item: Any) -> GroupOutcome:
        tokenizer = self._parts.tokenizer
        shows_text = tokenizer is not None and self._config.include_messages
        whole = completed(rows, tokenizer.decode if shows_text else None)
        reason = await self._why_invalid(whole)
        if reason:
            return self._refuse(item, reason)
        has_equal_scores = len(set(whole["scores"])) == 1
        if has_equal_scores and self._config.ensure_scores_are_not_same:
            return GroupOutcome.FILTERED
        longest = max(map(len, whole["tokens"]))
        if self._settings.serves and 0 < self._state.max_token_len <= longest:
            logger.warning(
                "A row of %d tokens reaches max_token_len: not sent", longest
            )
            return GroupOutcome.TOO_LONG
        self._unreported_groups += 1
        self._parts.metrics.add_completion_lengths(map(trained_tokens, whole["masks"]))
        self._counts["groups/accepted"] += 1
        await self._hooks.keep_rollouts(whole, item)
        groups_file = self._parts.groups_file
        is_written = groups_file is None or await groups_file.write(whole)
        if self._state.registration is None:
            return GroupOutcome.WRITTEN if is_written else GroupOutcome.FAILED
        return await self._send(
            {**whole, "env_id": self._state.registration.env_id}, item
        )

    async def _why_invalid(self, rows: Mapping[str, Any]) -> str | None:
        """Return why the trainer can't use a group; None for a valid one."""
        tokenizer = self._parts.tokenizer
        if tokenizer is None:
            return None  # there are no token ids to check
        registered_size = self._config.group_size
        size = (rows["group_overrides"] or {}).get("group_size", registered_size)
        vocabulary = self._parts.inference.vocabulary
        check = partial(group_error, rows, rows=size, vocabulary=vocabulary)
        reason = await run_in_thread_if_large(
            check, tokens=sum(map(len, rows["tokens"]))
        )
        if reason is None and self._settings.serves and registered_size % size:
            reason = (
                f"{size} rows don't divide the registered group_size {registered_size}: the API "
                "would keep them and say nothing"
            )
        return reason

    async def _send(self, rows: Mapping[str, Any], item: Any) -> GroupOutcome:
        try:
            await self._parts.trainer.send(rows)
        except (ApiRefusedError, TypeError, ValueError) as error:
            return self._refuse(item, str(error))
        except UnreachableError as error:  # all that wait for the API get it at once
            run_id = self._state.run_id
            logger.error("A group is lost: %s", error, extra=throttled(run_id))
            return GroupOutcome.FAILED
        except LostStateError:  # the next status ends the run
            return GroupOutcome.FAILED
        return GroupOutcome.SENT

    # What goes wrong.

    def _refuse(self, item: Any, reason: str) -> GroupOutcome:
        """Log a group that is not sent."""
        self._last_refusal = reason
        logger.warning(
            "Not sent: a group of %s, %d refused so far: %s",
            task_of(item),
            self._counts["groups/refused"] + 1,
            reason,
            extra=throttled(self._state.run_id),
        )
        return GROUP_REFUSED.outcome

    def _count_refusal(self, item: Any) -> None:
        """Raise ConfigurationError after too many refused groups if none was delivered."""
        delivered = self._counts["groups/sent"] + self._counts["groups/written"]
        if not delivered:
            self._count_failure(item, GROUP_REFUSED, self._last_refusal)

    def _fail(
        self, group: Group, work: Work, failure: Failure, error: Exception | str
    ) -> bool:
        """Do what the table says of a failure; return that the item is not done.

        Raises:
            FixableError: the run ends.
        """
        group.end(failure.outcome)
        work.release()
        if failure.is_asked_again:
            self._items.ask_again(work.item)
        elif failure is REQUEST_REFUSED:
            self._items.give_up(work.item)
        self._count_failure(work.item, failure, error)
        return False

    def _count_failure(
        self, item: Any, failure: Failure, error: Exception | str
    ) -> None:
        """Log a failure; raise what ends the run, if the failure does."""
        if isinstance(error, ConfigurationError):
            raise error  # of a method that returns what can't be used
        ends_run = self._failures.ends_run(failure)
        in_a_row = self._failures[failure]
        if isinstance(error, InferenceError):
            self.backoff.record_failure(task_of(item), error)
            if ends_run:
                raise self._end_of_inference(failure, error) from error
            return
        if failure is WORKER_TIMEOUT:
            subject = throttled(self._state.run_id)
            logger.warning("A group of %s: %s", task_of(item), error, extra=subject)
            return
        if failure is GROUP_REFUSED:  # logged with its reason
            message = f"{in_a_row} groups were refused and none was delivered: {error}"
        else:
            message = self._log_method(failure, error, in_a_row)
        if ends_run:
            raise ConfigurationError(message)

    def _log_method(
        self, failure: Failure, error: Exception | str, in_a_row: int
    ) -> str:
        """Log a failure of the environment's methods; return the sentence that ends a run."""
        reason = str(error)
        if failure in (METHOD_RAISED, DELIVERY_RAISED):
            reason = f"{type(error).__name__}: {error}; the log has the traceback"
        elif failure is NOT_SCORED:
            reason = f"nothing was collected: no rollout has a score ({error})"
        elif failure is NOTHING_COLLECTED:
            reason = "nothing was collected: no group"
        traceback = error if failure in (METHOD_RAISED, DELIVERY_RAISED) else None
        # A server that has no item for a while is no failure of `serve`.
        level = (
            logging.ERROR if traceback or not self._settings.serves else logging.DEBUG
        )
        logger.log(
            level,
            "%s failed: its group is lost: %s",
            self._name,
            reason,
            exc_info=traceback if isinstance(traceback, Exception) else None,
            extra=throttled(self._name),
        )
        return f"{self._name} failed for {in_a_row} items in a row, {reason}"

    def _end_of_inference(
        self, failure: Failure, error: InferenceError
    ) -> InferenceError:
        fatal = InferenceError(
            f"{self.backoff.failures} groups in a row were lost; check the server at "
            f"{', '.join(self._parts.inference.urls)}: {error}"
        )
        if failure.may_pass:
            fatal.exit_status = TRY_AGAIN
        return fatal

    def _inference_is_back(self) -> None:
        self.backoff.record_success()
        self._failures.forget(SERVER_FAILED, REQUEST_REFUSED)

    def take_unreported(self, least: int) -> bool:
        """Return whether that many groups were accepted since this was last true."""
        is_due = self._unreported_groups >= least
        if is_due:
            self._unreported_groups = 0
        return is_due

    async def close(self) -> None:
        """Wait a few seconds for the groups in flight, then cancel them."""
        deliveries = list(self._deliveries)
        if deliveries:
            await asyncio.wait(deliveries, timeout=CLOSE_SECONDS)
        for delivery in deliveries:
            delivery.cancel()
        await asyncio.gather(*deliveries, return_exceptions=True)


def _is_undelivered(outcomes: Sequence[GroupOutcome]) -> bool:
    """Return whether all groups of an item were refused or not written."""
    return bool(outcomes) and set(outcomes) <= {
        GroupOutcome.REFUSED,
        GroupOutcome.FAILED,
    }
