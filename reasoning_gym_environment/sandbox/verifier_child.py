"""What runs in a verifier's child, beside model text: screen, guard, the library's verifier.

Nothing here forks; the host does, in `verifier_host`.
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
from collections.abc import Callable
from typing import Any

import numpy as np

from ..scoring.guards import ceiling
from ..tasks.datasets import Datasets
from ..tasks.facts import EXECUTES_ANSWERS
from . import limits, protocol
from .children import Work
from .protocol import Containment, FormScores, Outcome, VerifyRequest
from .screen import NOT_AN_EXPRESSION, UNREADABLE, leaves_nothing, screen

Scorer = Callable[[str, Any], float]


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


def judge(score: Scorer, request: VerifyRequest, answer: str, entry: Any) -> FormScores:
    """Score an answer that passes the screen, no higher than its guard allows.

    Honest text that is no expression earns what the verifier gives to what it can't read.
    """
    if request.containment is not Containment.FULL:
        return score_forms(score, answer, entry)
    refusal = screen(request.task, answer)
    if refusal == NOT_AN_EXPRESSION:
        return score_forms(score, UNREADABLE, entry)
    if refusal:
        return FormScores(outcome=Outcome.REJECTED)
    most = ceiling(request.task, answer, entry)
    if most == 0.0:
        return FormScores(outcome=Outcome.SCORED, raw=0.0)
    scores = score_forms(score, answer, entry)
    return dataclasses.replace(
        scores, raw=_at_most(most, scores.raw), tagged=_at_most(most, scores.tagged)
    )


def _at_most(most: float, score: float) -> float:
    return score if math.isnan(score) else min(most, score)


def score_alone(dataset: Any, request: VerifyRequest, answer: str) -> Work:
    """Work of a child of `limits.enter_parent_of_children`: score one answer."""

    def work(reply: int) -> None:
        limits.enter_child(
            reply,
            seconds=request.timeout,
            memory=None,
            sandboxed=request.containment is not Containment.FORKS,
        )
        entry = pickle.loads(request.entry)
        os.write(reply, judge(dataset.score_answer, request, answer, entry).pack())

    return work


def score_groups(
    datasets: Datasets, requests: int, first: VerifyRequest, *, seconds: float
) -> Work:
    """Work of a child that lasts: score answers that execute nothing, one group after the other.

    After a group's last answer one more record, with the number of the group as its score, says
    that the child took no harm; where it did, it ends.

    Args:
        datasets: known by their id in the host, which they have here as well.
        requests: the descriptor that it reads frames from: pickled, the id of a dataset, that
            dataset, pickled again, where the child doesn't know it, and the request.
        first: the request whose limits it gets.
        seconds: processor time for all of them.
    """

    def work(reply: int) -> None:
        asked = os.fdopen(requests, "rb")
        sys.stdout = sys.stderr = _Nowhere()
        limits.enter_child(
            reply,
            seconds=seconds,
            memory=first.memory,
            sandboxed=first.containment is not Containment.FORKS,
            requests=requests,
        )
        gc.freeze()
        gc.enable()
        settings = _settings()
        known = {id(dataset): dataset for dataset in datasets.cached()}
        for number in itertools.count(1):
            if (frame := protocol.read_frame(asked)) is None:
                return
            name, introduction, request = pickle.loads(frame)
            if introduction:
                known[name] = _unpickled(introduction)
            dataset = known[name]
            attributes = _attributes(dataset)
            for answer in request.answers:
                os.write(reply, _judge_harmless(dataset, request, answer).pack())
            if _settings() != settings or _attributes(dataset) != attributes:
                return
            os.write(reply, FormScores(outcome=Outcome.SCORED, raw=number).pack())

    return work


def _unpickled(introduction: bytes) -> Any:
    """Read a dataset; None where that takes what the filter refuses, such as another import."""
    try:
        return pickle.loads(introduction)
    except Exception:  # noqa: BLE001 - a class may raise anything: its answers go to children of their own
        return None


def _judge_harmless(dataset: Any, request: VerifyRequest, answer: str) -> FormScores:
    """Score an answer, unless its verifier may execute it or can't be had here."""
    executed = request.task in EXECUTES_ANSWERS and not leaves_nothing(request.task, answer)
    if dataset is None or executed:
        return FormScores.hold_back()
    return judge(dataset.score_answer, request, answer, pickle.loads(request.entry))


class _Nowhere(io.TextIOBase):
    """Takes what the library prints: kept in a buffer, it would one day be written, and refused."""

    def write(self, text: str) -> int:
        return len(text)


def _settings() -> tuple[Any, ...]:
    """Look at what the verifiers of all tasks share and could change."""
    decimals = decimal.getcontext().copy()
    decimals.clear_flags()
    return (
        repr(decimals),
        random.getstate(),
        np.geterr(),
        sys.getrecursionlimit(),
        sys.get_int_max_str_digits(),
    )


def _attributes(dataset: Any) -> dict[str, tuple[int, int]]:
    """Look at a dataset: which objects are its attributes, and how long they are."""
    return {
        name: (id(value), len(value) if hasattr(value, "__len__") else 0)
        for name, value in ({} if dataset is None else vars(dataset)).items()
    }
