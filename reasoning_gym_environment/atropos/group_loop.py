"""The loop around one group of rollouts: drawn in time, collected, saved, delivered or retried.

Atropos's loop logs what a worker raises and takes the next item. So what ends a run is kept here,
and the environment raises it where Atropos listens.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from atroposlib.envs.base import EvalHandlingEnum

from ..errors import TRY_AGAIN, FixableError
from ..inference.client import InferenceClient
from ..inference.dialects import SamplingParams
from ..inference.errors import InferenceError
from ..problems.training import TrainingProblems
from ..records import Completion, GroupResult, Problem, recipe_key
from ..rollouts.accounting import GroupOutcome, Statistics
from ..rollouts.backoff import FailureBackoff
from ..scoring.grading import ScoringSettings
from ..storage.dumps import DumpWriter, dump_kind
from ..storage.rows import StoredGroup
from .config import ReasoningGymEnvConfig
from .delivery import Delivery
from .rows import completed, task_of, trained_tokens
from .subclass import FailureLimit, checked_score, collect_groups, why_nothing_delivered

DRAWING_SECONDS = 0.5
"""How long one round of Atropos's loop may draw items: it looks at the trainer in between."""

MAX_RETRIES = 3
"""How often a problem whose group is lost is requested again."""


class Environment(Protocol):
    """What the loop uses of the environment; a subclass may have its own of each method."""

    config: ReasoningGymEnvConfig
    tokenizer: Any
    inference: InferenceClient
    statistics: Statistics
    delivery: Delivery
    backlog: list[Any]
    workers: set[asyncio.Task[Any]]
    workers_added_list: list[int]
    eval_runner: asyncio.Task[None] | None
    last_completed_item: Any
    completion_lengths: list[int]
    max_num_workers: int
    status_dict: dict[str, Any]
    running_items: dict[str, dict[str, Any]]
    items_sent_this_step: int
    env_id: int

    @property
    def processing(self) -> bool: ...

    @property
    def serving(self) -> bool: ...

    @property
    def trainer_step(self) -> int | None: ...

    @property
    def length_limit(self) -> int: ...

    def started_problems(self) -> TrainingProblems: ...

    def identity(self) -> dict[str, Any]: ...

    async def get_next_item(self) -> Any: ...

    async def handle_env(self, item_uuid: str) -> Any: ...

    async def score(
        self, problem: Problem, completions: Sequence[Completion]
    ) -> GroupResult: ...

    async def handle_send_to_api(
        self, scored_data: Any, item: Any, do_send_to_api: bool
    ) -> None: ...

    async def add_rollouts_for_wandb(self, scored_data: Any, item: Any) -> None: ...


class GroupLoop:
    """Works on the items of an environment, and knows which are to be retried.

    Args:
        dumps: the writer of the kinds of groups that the configuration names.
        sampling: how completions are sampled.
        scoring: what scores depend on, for the stored rows.
        observers: called with each scored group.
        max_losses: groups in a row that may be lost, or items that may raise, before the run ends.

    Attributes:
        fatal: what ends the run, None while it goes on.
        backoff: the pauses while inference fails.
        drawing: the draw that a round of Atropos's loop has left to the next one, if any.
    """

    def __init__(
        self,
        env: Environment,
        dumps: DumpWriter,
        *,
        sampling: SamplingParams,
        scoring: ScoringSettings,
        observers: Sequence[Callable[[GroupResult], None]],
        max_losses: int,
    ) -> None:
        self.fatal: FixableError | None = None
        self.backoff = FailureBackoff()
        self.drawing: asyncio.Task[None] | None = None
        self._env = env
        self._statistics = env.statistics
        self._dumps = dumps
        self._sampling = sampling
        self._scoring = scoring
        self._observers = [self.backoff.group_finished, *observers]
        self._max_losses = max_losses
        self._failure_limit = FailureLimit(type(env).__name__, max_losses)
        self._retries: Counter[str] = Counter()
        self._saved_groups = 0
        # Saves whose workers were cancelled; the next worker on the problem takes one over.
        self._orphaned_saves: list[
            tuple[tuple[str, str], asyncio.Task[GroupResult]]
        ] = []

    def recorded_state(self) -> dict[str, Any]:
        """Return the changing fields of the run's record."""
        counts = self._statistics.counts
        return {
            "waiting": self._env.inference.failover.waiting,
            "failures": self.backoff.failures,
            "lost": counts["dumps/lost"],
            "deleted": counts["dumps/deleted_files"],
        }

    async def add_workers(self) -> None:
        """Start as many workers as the trainer has room for, for DRAWING_SECONDS at most.

        Atropos's own cancels workers when the queue fills, and their rollouts are thrown away.
        """
        env = self._env
        wanted = min(self._allowed_workers(), self._room())
        env.workers_added_list.append(wanted - len(env.workers))
        deadline = time.monotonic() + DRAWING_SECONDS
        while len(env.workers) < wanted and self.fatal is None:
            item = env.backlog.pop() if env.backlog else await self._draw(deadline)
            if item is None:
                break
            self._start_worker(item)

    def _allowed_workers(self) -> int:
        """Return the number of workers that the settings allow now."""
        env = self._env
        allowed = env.max_num_workers
        evaluates = env.eval_runner is not None and not env.eval_runner.done()
        if not evaluates or env.config.eval_handling is EvalHandlingEnum.NONE:
            return allowed
        if env.config.eval_handling is EvalHandlingEnum.STOP_TRAIN:
            return 0
        return int(allowed * env.config.eval_limit_ratio)

    def _room(self) -> int:
        """Return how many groups the trainer's queue takes, those of workers included."""
        env = self._env
        config = env.config
        rows = config.max_batches_offpolicy * config.batch_size
        room: int = rows // config.group_size - env.status_dict["queue_size"]
        # Its share is its own, if others overrun.
        if config.min_batch_allocation is not None:
            share = math.ceil(config.min_batch_allocation * rows / config.group_size)
            room = max(room, share - env.status_dict["self_queue_size"])
        return room

    def _start_worker(self, item: Any) -> None:
        env = self._env
        item_uuid = str(uuid.uuid4())
        worker = asyncio.create_task(env.handle_env(item_uuid))
        env.running_items[item_uuid] = {
            "item": item,
            "worker": worker,
            "start_time": time.time(),
        }
        env.workers.add(worker)

        def record_end(worker: asyncio.Task[Any]) -> None:
            env.workers.discard(worker)
            # `work_on` has logged an exception of the package; a subclass's `handle_env` may raise.
            if not worker.cancelled() and worker.result():
                env.last_completed_item = item

        worker.add_done_callback(record_end)

    async def _draw(self, deadline: float) -> Any:
        """Return the next item; None if there is none in time."""
        if time.monotonic() > deadline:
            return None
        if self.drawing is None:
            self.drawing = asyncio.create_task(self._draw_into_backlog())
        await asyncio.wait({self.drawing}, timeout=deadline - time.monotonic())
        if self.drawing.done():  # else the next round waits for it
            drawn = self.drawing
            self.drawing = None
            drawn.result()
        return self._env.backlog.pop() if self._env.backlog else None

    async def _draw_into_backlog(self) -> None:
        self._env.backlog.append(await self._env.get_next_item())

    async def work_on(self, item: Any, item_uuid: str = "", *, sends: bool) -> Any:
        """Collect and deliver an item's groups; return them, or None if none counts."""
        groups = None
        try:
            with self._statistics.working(lost_on=InferenceError) as work:
                try:
                    groups, backlog = await self._collect_all(item, item_uuid)
                    await self._env.handle_send_to_api(
                        groups, item, do_send_to_api=sends
                    )
                except asyncio.CancelledError:
                    if not work["delivered"] and not self._is_pending(item):
                        self._retry(item)
                    raise
        except InferenceError as error:
            self._handle_lost_group(item, error)
            return groups
        except Exception as error:  # noqa: BLE001 - logged, and it ends the run
            self._end_with(self._failure_limit.record_failure(error))
            return None
        self._end_with(self._env.delivery.fatal)
        if self._env.processing:
            reason = why_nothing_delivered(groups, backlog, work)
            if reason:
                self._end_with(self._failure_limit.record_failure(reason))
                return None
        self._failure_limit.record_success()
        if groups is not None:
            self.backoff.group_finished()  # a subclass's groups pass no observer
        return groups

    async def _collect_all(self, item: Any, item_uuid: str) -> tuple[Any, list[Any]]:
        if self._env.serving:
            await self.backoff.wait()
            # The pause is not the worker's time.
            if item_uuid in self._env.running_items:
                self._env.running_items[item_uuid]["start_time"] = time.time()
        groups, backlog = await collect_groups(self._env, item)
        self._env.backlog.extend(backlog)
        self._env.running_items.pop(item_uuid, None)
        return groups, backlog

    def _is_pending(self, item: Any) -> bool:
        """Return whether an item waits in the backlog or with another worker."""
        pending = [*self._env.backlog]
        pending += [entry["item"] for entry in self._env.running_items.values()]
        return any(item is one for one in pending)

    def _end_with(self, error: FixableError | None) -> None:
        self.fatal = self.fatal or error

    async def collect(self, problem: Problem) -> GroupResult | None:
        """Return a scored group of a problem, saved to disk; None if it is lost.

        If the worker is cancelled while its group is saved, the next one on the problem gets that
        group, so that it is neither lost nor stored twice.
        """
        key = (recipe_key(problem.recipe), problem.question)
        task = self._take_orphaned_save(key)
        if task is None:
            try:
                with self._statistics.generating(lost_on=InferenceError):
                    group = await self._generate(problem)
            except InferenceError as error:
                self._handle_lost_group(problem, error)
                return None
            task = asyncio.create_task(self._save(group))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._orphaned_saves.append((key, task))
            raise

    async def _generate(self, problem: Problem) -> GroupResult:
        """Return a scored group and tell all observers; raises InferenceError."""
        env = self._env
        completions = await env.inference.sample(
            problem.question,
            n=env.config.group_size,
            length_limit=env.length_limit,
            sampling=self._sampling,
        )
        scored = await env.score(problem, completions)
        group = checked_score(scored, completions, type(env).__name__)
        self._retries.pop(recipe_key(problem.recipe), None)
        env.started_problems().step = env.trainer_step
        for observe in self._observers:
            observe(group)
        return group

    async def _save(self, group: GroupResult) -> GroupResult:
        """Dump a group if its kind is dumped; it is on disk when this returns."""
        env = self._env
        with self._statistics.delivering():
            self._saved_groups += 1
            kind = dump_kind(
                group.rewards, threshold=env.config.rollout_save_score_threshold
            )
            if kind in env.config.dumped_kinds:
                identity = {
                    **env.identity(),
                    "step": env.trainer_step,
                    "number": self._saved_groups,
                }
                messages = env.inference.prompt(group.problem.question).messages
                row = StoredGroup.of_run(group, messages, identity, self._scoring)
                await self._dumps.write(kind, row.to_json())
        return group

    async def deliver(
        self,
        given: dict[str, Any],
        problem: Any,
        *,
        sends: bool,
        row_limit: int,
    ) -> GroupOutcome:
        """Check a group, write it and, if it `sends`, send it to the API; return its outcome.

        `row_limit` is as of `Delivery.check`.
        """
        env = self._env
        shows_text = env.tokenizer is not None and env.config.include_messages
        group = completed(given, env.tokenizer.decode if shows_text else None)
        outcome = await env.delivery.check(
            group,
            problem,
            rows=(group["group_overrides"] or {}).get(
                "group_size", env.config.group_size
            ),
            registered=env.config.group_size if sends else 0,
            row_limit=row_limit,
            drop_equal_scores=env.config.ensure_scores_are_not_same,
        )
        if outcome is not None:
            return outcome
        env.items_sent_this_step += env.serving
        env.completion_lengths += map(trained_tokens, group["masks"])
        await env.add_rollouts_for_wandb(group, problem)
        is_written = await env.delivery.write(group, must_end=not sends)
        if sends:
            return await env.delivery.send({**group, "env_id": env.env_id}, problem)
        return GroupOutcome.WRITTEN if is_written else GroupOutcome.FAILED

    def _take_orphaned_save(
        self, key: tuple[str, str]
    ) -> asyncio.Task[GroupResult] | None:
        for index, (saved_key, task) in enumerate(self._orphaned_saves):
            if saved_key == key:
                del self._orphaned_saves[index]
                return task
        return None

    def _handle_lost_group(self, problem: Any, error: InferenceError) -> None:
        """Retry the problem of a lost group, or give it up; after too many, so does the run."""
        if error.is_transient:
            self._retry(problem)
        else:
            self._statistics.counts["problems/given_up"] += 1
        self.backoff.record_failure(task_of(problem), error)
        processing = self._env.processing
        losses = self.backoff.failures if processing else self.backoff.permanent
        if losses >= self._max_losses and (processing or self._env.serving):
            fatal = InferenceError(
                f"{self.backoff.failures} groups in a row were lost; check the server at "
                f"{', '.join(self._env.inference.urls)}: {error}"
            )
            fatal.__cause__ = error
            if error.is_transient:  # the server may be back for the next process
                fatal.exit_status = TRY_AGAIN
            self._end_with(fatal)

    def _retry(self, problem: Any) -> None:
        """Put a problem behind the backlog, up to MAX_RETRIES times until it is scored."""
        # A subclass's own items have no key: they can't be told apart, so none is retried.
        key = recipe_key(problem.recipe) if isinstance(problem, Problem) else ""
        self._retries[key] += 1
        if key and self._retries[key] <= MAX_RETRIES:
            self._statistics.counts["problems/retried"] += 1
            self._env.backlog.insert(0, problem)  # Atropos takes the last one first
        else:
            self._statistics.counts["problems/given_up"] += 1
            del self._retries[key]

    async def end_saves(self) -> None:
        """Record the groups that nobody took over; the writers are closed already."""
        saves = [task for _, task in self._orphaned_saves]
        for task in saves:
            # A save that has failed was recorded as such; one that ended was never delivered.
            if not task.cancel() and not task.exception():
                self._statistics.record(GroupOutcome.CANCELLED)
        await asyncio.gather(*saves, return_exceptions=True)
