"""Children of a verifier host: forked, heard under a deadline for each answer, and ended."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from collections.abc import Callable
from typing import NoReturn

from .protocol import FORM_SCORES, FormScores, Outcome

_OUT_OF_MEMORY_EXIT = 77
_TIMEOUT_EXIT = 78
_FAILURES = {_OUT_OF_MEMORY_EXIT: Outcome.OUT_OF_MEMORY, _TIMEOUT_EXIT: Outcome.TIMEOUT}

Work = Callable[[int], None]
"""What a child does, given the descriptor to write its scores to."""


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


def start(work: Work) -> tuple[int, int]:
    """Fork a child; gives its process id and the descriptor that its scores are read from."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run_work(work, write_end)
    os.close(write_end)
    return pid, read_end


def read_scores(
    reply: int, count: int, *, timeout: float, give_up: float = math.inf, parent: int | None = None
) -> tuple[bytes, bool]:
    """Collect up to `count` records; True when the child ran out of time for the next one.

    Args:
        timeout: seconds for one of them.
        give_up: the monotonic time at which waiting ends for all.
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


def scores_of(
    data: bytes, count: int, wait_status: int, *, timed_out: bool, sandboxed: bool
) -> list[FormScores]:
    """Read what an ended child said, up to and including the answer that brought it down."""
    scores = unpack_scores(data)
    unreadable = bool(scores) and scores[-1].outcome is Outcome.CRASHED
    if len(scores) < count and not unreadable:
        scores.append(failure(wait_status, timed_out=timed_out, sandboxed=sandboxed))
    return scores


def unpack_scores(data: bytes) -> list[FormScores]:
    """Read the whole records of a child, up to and including the first that can't be read."""
    scores: list[FormScores] = []
    for number in range(len(data) // FORM_SCORES.size):
        try:
            begin = number * FORM_SCORES.size
            scores.append(FormScores.unpack(data[begin : begin + FORM_SCORES.size]))
        except ValueError:
            return [*scores, FormScores(outcome=Outcome.CRASHED)]
    return scores


def reap(pid: int) -> int:
    """Kill the child with all it started, and return its wait status."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def failure(wait_status: int, *, timed_out: bool, sandboxed: bool) -> FormScores:
    """Say what the answer did that its child could not report on.

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
        timeout, give_up, parent: as of `read_scores`.
        sandboxed: whether the child can kill nobody, so that a killed one was killed from outside.
    """
    pid, reply = start(work)
    try:
        data, timed_out = read_scores(reply, count, timeout=timeout, give_up=give_up, parent=parent)
        if timed_out and not can_kill:
            os._exit(_TIMEOUT_EXIT)
    finally:
        os.close(reply)
        wait_status = reap(pid)
    return scores_of(data, count, wait_status, timed_out=timed_out, sandboxed=sandboxed)
