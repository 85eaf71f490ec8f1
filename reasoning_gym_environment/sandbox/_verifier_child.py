"""What runs in the children of a verifier host, beside model text.

- A *persistent worker* scores group after group of answers that execute nothing. It is under its
  limits before it reads the first answer, and ends when an answer changed anything that a later
  score depends on.
- A *zygote* scores the oracle, so that all caches are warm, and forks a *single-use child* for each
  answer that may execute something.
- Answers to a user's own task have a child of the host, under the limits of a contained function:
  each its own, or those of a group one child if the verifier is proved to keep no state.
"""

from __future__ import annotations

import dataclasses
import decimal
import gc
import io
import itertools
import math
import os
import pickle
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..scoring.guards import max_score
from ..tasks.datasets import Datasets, seed_globals
from ..tasks.facts import EXECUTES_ANSWERS, SLOW_ON_WRONG_ANSWERS
from ..util.values import describe_error, shorten
from . import _limits as limits
from . import _protocol as protocol
from ._children import AnswerLimit, run_child
from ._protocol import EntryAnswers, FormScores, Outcome
from ._screen import NOT_AN_EXPRESSION, UNREADABLE, executes_nothing, screen
from ._work_clock import ProcessorClock

Verify = Callable[[str, Any], float]
"""A verifier of the library: the score of an answer to an entry."""


def score_forms(
    verify: Verify,
    answer: str,
    entry: Any,
    *,
    tagged: bool = True,
) -> FormScores:
    """Score the bare answer, and the tagged one if there is one and the first has less."""
    begin = time.perf_counter()
    scores: list[float] = []
    detail = ""
    for text in (answer, f"<answer>{answer}</answer>")[: 1 + tagged]:
        try:
            score = verify(text, entry)
            # A returned text may be the answer itself, which `float` would take for a score.
            if isinstance(score, str | bytes) or not math.isfinite(score):
                raise TypeError(f"a score must be a number, got {shorten(score)}")
            scores.append(float(score))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - a verifier may raise anything: NaN here, counted in `errors`
            scores.append(math.nan)
            detail = f"raised {describe_error(error)}"
        if scores[0] >= 1.0:
            break
    return FormScores(
        outcome=Outcome.SCORED,
        raw=scores[0],
        tagged=scores[1] if len(scores) > 1 else math.nan,
        seconds=time.perf_counter() - begin,
        errors=sum(map(math.isnan, scores)),
        detail=detail,
    )


def screen_and_score(
    verify: Verify,
    task: str,
    answer: str,
    entry: Any,
) -> FormScores:
    """Score an answer that passes the screen, no higher than its guard allows.

    Honest text that is not an expression earns what the verifier gives to unreadable text.
    """
    refusal = screen(task, answer)
    if refusal == NOT_AN_EXPRESSION:
        return score_forms(verify, UNREADABLE, entry)
    if refusal:
        return FormScores(outcome=Outcome.REJECTED)
    best_score = max_score(task, answer, entry)
    if best_score == 0.0:
        return FormScores(outcome=Outcome.SCORED, raw=0.0)
    scores = score_forms(verify, answer, entry)
    # `min` returns its first argument where that is NaN
    return dataclasses.replace(
        scores, raw=min(scores.raw, best_score), tagged=min(scores.tagged, best_score)
    )


def zygote_work(
    dataset: Any,
    request: EntryAnswers,
    answers: Sequence[str],
    reply: int,
) -> None:
    """Score each answer in a single-use child: the work of a zygote.

    The zygote sees no effect of any answer. It first scores the oracle, and a wrong answer where
    none takes long: sympy's caches then hold what all answers to this entry need, and an answer
    that is one of the two has its score. Both pass the screen and run under a filter like any
    other: the oracle was made from a recipe.
    """
    can_kill = limits.enter_zygote(reply)
    oracle = pickle.loads(request.entry)["answer"]
    wrong = () if request.task in SLOW_ON_WRONG_ANSWERS else ("0",)
    known_scores = {
        text: screen_and_score(
            dataset.score_answer, request.task, text, pickle.loads(request.entry)
        )
        for text in (oracle, *wrong)
    }
    gc.freeze()
    for answer in answers:
        scores = known_scores.get(answer)
        if scores is None:
            [scores] = run_child(
                partial(_single_use_work, dataset, request, answer),
                1,
                # The host ends a zygote whose child waits or starves.
                limit=lambda pid: AnswerLimit(ProcessorClock(pid), request.timeout),
                can_kill=can_kill,
            )
        os.write(reply, scores.pack())


def _single_use_work(
    dataset: Any,
    request: EntryAnswers,
    answer: str,
    reply: int,
) -> None:
    limits.enter_single_use_child(reply, seconds=request.timeout)
    os.write(reply, _score(dataset, request, answer).pack())


OWN_LIMITS: Any = {"memory": limits.VERIFIER_MEMORY, "allow": frozenset[str]()}
"""Limits of a child that verifies an answer to a user's task: it may read files and import."""


def own_work(
    dataset: Any,
    request: EntryAnswers,
    answers: Sequence[str],
    reply: int,
) -> None:
    """Verify answers to a user's task: the work of a child."""
    seconds = request.timeout * len(answers)
    limits.enter_function_child(reply, **OWN_LIMITS, seconds=seconds)
    for answer in answers:
        seed_globals(0)  # a verifier that draws gives the same verdict again
        os.write(reply, _score(dataset, request, answer).pack())


def persistent_work(
    datasets: Datasets,
    requests: int,
    reply: int,
    *,
    seconds: float,
) -> None:
    """Score group after group: the work of a persistent worker.

    After a group's last answer one more record, whose score is the group's number, says that
    nothing has changed that a later score depends on. If something has, the worker ends.

    Args:
        datasets: known by their ids in the host, which are the same in a fork.
        requests: descriptor that frames are read from. Each is a pickled triple: the id of a
            dataset, that dataset as a pickle if the worker lacks it, and the request.
        seconds: processor time for all groups.
    """
    frames = os.fdopen(requests, "rb")
    sys.stdout = sys.stderr = _Discard()
    limits.enter_persistent_worker(reply, requests, seconds=seconds)
    gc.freeze()
    gc.enable()
    global_state = _global_state()
    datasets_by_id = {id(dataset): dataset for dataset in datasets.cached()}
    for number in itertools.count(1):
        frame = protocol.read_frame(frames)
        if frame is None:
            return
        key, dataset_pickle, request = pickle.loads(frame)
        if dataset_pickle:
            try:
                datasets_by_id[key] = pickle.loads(dataset_pickle)
            except Exception:  # noqa: BLE001 - its class may import: a zygote scores its answers
                datasets_by_id[key] = None
        dataset = datasets_by_id[key]
        dataset_state = _dataset_state(dataset)
        for answer in request.answers:
            executed = request.task in EXECUTES_ANSWERS
            if dataset is None or (
                executed and not executes_nothing(request.task, answer)
            ):
                scores = FormScores.defer()
            else:
                scores = _score(dataset, request, answer)
            os.write(reply, scores.pack())
        if _global_state() != global_state or _dataset_state(dataset) != dataset_state:
            return
        os.write(reply, FormScores(outcome=Outcome.SCORED, raw=number).pack())


def _score(dataset: Any, request: EntryAnswers, answer: str) -> FormScores:
    entry = pickle.loads(request.entry)
    verify = dataset.score_answer
    if request.is_own_task:  # its verifier alone decides
        return score_forms(verify, answer, entry, tagged=False)
    return screen_and_score(verify, request.task, answer, entry)


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
