"""The verifier host: keeps the library warm and forks a single-use child for each job.

A child scores the answers of one group, or a single answer where the task's verifier executes
it, and dies. Whatever an answer does to its process, the next child is a fresh fork.
"""

from __future__ import annotations

import gc
import math
import os
import pickle
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, NoReturn

from . import limits, protocol
from .datasets import Datasets
from .facts import EXECUTES_ANSWERS
from .protocol import FORM_SCORES, FormScores, Outcome, VerifyRequest

Scorer = Callable[[str, Any], float]

_OUT_OF_MEMORY_EXIT = 77


def score_forms(score: Scorer, answer: str, entry: Any) -> FormScores:
    """Score the bare answer, and the tagged one unless the first has full credit.

    Raises:
        MemoryError: the verifier let it out.
    """
    begin = time.perf_counter()
    scores: list[float] = []
    for text in (answer, f"<answer>{answer}</answer>"):
        try:
            scores.append(float(score(text, entry)))
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


def _child(dataset: Any, request: VerifyRequest, answers: Sequence[str], reply: int) -> NoReturn:
    """Score in a forked process; never returns."""
    code = 1
    try:
        limits.enter_child(reply, seconds=request.timeout * len(answers), memory=request.memory)
        if request.task in EXECUTES_ANSWERS:
            limits.exit_on_memory_error(_OUT_OF_MEMORY_EXIT)
        for answer in answers:
            entry = pickle.loads(request.entry)
            os.write(reply, score_forms(dataset.score_answer, answer, entry).pack())
        code = 0
    except MemoryError:
        code = _OUT_OF_MEMORY_EXIT
    finally:
        os._exit(code)


def _read_scores(reply: int, requests: int, count: int, timeout: float) -> tuple[bytes, bool]:
    """Collect up to `count` records; True when the child ran out of time for the next one.

    Ends the process when the parent has gone: nothing else arrives while a job is running.
    """
    poll = select.poll()
    poll.register(reply, select.POLLIN)
    poll.register(requests, select.POLLIN)
    data = b""
    deadline = time.monotonic() + timeout
    while len(data) < count * FORM_SCORES.size:
        ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not ready:
            return data, True
        if any(descriptor == requests for descriptor, _ in ready):
            raise ParentGoneError
        chunk = os.read(reply, count * FORM_SCORES.size - len(data))
        if not chunk:
            return data, False
        if (len(data) + len(chunk)) // FORM_SCORES.size > len(data) // FORM_SCORES.size:
            deadline = time.monotonic() + timeout
        data += chunk
    return data, False


class ParentGoneError(Exception):
    """The request pipe has closed."""


def _reap(pid: int) -> int:
    """Kill the child with all it started, and return its wait status."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    return os.waitpid(pid, 0)[1]


def _failure(wait_status: int, *, timed_out: bool) -> FormScores:
    """What the answer did that its child could not report on."""
    if timed_out or (os.WIFSIGNALED(wait_status) and os.WTERMSIG(wait_status) == signal.SIGXCPU):
        return FormScores(outcome=Outcome.TIMEOUT)
    if os.WIFEXITED(wait_status) and os.WEXITSTATUS(wait_status) == _OUT_OF_MEMORY_EXIT:
        return FormScores(outcome=Outcome.OUT_OF_MEMORY)
    return FormScores(outcome=Outcome.CRASHED)


def run_child(
    dataset: Any, request: VerifyRequest, answers: Sequence[str], requests: int
) -> list[FormScores]:
    """Score answers in one fresh child, up to and including the first that brings it down."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(dataset, request, answers, write_end)
    os.close(write_end)
    wait_status = 0
    try:
        data, timed_out = _read_scores(read_end, requests, len(answers), request.timeout)
    finally:
        os.close(read_end)
        wait_status = _reap(pid)
    whole = len(data) // FORM_SCORES.size
    scores = [
        FormScores.unpack(data[i * FORM_SCORES.size : (i + 1) * FORM_SCORES.size])
        for i in range(whole)
    ]
    if whole < len(answers):
        scores.append(_failure(wait_status, timed_out=timed_out))
    return scores


def verify(datasets: Datasets, request: VerifyRequest, requests: int) -> list[FormScores]:
    """Score every answer; one that brings its child down costs the others nothing."""
    dataset = datasets.get(request.task, request.parameters)
    scores: list[FormScores] = []
    while len(scores) < len(request.answers):
        left = request.answers[len(scores) :]
        batch = left[:1] if request.task in EXECUTES_ANSWERS else left
        scores += run_child(dataset, request, batch, requests)
    return scores


def warm_up(datasets: Datasets) -> None:
    """Make the first, slow calls of every executing verifier before forks inherit the result.

    Right and wrong answers take different ways through sympy.
    """
    for task in sorted(EXECUTES_ANSWERS):
        dataset = datasets.get(task, {})
        entry = dataset[0]
        for answer in (entry["answer"], "2*x + 3", "<answer>0</answer>"):
            dataset.score_answer(answer, entry)


def run(requests: BinaryIO, replies: BinaryIO) -> None:
    """Serve until the parent goes away."""
    datasets = Datasets()
    warm_up(datasets)
    gc.collect()
    gc.freeze()
    protocol.write_frame(replies, b"ready")
    while (frame := protocol.read_frame(requests)) is not None:
        request = pickle.loads(frame)
        try:
            scores = verify(datasets, request, requests.fileno())
        except ParentGoneError:
            return
        protocol.write_frame(replies, b"".join(score.pack() for score in scores))
