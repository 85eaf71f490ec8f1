"""What runs in the children of a verifier host, beside model text, and how a child is run.

- A *persistent worker* scores group after group of answers that execute nothing. It is under its
  limits before it reads the first answer, and ends when an answer changed anything that a later
  score depends on.
- A *zygote* scores the oracle, so that all caches are warm, and forks a *single-use child* for each
  answer that may execute something.
"""

from __future__ import annotations

import contextlib
import dataclasses
import decimal
import gc
import io
import itertools
import math
import os
import pickle
import random
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ..scoring.guards.registry import max_score
from ..tasks.datasets import Datasets
from ..tasks.facts import EXECUTES_ANSWERS, SLOW_ON_WRONG_ANSWERS
from . import _limits as limits
from . import _protocol as protocol
from ._protocol import FORM_SCORES, FormScores, Outcome, VerifyRequest
from ._screen import NOT_AN_EXPRESSION, UNREADABLE, executes_nothing, screen

_OUT_OF_MEMORY_EXIT = 77
_TIMEOUT_EXIT = 78
_EXITS = {_OUT_OF_MEMORY_EXIT: Outcome.OUT_OF_MEMORY, _TIMEOUT_EXIT: Outcome.TIMEOUT}

Work = Callable[[int], None]
"""What a child does, given the descriptor that it writes its scores to."""

Verify = Callable[[str, Any], float]
"""A verifier of the library: the score of an answer to an entry."""


class ParentGoneError(Exception):
    """The request pipe has closed."""


def start_child(work: Work) -> tuple[int, int]:
    """Fork a child; return its process id and the descriptor that its scores are read from."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _work_and_exit(work, write_end)
    os.close(write_end)
    return pid, read_end


def _work_and_exit(work: Work, reply: int) -> NoReturn:
    code = 1
    try:
        work(reply)
        code = 0
    except MemoryError:
        code = _OUT_OF_MEMORY_EXIT
    finally:
        os._exit(code)


def read_scores(
    reply: int,
    count: int,
    *,
    timeout: float,
    group_deadline: float = math.inf,
    parent: int | None = None,
) -> tuple[bytes, bool]:
    """Read up to `count` records; also return whether the child ran out of time for the next one.

    Args:
        timeout: seconds for one record.
        group_deadline: monotonic time at which waiting ends for all.
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
    deadline = min(group_deadline, time.monotonic() + timeout)
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
            deadline = min(group_deadline, time.monotonic() + timeout)
    return data, False


def unpack_scores(data: bytes) -> list[FormScores]:
    """Unpack whole records, up to and including the first malformed one, which is CRASHED."""
    scores: list[FormScores] = []
    for begin in range(0, len(data) - FORM_SCORES.size + 1, FORM_SCORES.size):
        try:
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


def scores_of_ended(
    data: bytes, count: int, wait_status: int, *, timed_out: bool
) -> list[FormScores]:
    """Return the scores of an ended child, up to and including the answer that ended it."""
    scores = unpack_scores(data)
    malformed = bool(scores) and scores[-1].outcome is Outcome.CRASHED
    if len(scores) < count and not malformed:
        scores.append(FormScores(outcome=_failure(wait_status, timed_out=timed_out)))
    return scores


def _failure(wait_status: int, *, timed_out: bool) -> Outcome:
    """Tell from its end what an answer did to a child that could not report it.

    Behind the filter no answer can send a signal or close its reply: SIGKILL came from outside.
    A signal to a process that is already ending changes nothing.
    """
    number = os.WTERMSIG(wait_status) if os.WIFSIGNALED(wait_status) else None
    if timed_out or number == signal.SIGXCPU:
        return Outcome.TIMEOUT
    if number == signal.SIGKILL:
        return Outcome.KILLED
    code = os.WEXITSTATUS(wait_status) if os.WIFEXITED(wait_status) else 1
    return _EXITS.get(code, Outcome.CRASHED)


def run_child(
    work: Work,
    count: int,
    *,
    timeout: float,
    group_deadline: float = math.inf,
    parent: int | None = None,
    can_kill: bool = True,
) -> list[FormScores]:
    """Fork a child and return its scores, up to and including the answer that ends it.

    Args:
        count: number of scores that the work produces.
        timeout, group_deadline, parent: as for `read_scores`.
        can_kill: whether the caller can kill a child that is out of time. Where it can't, it ends
            itself and the child with it.
    """
    pid, reply = start_child(work)
    try:
        data, timed_out = read_scores(
            reply, count, timeout=timeout, group_deadline=group_deadline, parent=parent
        )
        if timed_out and not can_kill:
            os._exit(_TIMEOUT_EXIT)
    finally:
        os.close(reply)
        wait_status = reap(pid)
    return scores_of_ended(data, count, wait_status, timed_out=timed_out)


def score_forms(verify: Verify, answer: str, entry: Any) -> FormScores:
    """Score the bare answer, and the tagged one unless the first has full credit.

    Raises:
        MemoryError: the verifier let it out.
    """
    begin = time.perf_counter()
    scores: list[float] = []
    for text in (answer, f"<answer>{answer}</answer>"):
        try:
            scores.append(float(verify(text, entry)))
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - a verifier may raise anything: NaN here, counted in `errors`
            scores.append(math.nan)
        if scores[0] >= 1.0:
            break
    return FormScores(
        outcome=Outcome.SCORED,
        raw=scores[0],
        tagged=scores[1] if len(scores) > 1 else math.nan,
        seconds=time.perf_counter() - begin,
        errors=sum(map(math.isnan, scores)),
    )


def screen_and_score(verify: Verify, task: str, answer: str, entry: Any) -> FormScores:
    """Score an answer that passes the screen, no higher than its guard allows.

    Honest text that is not an expression earns what the verifier gives to unreadable text.
    """
    refusal = screen(task, answer)
    if refusal == NOT_AN_EXPRESSION:
        return score_forms(verify, UNREADABLE, entry)
    if refusal:
        return FormScores(outcome=Outcome.REJECTED)
    most = max_score(task, answer, entry)
    if most == 0.0:
        return FormScores(outcome=Outcome.SCORED, raw=0.0)
    scores = score_forms(verify, answer, entry)
    return dataclasses.replace(
        scores, raw=_at_most(most, scores.raw), tagged=_at_most(most, scores.tagged)
    )


def _at_most(most: float, score: float) -> float:
    return score if math.isnan(score) else min(most, score)


def zygote_work(dataset: Any, request: VerifyRequest, answers: Sequence[str]) -> Work:
    """Return the work of a zygote: score each answer in a single-use child.

    The zygote sees no effect of any answer. It first scores the oracle, and a wrong answer where
    none takes long: sympy's caches then hold what all answers to this entry need, and an answer
    that is one of the two has its score. Both pass the screen and run under a filter like any
    other: the oracle was made from a recipe.
    """

    def work(reply: int) -> None:
        can_kill = limits.enter_zygote(reply)
        oracle = pickle.loads(request.entry)["answer"]
        wrong = () if request.task in SLOW_ON_WRONG_ANSWERS else ("0",)
        known = {
            text: screen_and_score(
                dataset.score_answer, request.task, text, pickle.loads(request.entry)
            )
            for text in (oracle, *wrong)
        }
        gc.freeze()
        for answer in answers:
            scores = known.get(answer)
            if scores is None:
                [scores] = run_child(
                    _single_use_work(dataset, request, answer),
                    1,
                    timeout=request.timeout,
                    can_kill=can_kill,
                )
            os.write(reply, scores.pack())

    return work


def _single_use_work(dataset: Any, request: VerifyRequest, answer: str) -> Work:
    def work(reply: int) -> None:
        limits.enter_single_use_child(reply, seconds=request.timeout)
        entry = pickle.loads(request.entry)
        scores = screen_and_score(dataset.score_answer, request.task, answer, entry)
        os.write(reply, scores.pack())

    return work


def persistent_work(datasets: Datasets, requests: int, *, seconds: float) -> Work:
    """Return the work of a persistent worker: score group after group.

    After a group's last answer one more record, whose score is the group's number, says that
    nothing has changed that a later score depends on. If something has, the worker ends.

    Args:
        datasets: known by their ids in the host, which are the same in a fork.
        requests: descriptor that frames are read from. Each is a pickled triple: the id of a
            dataset, that dataset as a pickle if the worker lacks it, and the request.
        seconds: processor time for all groups.
    """

    def work(reply: int) -> None:
        frames = os.fdopen(requests, "rb")
        sys.stdout = sys.stderr = _Discard()
        limits.enter_persistent_worker(reply, requests, seconds=seconds)
        gc.freeze()
        gc.enable()
        global_state = _global_state()
        known = {id(dataset): dataset for dataset in datasets.cached()}
        for number in itertools.count(1):
            if (frame := protocol.read_frame(frames)) is None:
                return
            key, dataset_pickle, request = pickle.loads(frame)
            if dataset_pickle:
                known[key] = _load_dataset(dataset_pickle)
            dataset = known[key]
            dataset_state = _dataset_state(dataset)
            for answer in request.answers:
                os.write(reply, _score_unless_executed(dataset, request, answer).pack())
            if _global_state() != global_state or _dataset_state(dataset) != dataset_state:
                return
            os.write(reply, FormScores(outcome=Outcome.SCORED, raw=number).pack())

    return work


def _load_dataset(dataset_pickle: bytes) -> Any:
    """Return None if loading needs what the filter refuses, such as another import."""
    try:
        return pickle.loads(dataset_pickle)
    except Exception:  # noqa: BLE001 - a class may raise anything: a zygote scores its answers
        return None


def _score_unless_executed(dataset: Any, request: VerifyRequest, answer: str) -> FormScores:
    """Score an answer, or defer it if its verifier may execute it or could not be loaded."""
    executed = request.task in EXECUTES_ANSWERS and not executes_nothing(request.task, answer)
    if dataset is None or executed:
        return FormScores.defer()
    entry = pickle.loads(request.entry)
    return screen_and_score(dataset.score_answer, request.task, answer, entry)


class _Discard(io.TextIOBase):
    """Discards what the library prints. A buffer would be flushed one day, and refused."""

    def write(self, text: str) -> int:
        return len(text)


def _global_state() -> tuple[Any, ...]:
    """Return what the verifiers of all tasks share and could change."""
    decimals = decimal.getcontext().copy()
    decimals.clear_flags()
    return (
        repr(decimals),
        random.getstate(),
        np.geterr(),
        sys.getrecursionlimit(),
        sys.get_int_max_str_digits(),
    )


def _dataset_state(dataset: Any) -> dict[str, tuple[int, int]]:
    """Return which objects are the attributes of a dataset, and how long they are."""
    return {
        name: (id(value), len(value) if hasattr(value, "__len__") else 0)
        for name, value in ({} if dataset is None else vars(dataset)).items()
    }
