"""A run: its start, its loop, its checkpoints and its end.

`groups.py` has the life of each group, `items.py` what is asked next, `state.py` what the API said.
"""

from __future__ import annotations

import asyncio
import logging
import math
import shlex
import time
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from atroposlib.envs.base import EvalHandlingEnum

from ..errors import ConfigurationError, FixableError
from ..records import Problem
from ..rollouts.figures import flat_values
from ..storage.checkpoints import STREAM, Checkpoints
from . import output
from .config import ReasoningGymEnvConfig
from .evaluation_schedule import EvaluationSchedule
from .groups import Groups, Work
from .hooks import Hooks, Patience
from .items import Items
from .parts import Parts
from .start import start_parts
from .state import RunState
from .trainer_api import Registration

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.1
"""Between two looks at the trainer's status, as in Atropos's loop."""

DRAWING_SECONDS = 0.5
"""How long one round of the loop may draw items: it looks at the trainer in between."""

ROLLOUTS_OF_A_REPORT = 1024
"""In `process`, where no batch size is set."""


class Run:
    """Works on items, and follows the trainer.

    Args:
        name: of the environment's class, for messages.

    Attributes:
        state: what the API said, and the step.
        items: which item is next.
        groups: the life of a group.
        last_item: the last one that was done.
        evaluation_task: the evaluation that runs or ran last while serving.
    """

    def __init__(
        self, parts: Parts, hooks: Hooks, patience: Patience, *, run_id: str, name: str
    ) -> None:
        self.parts = parts
        self.state = RunState(parts.settings.env, run_id)
        self.items = Items(hooks.next_item, parts.statistics.counts)
        self.groups = Groups(
            parts,
            hooks,
            self.state,
            self.items,
            max_losses=patience.max_losses,
            name=name,
        )
        self.last_item: Any = None
        self.evaluation_task: asyncio.Task[None] | None = None
        self._config: ReasoningGymEnvConfig = parts.settings.env
        self._hooks = hooks
        self._patience = patience
        self._workers: dict[asyncio.Task[None], Work] = {}
        self._interrupted: set[asyncio.Task[None]] = set()
        self._checkpoints: Checkpoints | None = None
        self._schedule: EvaluationSchedule | None = None
        self._is_set_up = False
        self._closing: asyncio.Task[None] | None = None

    @property
    def workers(self) -> set[asyncio.Task[None]]:
        """The tasks of the items at work."""
        return set(self._workers)

    @property
    def items_at_work(self) -> list[Any]:
        """The items whose groups have not come yet."""
        return [work.item for work in self._workers.values() if work.holds_item]

    # The start.

    async def set_up(self) -> None:
        """Start the worker processes, check the servers, plan the evaluation set. Idempotent.

        Raises:
            UnreachableError: no inference server answers or, in `serve`, the Atropos API does not.
            ConfigurationError: a server rejects requests or lacks what the configuration requires.
        """
        if self._is_set_up:
            return
        await start_parts(
            self.parts,
            self._patience,
            run_id=self.state.run_id,
            length_limit=self.state.length_limit,
        )
        trains = self.parts.settings.command != "evaluate"
        if trains and self._config.dumped_kinds:
            self._start_record()
        self._is_set_up = True

    def _start_record(self) -> None:
        parts = self.parts
        description = output.run_description(
            self._config,
            parts.settings.command or "serve",
            parts.inference,
            tasks=sorted(parts.problems.selection.categories),
            versions=parts.versions,
        )
        parts.record.start(description, self._recorded_state, self.waits_for)

    def _recorded_state(self) -> dict[str, Any]:
        """Return the changing fields of the run's record."""
        counts = self.parts.statistics.counts
        backends = self.parts.inference.failover.backends
        return {
            "step": self.state.step,
            "total_steps": self.state.total_steps,
            "outcomes": self.parts.statistics.outcomes(),
            "servers": [backend.state() for backend in backends],
            "waiting": self.parts.inference.failover.waiting,
            "failures": self.groups.backoff.failures,
            "lost": counts["dumps/lost"],
            "deleted": counts["dumps/deleted_files"],
        }

    def waits_for(self) -> str:
        """Return what the run waits for, in the same words while it lasts; empty while it works."""
        parts = self.parts
        client = parts.trainer.client
        if parts.settings.serves and self.state.registration is None:
            return f"a trainer at {client.url}"
        if client.is_failing:
            return f"the Atropos API at {client.url}"
        servers = parts.inference.failover.unavailable
        if self.groups.backoff.pause:
            servers = parts.inference.urls
        if servers:
            return f"inference at {', '.join(servers)}"
        if self.state.status and not self._workers:
            if not self._allowed_workers():
                return "an evaluation"
            if self._room() <= 0:
                return f"the trainer at {client.url} to take a batch"
        return ""

    async def register(self) -> None:
        """Register at the API, under the configured replica's name, and begin at its step.

        Raises:
            LostStateError: the API was restarted in between.
            FixableError: another process has the replica's name, or as `begin`.
        """
        config = self._config
        trainer = self.parts.trainer
        folder = await trainer.trainer_folder()
        claimed_name = ""
        if config.replica:
            # A restart under this name continues here, and disconnects the killed process.
            claimed_name = f"{config.wandb_name}_{config.replica}"
            self._checkpoints = self._checkpoints_of(folder, claimed_name)
            note = await self._checkpoints.claim()
            await trainer.disconnect_killed(note, keep=self._checkpoints.leave_note)
        registration = await trainer.register(
            desired_name=str(config.wandb_name),
            max_token_length=config.max_token_length,
            checkpoint_dir=folder,
            claimed_name=claimed_name,
        )
        env_id = registration.env_id
        is_noted = self._checkpoints is not None and self._checkpoints.leave_note(
            trainer.note(env_id)
        )
        if not is_noted:
            trainer.warn_of_killed(env_id)
        await self.begin(registration)

    async def begin(self, registration: Registration) -> None:
        """Begin at the trainer's step, or continue the checkpoint of that step.

        Raises:
            ConfigurationError: the trainer's limits and the settings contradict each other.
            FixableError: no checkpoint can be written, or the step's can't be continued.
        """
        self.state.begin(registration)  # from here on, closing tells the API
        if self._checkpoints is None:
            self._checkpoints = self._checkpoints_of(
                registration.checkpoint_dir, registration.name
            )
        self.state.require_fitting_limits()
        limit = self.state.token_limit
        self.parts.problems.allow_tokens(self.state.length_limit, limit)
        self.parts.start_stream(registration.name)
        self._schedule = EvaluationSchedule(
            self._config.steps_per_eval, self._evaluation_lock(registration)
        )
        if registration.checkpoint_interval > 0:
            await self._begin_checkpoints(self._checkpoints, registration)
        logger.info(
            "Registered as %s, environment %d, at step %d",
            registration.name,
            registration.env_id,
            registration.starting_step,
        )
        self.parts.record.note_event(f"registered at step {registration.starting_step}")
        if registration.starting_step > 0:
            self.state.tell_inherited(self.parts.trainer.client.url)
            self._hooks.load_checkpoint()

    def _checkpoints_of(self, folder: str, name: str) -> Checkpoints:
        return Checkpoints(
            Path(folder, "env_checkpoints", name),
            self.parts.statistics.counts,
            self.parts.pool.versions,
        )

    async def _begin_checkpoints(
        self, checkpoints: Checkpoints, registration: Registration
    ) -> None:
        checkpoints.require_writable()
        if not self._config.replica:  # else the name is claimed already
            await checkpoints.claim()
        if registration.starting_step == 0:
            self._hooks.save_checkpoint(0)

    def _evaluation_lock(self, registration: Registration) -> Path:
        """Return the file that elects the replica which evaluates."""
        key = self.parts.evaluation.key(
            length_limit=self.state.length_limit, versions=self.parts.versions
        )
        folder = Path(registration.checkpoint_dir, "env_checkpoints")
        return folder / f"{self._config.wandb_name}.evaluation-{key}"

    # The loop of `serve`.

    async def serve(self) -> None:
        """Feed the trainer until training ends; raises FixableError if that is not possible."""
        parts = self.parts
        async with parts.progress.logging_every(self.parts.log_pauses):
            if self._config.use_wandb:
                about = await parts.trainer.wandb_run()
                output.start_wandb(
                    self._config,
                    self.state.run_id,
                    group=about.get("group"),
                    project=about["project"],
                )
            await self.register()
            parts.problems.fill()
            await self._loop()
            await self._end_training()

    async def _loop(self) -> None:
        """Follow the trainer, and keep as many workers as it has room for, until it ends."""
        timings = self.parts.metrics.timings
        round_began = time.monotonic()
        while True:
            self._end_workers()
            await self.follow_trainer()
            if self.state.is_over():
                return
            await self._start_workers()
            await asyncio.sleep(POLL_SECONDS)
            now = time.monotonic()
            timings.add("mainloop_timings", now - round_began)
            round_began = now

    async def _end_training(self) -> None:
        # The inference server may have ended with the training.
        self.parts.inference.give_up_after(self._patience.failing_seconds)
        for worker in self._workers:
            worker.cancel()
        logger.info(
            "Training ends at step %d of %d", self.state.step, self.state.total_steps
        )
        if self.evaluation_task is not None and not self.evaluation_task.done():
            logger.info("Waiting for the final evaluation")
            await asyncio.gather(self.evaluation_task, return_exceptions=True)
        await self._hooks.log()

    async def follow_trainer(self) -> None:
        """Ask for the trainer's status, and do what is due; raises FixableError."""
        registration = self.state.registration
        assert registration is not None, "`register` comes first"
        trainer = self.parts.trainer
        batch_size = self.state.batch_size
        status = await trainer.status(registration.env_id, batch_size=batch_size)
        step = status["current_step"]
        if step < self.state.step:
            raise trainer.client.mark_lost(
                f"it went back from step {self.state.step} to step {step}"
            )
        await self.take_status(status)

    async def take_status(self, status: dict[str, Any]) -> None:
        """Take the trainer's step and the environment's weight, and do what is due at the step.

        An evaluation begins, a checkpoint is saved, the metrics are logged.

        Args:
            status: a reply of `/status-env`.
        """
        before = self.state.step
        self.state.take_status(status)
        step = self.state.step
        await self.parts.servers.update_weight(status["env_weight"])
        self._start_due_evaluation()
        if step == before:
            return
        every = self.state.checkpoint_interval
        if every > 0 and step // every > before // every:
            self._hooks.save_checkpoint(step // every * every)
        if self.groups.take_unreported(self._config.min_items_sent_before_logging):
            await self._hooks.log()

    def _start_due_evaluation(self) -> None:
        assert self._schedule is not None, "`begin` comes first"
        evaluation = self._schedule.start_if_due(
            self.state.step, self.evaluation_task, self._evaluate_due
        )
        if evaluation is None:
            return
        self.evaluation_task = evaluation
        if self._config.eval_handling is EvalHandlingEnum.STOP_TRAIN:
            self._interrupt_workers()

    async def _evaluate_due(self) -> None:
        """Evaluate as the class does; a failure is logged, since nothing awaits the evaluation."""
        with self.parts.record.note_while(f"evaluation at step {self.state.step}"):
            try:
                await self._hooks.evaluate()
            except Exception as error:
                self.parts.statistics.counts["evaluation/failures"] += 1
                is_bug = not isinstance(error, FixableError)
                logger.error("The evaluation failed: %s", error, exc_info=is_bug)
                raise

    def _interrupt_workers(self) -> None:
        """Let training wait for an evaluation: what has not been scored is asked again."""
        for worker, work in list(self._workers.items()):
            if work.holds_item and not self.groups.is_saving(work.item):
                del self._workers[worker]
                self.items.add([work.item])
                work.interrupt(worker)
                self._interrupted.add(worker)
                worker.add_done_callback(self._interrupted.discard)

    def _end_workers(self) -> None:
        """Forget the workers that are done; raise what one of them ended the run with."""
        for worker in [worker for worker in self._workers if worker.done()]:
            del self._workers[worker]
            if not worker.cancelled():
                worker.result()

    async def _start_workers(self) -> None:
        """Start as many workers as there is room for, for DRAWING_SECONDS at most."""
        wanted = min(self._allowed_workers(), self._room())
        missing = wanted - len(self._workers)
        self.parts.metrics.timings.add("workers_added_per_attempt", missing)
        deadline = time.monotonic() + DRAWING_SECONDS
        while len(self._workers) < wanted:
            item = await self.items.next_before(deadline)
            if item is None:
                return
            work = Work(item)
            self._workers[asyncio.create_task(self._work(work))] = work

    def _allowed_workers(self) -> int:
        """Return the number of workers that the settings allow now."""
        most = self.parts.max_workers
        evaluates = self.evaluation_task is not None and not self.evaluation_task.done()
        handling = self._config.eval_handling
        if not evaluates or handling is EvalHandlingEnum.NONE:
            return most
        if handling is EvalHandlingEnum.STOP_TRAIN:
            return 0
        return int(most * self._config.eval_limit_ratio)

    def _room(self) -> int:
        """Return how many groups the trainer's queue takes, those of workers included.

        As Atropos's `add_train_workers`: what `max_batches_offpolicy` allows, less what waits. An
        environment with a `min_batch_allocation` fills its own share even if others overrun theirs.
        """
        config = self._config
        rows = config.max_batches_offpolicy * self.state.batch_size
        room: int = rows // config.group_size - self.state.status["queue_size"]
        if config.min_batch_allocation is not None:
            share = math.ceil(config.min_batch_allocation * rows / config.group_size)
            room = max(room, share - self.state.status["self_queue_size"])
        return room

    async def _work(self, work: Work) -> None:
        """Work on an item as a task of the loop, and time it; raise what ends the run."""
        await self.groups.backoff.wait()
        began = time.monotonic()
        is_done = await self.groups.work_on(work.item, work)
        seconds = time.monotonic() - began
        timings = self.parts.metrics.timings
        timings.add("task_duration", seconds)
        kind = "succeeded_task_duration" if is_done else "failed_task_duration"
        timings.add(kind, seconds)
        if is_done:
            self.last_item = work.item

    # The loop of `process`.

    async def process(self, groups: int) -> None:
        """Collect groups into files; fewer if there are no more items."""
        state = self.state
        progress = self.parts.progress
        async with progress.logging_every(self.parts.log_pauses):
            if self._config.use_wandb:
                output.start_wandb(self._config, state.run_id)
            groups_per_report = self._groups_per_report()
            while state.step < groups:
                item = await self.items.next()
                if item is None:
                    logger.info("get_next_item returned None: no more items to process")
                    break
                if await self.groups.work_on(item):
                    state.count_step()
                    if state.step % groups_per_report == 0:
                        await self._hooks.log()
                await asyncio.sleep(0)  # a subclass may never wait for anything
            if state.step % groups_per_report:
                await self._hooks.log()

    def _groups_per_report(self) -> int:
        """Return after how many groups `process` reports: those of a training batch."""
        config = self._config
        rollouts = config.batch_size if config.batch_size > 0 else ROLLOUTS_OF_A_REPORT
        groups: int = rollouts // config.group_size
        return max(1, groups)

    async def next_problem(self) -> Problem:
        """Return the next problem; raises ConfigurationError if no prompt leaves room."""
        parts = self.parts
        parts.start_stream(self.state.replica)

        async def has_room(problem: Problem) -> bool:
            limit = self.state.length_limit
            return await parts.inference.has_room(problem.question, limit)

        return await parts.problems.next(has_room)

    # Evaluation and reports.

    async def evaluate(self) -> None:
        """Run the evaluation set and write its results."""
        parts = self.parts
        if self.state.registration is not None:
            parts.inference.retry_evaluation_for(self._patience.outage_seconds)
        await parts.evaluation.run(
            step=self.state.trainer_step,
            length_limit=self.state.length_limit,
            identity=self.state.identity(parts.versions),
        )

    def take_report(self, curriculum: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metrics since the last call, and the last evaluation's.

        Args:
            curriculum: the curriculum's state.
        """
        categories = self.parts.problems.selection.categories
        return {
            **self.parts.metrics.take_report(curriculum, categories),
            **flat_values(self.parts.progress.figures()),
            **self.parts.evaluation.take_curves(),
        }

    # Checkpoints.

    def save_checkpoint(self, step: int, data: Mapping[str, Any]) -> None:
        """Write the stream's state and `data` in the background; failures are only logged."""
        checkpoints = self._require_checkpoints()
        unfinished = [
            item
            for item in (*self.items_at_work, *self.items.backlog)
            if isinstance(item, Problem)
        ]
        stream_state = self.parts.problems.state_dict(unfinished)
        checkpoints.submit(step, {**data, STREAM: stream_state})

    def load_checkpoint(self) -> Mapping[str, Any]:
        """Continue the newest checkpoint up to the trainer's step; return the `data` saved in it.

        Raises:
            FixableError: the checkpoint can't be continued.
        """
        checkpoints = self._require_checkpoints()
        step = self.state.step
        path = checkpoints.newest(step)
        if path is None:
            logger.warning(
                "No checkpoint for step %s of %s below %r: starting the training stream from the "
                "beginning",
                step,
                self.state.replica,
                str(checkpoints.folder.parent.parent),
            )
            return {}
        accept_changed = self._config.accept_changed_modules
        try:
            content = checkpoints.read(path, accept_changed=accept_changed)
            self.parts.problems.load_state_dict(content.pop(STREAM))
        except ValueError as error:
            raise FixableError(
                f"the checkpoint {path} can't be continued: {error}; delete it to continue the one "
                "before it or, without one, to restart the training stream"
            ) from error
        logger.info("Continued %s at the trainer's step %d", path, step)
        self.parts.record.note_event(f"continued {path.name} at step {step}")
        return content

    def _require_checkpoints(self) -> Checkpoints:
        if self._checkpoints is None:
            raise ConfigurationError(
                "there are no checkpoints without a trainer, whose folder holds them: they are "
                "saved and loaded in `serve`"
            )
        return self._checkpoints

    # The end.

    async def close(self, others: Iterable[asyncio.Task[Any]] = ()) -> None:
        """Stop the workers, then close every part, even if another fails to.

        It goes on if its caller is cancelled. A second call waits for its end.

        Args:
            others: tasks of a subclass, which end with the workers.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close([*others]))
            await asyncio.shield(self._closing)
        elif not self._closing.done():
            await asyncio.wait({self._closing})

    async def _close(self, others: list[asyncio.Task[Any]]) -> None:
        parts = self.parts
        registration = self.state.registration
        async with AsyncExitStack() as last_first:
            last_first.callback(self._report)
            if registration is not None:
                last_first.push_async_callback(
                    parts.trainer.disconnect, registration.env_id
                )
            if self._schedule is not None:
                last_first.callback(self._schedule.close)
            last_first.push_async_callback(parts.inference.close)
            last_first.push_async_callback(self._close_files)
            last_first.callback(parts.record.close, self._ending())
            last_first.push_async_callback(parts.pool.close)
            last_first.callback(parts.problems.close)
            last_first.push_async_callback(self.groups.close)
            running = [*self._workers, *self._interrupted, *others]
            running += [
                task for task in (self.evaluation_task, self.items.drawing) if task
            ]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _ending(self) -> str:
        """Return at which step the run ends."""
        step = self.state.step
        total = self.state.total_steps
        return f"at step {step} of {total}" if total >= 0 else f"at step {step}"

    async def _close_files(self) -> None:
        """Close the writers, which wait 10 s each for a disk that hangs."""
        disks = [self.parts.dumps.close]
        if self.parts.groups_file is not None:
            disks.append(self.parts.groups_file.close)
        if self._checkpoints is not None:
            disks.append(self._checkpoints.close)
        await asyncio.gather(*map(asyncio.to_thread, disks))

    def _report(self) -> None:
        """Report the outcome of all groups in the log and in wandb."""
        parts = self.parts
        is_registered = self.state.registration is not None
        if is_registered and parts.dumps.written:
            folder = shlex.quote(self._config.data_dumps_dir)
            logger.info(
                "To see the rollouts: reasoning-gym-environment report %s", folder
            )
        output.report_run(
            parts.statistics,
            serving=is_registered,
            has_all_groups=is_registered or parts.settings.command == "process",
        )
        if is_registered:
            parts.metrics.summarize()

    def describe_output(self, *, has_failed: bool) -> None:
        """Print which files hold the groups, after `close`; a failure without any says enough."""
        collected = self.parts.statistics.counts["groups/collected"]
        if has_failed and not collected:
            return
        groups_file = self.parts.groups_file
        output.describe_output(
            self._config,
            self.state.run_id,
            groups_path=groups_file.path if groups_file else None,
            collected=collected,
        )
