"""The verifier host: keeps the library warm and forks the children that see model text.

Answers that execute nothing go to one persistent worker. Each other answer has a single-use child
of a zygote: whatever an answer does to its process ends with that process. So has each answer to a
user's own task, of the host itself; a group shares one if the task is proved to keep no state.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import pickle
import select
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, BinaryIO

from ..records import Recipe
from ..tasks.datasets import Datasets
from ..tasks.facts import EXECUTES_ANSWERS, SHARES_DATA
from ..tasks.modules import ModuleTasks
from ..util.values import describe_origin
from . import _limits as limits
from . import _protocol as protocol
from ._children import (
    AnswerLimit,
    ParentGoneError,
    read_scores,
    reap,
    run_child,
    score_all,
    scores_of_ended,
    start_child,
    unpack_scores,
)
from ._protocol import EntryAnswers, FormScores, Outcome
from ._verifier_child import OWN_LIMITS, own_work, persistent_work, zygote_work
from ._work_clock import WorkClock, children_of

IMPORT_SECONDS = 10.0
"""What a module's verifiers may work or wait, all together, to show what they import."""

_MAX_GROUPS = 256
"""Groups that one persistent worker scores."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """A request that is being served.

    Attributes:
        dataset: what scores its answers.
        deadline: monotonic time at which waiting ends for all answers.
        parent: the request pipe, readable when the parent has gone.
    """

    dataset: Any
    request: EntryAnswers
    deadline: float
    parent: int

    def limit(self, clock: WorkClock, *, timeout: float | None = None) -> AnswerLimit:
        """Return the time of each answer in a child with such a clock."""
        return AnswerLimit(
            clock,
            timeout or self.request.timeout,
            patience=self.request.patience,
            group_deadline=self.deadline,
        )


class PersistentWorker:
    """The host's handle of a child that scores groups until it is replaced.

    Args:
        datasets: known to the worker. It can open no file: any later dataset is sent to it.
        request: the first request, which sets the worker's limits.
    """

    def __init__(self, datasets: Datasets, request: EntryAnswers) -> None:
        self._known = {id(dataset): dataset for dataset in datasets.cached()}
        self._groups = 0
        # Processor time for this group and others.
        self._seconds = 60 + _max_seconds(request)
        self._initial_size = limits.address_space()
        self._wait_status: int | None = None
        requests, self._requests = (end.detach() for end in socket.socketpair())
        work = partial(persistent_work, datasets, requests, seconds=self._seconds)
        self._pid, self._replies = start_child(work)
        os.close(requests)
        os.set_blocking(self._requests, False)

    def dataset_pickle(self, group: Group) -> bytes | None:
        """Return the group's dataset as the worker needs it: empty if it has it already.

        None if the worker has ended, is spent or can't be sent it: another must take the group.
        """
        request = group.request
        usable = (
            self._wait_status is None
            and self._groups < _MAX_GROUPS
            and _max_seconds(request) <= self._seconds
            and self._is_quiet()
        )
        if not usable:
            return None
        if id(group.dataset) in self._known:
            return b""
        if request.task in SHARES_DATA:
            return None
        try:
            pickled = pickle.dumps(group.dataset)
        except (pickle.PicklingError, AttributeError, TypeError):  # a lambda, a lock
            return None
        return pickled if len(pickled) <= 128 * 1024 else None  # else a fork is as fast

    def score(
        self, group: Group, answers: Sequence[str], *, dataset_pickle: bytes
    ) -> list[FormScores]:
        """Score answers until one ends the worker, that one included; raises ParentGoneError."""
        begin = time.monotonic()
        request = dataclasses.replace(group.request, answers=tuple(answers))
        limit = group.limit(WorkClock(lambda: (self._pid,)))
        count = len(answers)
        self._groups += 1
        self._known[id(group.dataset)] = group.dataset
        try:
            message = (id(group.dataset), dataset_pickle, request)
            data = b""
            why = self._send(message, limit, group.parent)
            if why is None:
                data, why = read_scores(
                    self._replies, count + 1, limit=limit, parent=group.parent
                )
        except BaseException:
            self.end()
            raise
        scores = unpack_scores(data)
        self._seconds -= time.monotonic() - begin
        if len(scores) <= count or not self._is_unharmed(scores):
            scores = scores_of_ended(data, count, self.end(), why)
        return scores[:count]

    def _send(self, message: Any, limit: AnswerLimit, parent: int) -> Outcome | None:
        """Write a message; return why the worker must end, if it is out of time before all is read.

        A worker that has ended gives no score. Raises ParentGoneError.
        """
        poll = select.poll()
        poll.register(self._requests, select.POLLOUT)
        poll.register(parent, select.POLLIN)
        frame = pickle.dumps(message)
        unsent = memoryview(protocol.LENGTH.pack(len(frame)) + frame)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while unsent:
                ready = dict(poll.poll(limit.wait() * 1000))
                if parent in ready:
                    raise ParentGoneError
                if self._requests in ready:
                    unsent = unsent[os.write(self._requests, unsent) :]
                elif why := limit.exceeded():
                    return why
        return None

    def _is_quiet(self) -> bool:
        """Return whether it lives and has written nothing beyond its replies."""
        poll = select.poll()
        poll.register(self._replies, select.POLLIN)
        return not poll.poll(0)

    def _is_unharmed(self, scores: Sequence[FormScores]) -> bool:
        """Return whether every answer went well, and no reply or memory is out of place."""
        return (
            {score.outcome for score in scores} <= {Outcome.SCORED, Outcome.REJECTED}
            and scores[-1].raw == self._groups
            and self._is_quiet()
            # Answers may take some memory away from those after them.
            and 0 < limits.address_space(self._pid) <= self._initial_size + 16 * 2**20
        )

    def end(self) -> int:
        """Kill it and return its wait status. May be called again."""
        if self._wait_status is None:
            os.close(self._requests)
            os.close(self._replies)
            self._wait_status = reap(self._pid)
        return self._wait_status


def _max_seconds(request: EntryAnswers) -> float:
    return request.timeout * len(request.answers)


class VerifierHost:
    """Scores requests one after the other in its children, with warm datasets."""

    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets
        self._worker: PersistentWorker | None = None

    def verify(self, request: EntryAnswers, parent: int) -> list[FormScores]:
        """Score every answer; one that ends its child costs the others nothing.

        Raises ParentGoneError, and MemoryError if the host's memory is used up.
        """
        try:
            dataset = self._datasets.get(request.task, request.parameters)
        except MemoryError:  # another host has more: see `run`
            raise
        except Exception as error:  # noqa: BLE001 - a dataset's constructor may raise anything: `errors` says so
            reason = f"{request.task} can't be built where it is verified: {describe_origin(error)}"
            failed = FormScores(outcome=Outcome.SCORED, errors=1, detail=reason)
            return [failed] * len(request.answers)
        deadline = time.monotonic() + request.group_timeout
        group = Group(
            dataset=dataset,
            request=request,
            deadline=deadline,
            parent=parent,
        )
        if request.is_own_task:
            return score_all(partial(_score_own, group), request.answers, deadline)
        in_worker = partial(self._score_in_persistent_worker, group)
        scores = score_all(in_worker, request.answers, deadline)
        deferred = [
            answer
            for answer, score in zip(request.answers, scores, strict=True)
            if score.deferred
        ]
        zygote_scores = iter(
            score_all(partial(_score_in_zygote, group), deferred, deadline)
        )
        return [next(zygote_scores) if score.deferred else score for score in scores]

    def _score_in_persistent_worker(
        self, group: Group, answers: Sequence[str]
    ) -> list[FormScores]:
        """Score answers up to and including the one that ends the worker."""
        worker = self._worker
        dataset_pickle = worker.dataset_pickle(group) if worker is not None else None
        if worker is None or dataset_pickle is None:
            if worker is not None:
                worker.end()
            worker = self._worker = PersistentWorker(self._datasets, group.request)
            dataset_pickle = b""
        return worker.score(group, answers, dataset_pickle=dataset_pickle)


def _score_in_zygote(group: Group, answers: Sequence[str]) -> list[FormScores]:
    """Score each answer in a single-use child, up to and including the one that ends the zygote."""
    return run_child(
        partial(zygote_work, group.dataset, group.request, answers),
        len(answers),
        # The zygote also spends time on the oracle and on the ends of its children.
        limit=lambda pid: group.limit(
            WorkClock(lambda: children_of(pid), is_new=True),
            timeout=2 * group.request.timeout + 1,
        ),
        parent=group.parent,
    )


def _score_own(group: Group, answers: Sequence[str]) -> list[FormScores]:
    """Score answers to a user's task, or the first of them if it has a child of its own."""
    answers = answers[:1] if group.request.single_use else answers
    return run_child(
        partial(own_work, group.dataset, group.request, answers),
        len(answers),
        limit=lambda pid: group.limit(WorkClock(lambda: (pid,), is_new=True)),
        parent=group.parent,
        crowded=lambda pid: limits.tasks_of(pid, alone=True) > limits.MAX_TASKS,
    )


def warm_up(datasets: Datasets) -> None:
    """Make the first, slow calls of every executing verifier before forks inherit the result.

    Right and wrong answers, and different integrands, take different paths through sympy.
    """
    quick = {
        "countdown": (3, 4),
        "intermediate_integration": range(5),
        "puzzle24": (2, 4),
    }
    for task in sorted(EXECUTES_ANSWERS):
        try:
            verify = datasets.get(task, {}).score_answer
        except Exception:  # noqa: BLE001 - a broken task may raise anything: `discover` reports it
            continue
        for seed in quick.get(task, range(8)):  # of tasks with slow items, quick ones
            entry = datasets.entry(Recipe(task=task, seed=seed))
            for answer in (entry["answer"], "2*x + 3", "<answer>0</answer>"):
                verify(answer, entry)


def import_for_verifiers(datasets: Datasets, tasks: Iterable[str]) -> None:
    """Import what the verifiers of a user's tasks import when they are called.

    Each answer has a fresh fork, which would import it again, in the answer's time. A contained
    child verifies an item of each task, and tells the modules' names. No text from outside is
    there.
    """
    pid, reply = start_child(partial(_verify_oracles, datasets, tasks))
    limit = AnswerLimit(WorkClock(lambda: (pid,), is_new=True), IMPORT_SECONDS)
    poll = select.poll()
    poll.register(reply, select.POLLIN)
    names = b""
    while True:
        if poll.poll(1000 * limit.wait()):
            chunk = os.read(reply, 65536)
            if not chunk:
                break
            names += chunk
        elif limit.exceeded():
            break
    os.close(reply)
    reap(pid)
    for name in names.decode(errors="replace").splitlines():
        with contextlib.suppress(Exception, SystemExit):  # its verifier has the error
            importlib.import_module(name)


def _verify_oracles(datasets: Datasets, tasks: Iterable[str], reply: int) -> None:
    """Write the name of each module that a verifier imports: the work of a child."""
    limits.enter_function_child(reply, **OWN_LIMITS, seconds=IMPORT_SECONDS)
    for task in tasks:
        with contextlib.suppress(Exception):  # it can't be built, or not here
            entry = datasets.entry(Recipe(task=task, seed=0))
            imported = set(sys.modules)
            datasets.get(task, {}).score_answer(entry["answer"], entry)
            names = [name for name in sys.modules if name not in imported]
            os.write(reply, "".join(f"{name}\n" for name in names).encode())


def run(
    requests: BinaryIO,
    replies: BinaryIO,
    datasets: Datasets,
    module: ModuleTasks | None = None,
) -> None:
    """Serve until the parent goes away or memory is used up; first report what is not enforced."""
    limits.enter_host()
    datasets.limit_memory(
        limits.address_space, limits.address_space() + limits.DATASET_MEMORY
    )
    missing_protections = (
        limits.missing_in_function(**OWN_LIMITS, seconds=1)
        if module
        else limits.missing_in_verifier()
    )
    protocol.write_frame(replies, missing_protections.encode())
    host = VerifierHost(datasets)
    while (frame := protocol.read_frame(requests)) is not None:
        try:
            scores = host.verify(pickle.loads(frame), requests.fileno())
        except ParentGoneError:
            return
        except MemoryError:
            protocol.write_frame(replies, protocol.OUT_OF_MEMORY)
            return
        protocol.write_frame(replies, b"".join(score.pack() for score in scores))
