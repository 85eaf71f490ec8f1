"""The verifier host: keeps the library warm and forks a single-use child for each job.

A child scores the answers of one group, or a single answer where the task's verifier executes
it, and dies. Whatever an answer does to its process, the next child is a fresh fork.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import os
import pickle
import select
import signal
import time
from collections.abc import Sequence
from typing import Any, BinaryIO, NoReturn

from ..records import Recipe
from ..tasks.datasets import Datasets
from ..tasks.facts import EXECUTES_ANSWERS, SLOW_ON_WRONG_ANSWERS
from . import limits, protocol
from .protocol import FORM_SCORES, Containment, FormScores, Outcome, VerifyRequest
from .verifier_child import Work, judge, score_together

_OUT_OF_MEMORY_EXIT = 77
_TIMEOUT_EXIT = 78
_TRIES = 3
"""For an answer whose child is killed from outside, as the system does when memory runs out."""
_WARM_UP_SEEDS = {"countdown": (3, 4), "intermediate_integration": range(5), "puzzle24": (2, 4)}
"""Where items take long to make: those that don't. Else the first eight."""


_FAILURES = {_OUT_OF_MEMORY_EXIT: Outcome.OUT_OF_MEMORY, _TIMEOUT_EXIT: Outcome.TIMEOUT}


class ParentGoneError(Exception):
    """The request pipe has closed."""


def _run_work(work: Work, reply: int) -> NoReturn:
    """Do a child's work in the fork; never returns."""
    code = 1
    try:
        work(reply)
        code = 0
    except MemoryError:
        code = _OUT_OF_MEMORY_EXIT
    finally:
        os._exit(code)


def _read_scores(
    reply: int, count: int, *, timeout: float, give_up: float, parent: int | None
) -> tuple[bytes, bool]:
    """Collect up to `count` records; True when the child ran out of time for the next one.

    Args:
        parent: descriptor that becomes readable when the parent has gone.

    Raises:
        ParentGoneError: it has.
    """
    poll = select.poll()
    poll.register(reply, select.POLLIN)
    if parent is not None:
        poll.register(parent, select.POLLIN)
    size = count * FORM_SCORES.size
    data = b""
    deadline = min(give_up, time.monotonic() + timeout)
    while len(data) < size:
        ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not ready:
            return data, True
        if any(descriptor == parent for descriptor, _ in ready):
            raise ParentGoneError
        chunk = os.read(reply, size - len(data))
        if not chunk:
            return data, False
        data += chunk
        if len(data) % FORM_SCORES.size == 0:
            deadline = min(give_up, time.monotonic() + timeout)
    return data, False


def _reap(pid: int) -> int:
    """Kill the child with all it started, and return its wait status."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def _failure(wait_status: int, *, timed_out: bool, sandboxed: bool) -> FormScores:
    """What the answer did that its child could not report on.

    Behind the filter no answer can send a signal or close its reply: a child that ends by SIGKILL
    was killed from outside. A signal to a process that is already ending changes nothing.
    """
    number = os.WTERMSIG(wait_status) if os.WIFSIGNALED(wait_status) else None
    if timed_out or number == signal.SIGXCPU:
        return FormScores(outcome=Outcome.TIMEOUT)
    if sandboxed and number == signal.SIGKILL:
        return FormScores(outcome=Outcome.KILLED)
    code = os.WEXITSTATUS(wait_status) if os.WIFEXITED(wait_status) else 1
    return FormScores(outcome=_FAILURES.get(code, Outcome.CRASHED))


def run_child(
    work: Work,
    count: int,
    *,
    timeout: float,
    give_up: float = math.inf,
    parent: int | None = None,
    can_kill: bool = True,
    sandboxed: bool = True,
) -> list[FormScores]:
    """Fork a child and collect its scores, up to and including the answer that brings it down.

    Where the calling process can't kill a child that is out of time, it ends itself, and the
    child with it.

    Args:
        count: how many scores the work gives.
        timeout: seconds for one of them.
        give_up: the monotonic time at which waiting ends for all.
        sandboxed: whether the child can kill nobody, so that a killed one was killed from outside.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run_work(work, write_end)
    os.close(write_end)
    try:
        data, timed_out = _read_scores(
            read_end, count, timeout=timeout, give_up=give_up, parent=parent
        )
        if timed_out and not can_kill:
            os._exit(_TIMEOUT_EXIT)
    finally:
        os.close(read_end)
        wait_status = _reap(pid)
    size = FORM_SCORES.size
    whole = len(data) // size
    scores = [FormScores.unpack(data[i * size : (i + 1) * size]) for i in range(whole)]
    if whole < count:
        scores.append(_failure(wait_status, timed_out=timed_out, sandboxed=sandboxed))
    return scores


def score_apart(dataset: Any, request: VerifyRequest, answers: Sequence[str]) -> Work:
    """Work of a child: score each answer in a child of its own.

    The one in between sees no effect of any answer. It scores the oracle first, and a wrong
    answer where none takes long: sympy's caches then hold what all answers to this entry need.
    They pass the screen and run under a filter like any other: the oracle was made from a recipe.
    """

    def work(reply: int) -> None:
        sandboxed = request.containment is not Containment.FORKS
        can_kill = limits.enter_parent_of_children(
            reply, memory=request.memory, sandboxed=sandboxed
        )
        entry = pickle.loads(request.entry)
        wrong = () if request.task in SLOW_ON_WRONG_ANSWERS else ("0",)
        for known in (entry["answer"], *wrong):
            judge(dataset.score_answer, request, known, entry)
        gc.freeze()
        for answer in answers:
            alone = score_together(dataset, request, [answer], memory=None)
            [scores] = run_child(
                alone, 1, timeout=request.timeout, can_kill=can_kill, sandboxed=sandboxed
            )
            os.write(reply, scores.pack())

    return work


def verify(datasets: Datasets, request: VerifyRequest, parent: int) -> list[FormScores]:
    """Score every answer; one that brings its child down costs the others nothing.

    Raises:
        ParentGoneError: `parent`, the request pipe, has closed.
    """
    try:
        dataset = datasets.get(request.task, request.parameters)
    except Exception:  # noqa: BLE001 - a dataset's constructor may raise anything: `errors` says so
        return [FormScores(outcome=Outcome.SCORED, errors=1)] * len(request.answers)
    give_up = time.monotonic() + request.group_timeout
    scores: list[FormScores] = []
    killed = 0
    while len(scores) < len(request.answers):
        left = request.answers[len(scores) :]
        if time.monotonic() >= give_up:
            return scores + [FormScores(outcome=Outcome.TIMEOUT)] * len(left)
        given = _score(dataset, request, left, give_up=give_up, parent=parent)
        sound = list(itertools.takewhile(lambda one: one.outcome is not Outcome.KILLED, given))
        scores += sound
        killed = 0 if sound else killed
        if len(sound) < len(given):
            killed += 1
            if killed == _TRIES:
                scores.append(FormScores(outcome=Outcome.KILLED))
                killed = 0
    return scores


def _score(
    dataset: Any, request: VerifyRequest, answers: Sequence[str], *, give_up: float, parent: int
) -> list[FormScores]:
    """Score answers in one child, up to and including the one that brings it down."""
    apart = request.task in EXECUTES_ANSWERS
    # The child in between also spends time on the known answers, and on its children's ends.
    timeout = 2 * request.timeout + 1 if apart else request.timeout
    work = (
        score_apart(dataset, request, answers)
        if apart
        else score_together(dataset, request, answers, memory=request.memory)
    )
    return run_child(
        work,
        len(answers),
        timeout=timeout,
        give_up=give_up,
        parent=parent,
        sandboxed=request.containment is not Containment.FORKS,
    )


def warm_up(datasets: Datasets) -> None:
    """Make the first, slow calls of every executing verifier before forks inherit the result.

    Right and wrong answers, and different integrands, take different ways through sympy.
    """
    for task in sorted(EXECUTES_ANSWERS):
        score = datasets.get(task, {}).score_answer
        for seed in _WARM_UP_SEEDS.get(task, range(8)):
            entry = datasets.entry(Recipe(task=task, seed=seed))
            for answer in (entry["answer"], "2*x + 3", "<answer>0</answer>"):
                score(answer, entry)


def run(requests: BinaryIO, replies: BinaryIO, datasets: Datasets) -> None:
    """Serve until the parent goes away, with datasets that are warm."""
    protocol.write_frame(replies, limits.enforcement_gaps().encode())
    while (frame := protocol.read_frame(requests)) is not None:
        request = pickle.loads(frame)
        try:
            scores = verify(datasets, request, requests.fileno())
        except ParentGoneError:
            return
        protocol.write_frame(replies, b"".join(score.pack() for score in scores))
