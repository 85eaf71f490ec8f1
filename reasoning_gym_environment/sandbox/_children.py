"""Children that see model text: how one is forked, read, killed and reaped, whatever it does."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ._protocol import FORM_SCORES, FormScores, Outcome
from ._work_clock import FIRST_LOOK_SECONDS, LOOK_SECONDS, Clock, WorkClock

_EXIT_CODES = {Outcome.OUT_OF_MEMORY: 77, Outcome.TIMEOUT: 78}
"""How a child says what ended it."""

Input = TypeVar("Input")

Work = Callable[[int], None]
"""What a child does, given the descriptor that it writes its scores to."""


class ParentGoneError(Exception):
    """The request pipe has closed."""


def start_child(work: Work) -> tuple[int, int]:
    """Fork a child; return its process id and the descriptor that its scores are read from."""
    # not a pipe, which others may open through /proc/PID/fd
    read_end, write_end = (end.detach() for end in socket.socketpair())
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work(write_end)
            code = 0
        except MemoryError:
            code = _EXIT_CODES[Outcome.OUT_OF_MEMORY]
        finally:
            os._exit(code)
    os.close(write_end)
    return pid, read_end


class AnswerLimit:
    """The time that a child has for each answer.

    Args:
        clock: of the child.
        timeout: seconds of that clock.
        patience: seconds on the wall, after which the machine has starved the child.
        group_deadline: monotonic time at which waiting ends for all answers.
    """

    def __init__(
        self,
        clock: Clock,
        timeout: float,
        *,
        patience: float = math.inf,
        group_deadline: float = math.inf,
    ) -> None:
        self._clock = clock
        self._timeout = timeout
        self._patience = patience
        self._group_deadline = group_deadline
        self._deadline = time.monotonic() + patience
        self._wait = FIRST_LOOK_SECONDS

    def restart(self) -> None:
        """Begin with the next answer."""
        self._clock.restart()
        self._deadline = time.monotonic() + self._patience
        self._wait = FIRST_LOOK_SECONDS

    def wait(self) -> float:
        """Return the seconds until `exceeded` is asked again."""
        wall = min(self._deadline, self._group_deadline) - time.monotonic()
        return max(0.0, min(self._wait, wall))

    def exceeded(self) -> Outcome | None:
        """Return the outcome of an answer that is out of time; None while it is not."""
        remaining = self._timeout - self._clock.elapsed()
        if remaining <= 0:
            return Outcome.TIMEOUT
        now = time.monotonic()
        if now >= self._group_deadline:
            return Outcome.UNTRIED
        if now >= self._deadline:
            return Outcome.STARVED
        self._wait = min(LOOK_SECONDS, max(0.01, remaining))
        return None


def read_scores(
    reply: int,
    count: int,
    *,
    limit: AnswerLimit,
    parent: int | None = None,
    crowded: Callable[[], bool] | None = None,
) -> tuple[bytes, Outcome | None]:
    """Read up to `count` records; also return why the child must end, if it has to.

    Args:
        limit: of each record; its first one has begun.
        parent: descriptor that becomes readable when the parent has gone.
        crowded: tells whether the child has too many threads and processes.

    Raises:
        ParentGoneError: it has.
    """
    poll = select.poll()
    poll.register(reply, select.POLLIN)
    if parent is not None:
        poll.register(parent, select.POLLIN)
    size = count * FORM_SCORES.size
    data = b""
    while len(data) < size:
        wait = limit.wait()
        ready = poll.poll(1000 * (min(wait, 0.1) if crowded else wait))
        if not ready and (why := limit.exceeded()):
            return data, why
        if any(descriptor == parent for descriptor, _ in ready):
            raise ParentGoneError
        chunk = os.read(reply, size - len(data)) if ready else b""
        if ready and not chunk:
            return data, None
        data += chunk
        if len(data) < size and crowded and crowded():
            return data, Outcome.CRASHED
        if chunk and len(data) % FORM_SCORES.size == 0:
            limit.restart()
    return data, None


def unpack_scores(data: bytes) -> list[FormScores]:
    """Unpack whole records, up to and including the first malformed one, which is CRASHED.

    So is one that says what its reader alone may say: that the machine was busy.
    """
    scores: list[FormScores] = []
    for begin in range(0, len(data) - FORM_SCORES.size + 1, FORM_SCORES.size):
        try:
            score = FormScores.unpack(data[begin : begin + FORM_SCORES.size])
            if score.outcome in (Outcome.STARVED, Outcome.UNTRIED):
                raise ValueError(f"a child wrote {score.outcome.name}")
        except ValueError:
            return [*scores, FormScores(outcome=Outcome.CRASHED)]
        scores.append(score)
    return scores


def reap(pid: int) -> int:
    """Kill the child with all it started, and return its wait status."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def scores_of_ended(
    data: bytes,
    count: int,
    wait_status: int,
    why: Outcome | None,
) -> list[FormScores]:
    """Return the scores of a child that ended, or had to (`why`), with that of the last answer."""
    scores = unpack_scores(data)
    malformed = bool(scores) and scores[-1].outcome is Outcome.CRASHED
    if len(scores) < count and not malformed:
        scores.append(FormScores(outcome=why or _failure(wait_status)))
    return scores


def _failure(wait_status: int) -> Outcome:
    """Tell from its end what an answer did to a child that could not report it.

    Behind the filter no answer can send a signal or close its reply: SIGKILL came from outside.
    A signal to a process that is already ending changes nothing.
    """
    number = os.WTERMSIG(wait_status) if os.WIFSIGNALED(wait_status) else None
    if number == signal.SIGXCPU:
        return Outcome.TIMEOUT
    if number == signal.SIGKILL:
        return Outcome.KILLED
    code = os.WEXITSTATUS(wait_status) if os.WIFEXITED(wait_status) else 1
    return next(
        (end for end, error_class in _EXIT_CODES.items() if error_class == code),
        Outcome.CRASHED,
    )


def run_child(
    work: Work,
    count: int,
    *,
    limit: Callable[[int], AnswerLimit],
    parent: int | None = None,
    can_kill: bool = True,
    crowded: Callable[[int], bool] | None = None,
) -> list[FormScores]:
    """Fork a child and return its scores, up to and including the answer that ends it.

    Args:
        count: number of scores that the work produces.
        limit: returns that of a child by its process id; parent: as for `read_scores`.
        can_kill: whether the caller can kill a child that is out of time. Where it can't, it ends
            itself and the child with it.
        crowded: tells whether a child has too many threads and processes. Only a child that may
            start some can also close its reply and live on.
    """
    pid, reply = start_child(work)
    try:
        data, why = read_scores(
            reply,
            count,
            limit=limit(pid),
            parent=parent,
            crowded=partial(crowded, pid) if crowded else None,
        )
        if why is Outcome.TIMEOUT and not can_kill:
            os._exit(_EXIT_CODES[Outcome.TIMEOUT])
        complete = why or len(data) == count * FORM_SCORES.size
        # macOS has waitid from Python 3.13 on
        if (
            crowded
            and hasattr(os, "waitid")
            and not complete
            and not _ends_by_itself(pid, crowded)
        ):
            why = Outcome.CRASHED  # killed by us, not from outside
    finally:
        os.close(reply)
        wait_status = reap(pid)
    return scores_of_ended(data, count, wait_status, why)


def _ends_by_itself(pid: int, crowded: Callable[[int], bool]) -> bool:
    """Return whether a child ends within a second: a killed one closes its reply before its end."""
    clock = WorkClock(lambda: (pid,))
    while clock.elapsed() < 1 and not crowded(pid):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            return True
        time.sleep(0.001)
    return False


_MAX_KILLS = 3
"""Children in a row that are killed from outside while they score one answer."""


def score_all(
    score: Callable[[Sequence[Input]], list[FormScores]],
    answers: Sequence[Input],
    deadline: float,
) -> list[FormScores]:
    """Score every answer with a function that stops at one that ends its child.

    An answer whose child is killed from outside, as when memory runs out, has three attempts. After
    one that the machine starved, none is tried: it would starve those as well.
    """
    scores: list[FormScores] = []
    kills = 0
    while len(scores) < len(answers):
        remaining = answers[len(scores) :]
        if time.monotonic() >= deadline:
            return scores + [FormScores(outcome=Outcome.UNTRIED)] * len(remaining)
        new = score(remaining)
        if new[-1].outcome is Outcome.STARVED:
            starved = len(answers) - len(scores) - len(new) + 1
            return scores + new[:-1] + [FormScores(outcome=Outcome.STARVED)] * starved
        scored = list(
            itertools.takewhile(
                lambda scores_of_answer: scores_of_answer.outcome is not Outcome.KILLED,
                new,
            )
        )
        scores += scored
        kills = 0 if scored else kills
        if len(scored) < len(new):
            kills += 1
            if kills == _MAX_KILLS:
                scores.append(FormScores(outcome=Outcome.KILLED))
                kills = 0
    return scores
