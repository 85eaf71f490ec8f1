"""From a collected group to the trainer, and from a lost one back to the problems to ask."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Coroutine, Mapping
from typing import Any
from weakref import WeakSet

from atroposlib.envs.base import BaseEnv

from ..errors import FixableError
from ..inference.client import Inference
from ..inference.errors import InferenceError
from ..records import Problem
from ..rollouts.accounting import GroupOutcome
from ..rollouts.metrics import Statistics
from ..rollouts.retries import FailureBackoff, RetryBudget
from ..util.concurrency import LARGE, StallTolerantSemaphore, offload
from ..util.outages import Outage, UnreachableError
from .trainer_api import ApiRefusedError, LostStateError, TrainerApi, pack
from .validation import COLUMNS, fault, is_sound_row, trained_tokens

logger = logging.getLogger(__name__)

_LAST_SECONDS = 5.0
"""How long groups that are on their way at the end of a run have to arrive."""
_WRITTEN_AT_ONCE = 8
"""Long groups whose JSON is in memory: one takes 4 MB, and the API may be slow to take them."""
_UNUSED = ("ref_logprobs", "group_overrides", "distill_token_ids", "distill_logprobs")
"""What Atropos's groups have beside ours."""


class DeliveringEnv(BaseEnv):
    """Speaks with Atropos's API in the place of the base class, which takes a refusal for success.

    Attributes:
        statistics: what the run has counted so far.
        inference: the client of the inference servers; a subclass sets both.
        api: the client of Atropos's API.
        retry_budget: which problems may be retried.
        backoff: the groups that inference has lost in a row.
        process_patience: groups in a row that inference may lose before `process` gives up;
            `serve` gives up when so many are lost in a row whose failure can't heal.
    """

    statistics: Statistics
    inference: Inference
    process_patience = 5

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self.api = TrainerApi(config.rollout_server_url)
        self.retry_budget = RetryBudget()
        self.backoff = FailureBackoff()
        self._sending: set[asyncio.Task[None]] = set()
        self._senders: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._refusals = Outage()
        self._writing = asyncio.Lock()
        self._slots = StallTolerantSemaphore(_WRITTEN_AT_ONCE)
        self._vocabulary = len(self.tokenizer)
        self._ends_with: FixableError | None = None

    def end_serving(self, error: FixableError) -> None:
        """GroupOutcome `serve` with this error; Atropos's loop swallows what its workers raise."""
        self._ends_with = self._ends_with or error

    @property
    def processing(self) -> bool:
        """Whether Atropos's `process` runs, which knows no backlog."""
        return getattr(self, "process_mode", False)

    @property
    def serving(self) -> bool:
        """Whether the API knows this environment."""
        return hasattr(self, "env_id")

    async def _register_env(self) -> Any:
        """The API's reply; raises ApiRefusedError and UnreachableError."""
        return await self.api.post(
            "/register-env",
            {
                "max_token_length": self.config.max_token_length,
                "desired_name": self.config.wandb_name,
                "weight": self.config.inference_weight,
                "min_batch_allocation": self.config.min_batch_allocation,
                "group_size": self.config.group_size,
            },
        )

    async def register_env(self) -> None:
        await super().register_env()
        await self.api.leave_mark()

    async def get_status(self) -> None:
        """Ask where the trainer is.

        Raises:
            LostStateError: the API isn't the one that this environment registered at.
            ApiRefusedError, UnreachableError: it refuses, or has not answered for a minute.
            FixableError: what `end_serving` was given.
        """
        if self._ends_with is not None:
            raise self._ends_with
        self.status_dict = await self.api.get("/status-env", {"env_id": self.env_id})
        step = self.status_dict["current_step"]
        if step < self.curr_step:
            raise self.api.loses(f"it went back from step {self.curr_step} to step {step}")
        self.max_num_workers = self.config.max_num_workers
        if self.max_num_workers == -1:
            servers = len(self.server.servers)
            self.max_num_workers = self.config.max_num_workers_per_node * servers
        await self.server.update_weight(self.status_dict["env_weight"])

    async def handle_env(self, item_uuid: str) -> Any:
        """Work on one group; the problem goes back where its worker ran out of time."""
        problem = self.running_items[item_uuid]["item"]
        try:
            return await super().handle_env(item_uuid)
        except asyncio.CancelledError:
            kept = [*self.backlog, *(entry["item"] for entry in self.running_items.values())]
            sends = asyncio.current_task() in self._senders
            if not sends and not any(problem is one for one in kept):
                self.ask_again(problem)
            raise

    def ask_again(self, problem: Problem) -> None:
        """Put a problem whose group was lost where the next one is taken from, or give it up."""
        if self.retry_budget.may_retry(problem.recipe):
            self.statistics.counts["problems/retried"] += 1
            self.backlog.append(problem)
        else:
            self.statistics.counts["problems/given_up"] += 1

    def note_loss(self, problem: Problem, error: InferenceError) -> None:
        """Say that inference lost a group; raises InferenceError where `process` gives up."""
        if error.heals:
            self.ask_again(problem)
        else:
            self.statistics.counts["problems/given_up"] += 1
        losses = self.backoff
        losses.record_failure(problem.recipe.task, error)
        at = ", ".join(self.inference.urls)
        gives_up = InferenceError(
            f"{losses.failures} groups in a row were lost; check the server at {at}: {error}"
        )
        if self.processing and losses.failures >= self.process_patience:
            raise gives_up from error
        if self.serving and losses.permanent >= self.process_patience:
            self.end_serving(gives_up)

    async def handle_send_to_api(
        self,
        scored_data: Any,
        item: Problem | None = None,
        do_send_to_api: bool = True,
        abort_on_any_max_length_exceeded: bool = True,
    ) -> None:
        """Give a group to the trainer, or in `process` to the file alone; it is in the books then.

        A worker that is cancelled meanwhile ends, and its group arrives all the same.

        Args:
            do_send_to_api, abort_on_any_max_length_exceeded: no in `process`.
        """
        delivery = self._deliver(
            scored_data,
            item,
            send=do_send_to_api,
            limited=abort_on_any_max_length_exceeded,
        )
        sending = asyncio.create_task(self._settle(delivery))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        if worker := asyncio.current_task():
            self._senders.add(worker)
        await asyncio.shield(sending)  # the API may have the group before its worker is cancelled

    async def _settle(self, delivery: Coroutine[Any, Any, GroupOutcome]) -> None:
        books = self.statistics.accounting
        with books.delivering():
            books.record(await delivery)

    async def end_sending(self) -> None:
        """Wait for the groups on their way for seconds; then they are cancelled."""
        sending = list(self._sending)
        if sending:
            await asyncio.wait(sending, timeout=_LAST_SECONDS)
        for one in sending:
            one.cancel()
        for error in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(error, Exception):
                logger.error("A group is lost: %r", error)

    async def _deliver(
        self, group: dict[str, Any], problem: Problem | None, *, send: bool, limited: bool
    ) -> GroupOutcome:
        rows, tokens = self.config.group_size, sum(map(len, group["tokens"]))
        find = functools.partial(
            fault, group, rows=rows, vocabulary=self._vocabulary, is_sound_row=is_sound_row
        )
        if said := await offload(find, tokens=tokens):
            return self._refuse(problem, said)
        if self._filters(group, limited=limited):
            return GroupOutcome.FILTERED
        for name in _UNUSED:
            group.setdefault(name, None)
        self.completion_lengths += map(trained_tokens, group["masks"])
        await self.add_rollouts_for_wandb(group, problem)
        if self.jsonl_writer is not None:
            async with self._writing:
                written = await offload(functools.partial(self._write, group), tokens=tokens)
            if not written and not send:
                return GroupOutcome.FAILED
        return await self._send(group, problem, tokens=tokens) if send else GroupOutcome.WRITTEN

    def _filters(self, group: Mapping[str, Any], *, limited: bool) -> bool:
        """Whether nothing could be learned from the group, or the trainer has no room for a row."""
        if self.config.ensure_scores_are_not_same and len(set(group["scores"])) == 1:
            return True
        longest = max(map(len, group["tokens"]))
        if limited and 0 < self.max_token_len <= longest:
            logger.warning("A row of %d tokens reaches max_token_len: not sent", longest)
            return True
        return False

    def _write(self, group: dict[str, Any]) -> bool:
        """Write to Atropos's own file; a failure costs the row there and no training."""
        try:
            lists = {name: [list(row) for row in group[name]] for name in COLUMNS if group[name]}
            self.jsonl_writer.write({**group, **lists})
            return True
        except OSError as error:
            self.statistics.counts["groups/not_written"] += 1
            logger.error("A group is missing in data_path_to_save_groups: %s", error)
            return False

    async def _send(
        self, group: dict[str, Any], problem: Problem | None, *, tokens: int
    ) -> GroupOutcome:
        self.items_sent_this_step += 1
        try:
            write = functools.partial(pack, {**group, "env_id": self.env_id})
            async with self._slots.slot() if tokens >= LARGE else contextlib.nullcontext():
                body = await offload(write, tokens=tokens)
                reply = await self.api.request("POST", "/scored_data", body, groups=1)
        except (ApiRefusedError, TypeError, ValueError) as error:
            return self._refuse(problem, str(error))
        except UnreachableError as error:
            logger.error("A group is lost: %s", error)
            return GroupOutcome.FAILED
        except LostStateError as error:
            self.end_serving(error)
            return GroupOutcome.FAILED
        if reply.get("status") == "buffered":  # whole groups are not, but under another's id
            self.end_serving(self.api.loses("it has our id for another environment"))
            return GroupOutcome.FAILED
        return GroupOutcome.SENT

    def _refuse(self, problem: Problem | None, why: str) -> GroupOutcome:
        if self._refusals.failed():
            task = problem.recipe.task if problem else "an unknown task"
            refused = self._refusals.lost
            logger.warning("Not sent: a group of %s, %d refused so far: %s", task, refused, why)
        return GroupOutcome.REFUSED
