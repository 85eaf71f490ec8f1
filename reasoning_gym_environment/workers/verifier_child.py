"""What runs in a verifier's child, beside model text: screen, guard, the library's verifier.

Nothing here forks or waits; the host does, in `verifier_host`.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..scoring.guards import ceiling
from . import limits
from .protocol import Containment, FormScores, Outcome, VerifyRequest
from .screen import NOT_AN_EXPRESSION, UNREADABLE, screen

Scorer = Callable[[str, Any], float]
Work = Callable[[int], None]
"""What a child does, given the descriptor to write its scores to."""


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


def score_together(
    dataset: Any, request: VerifyRequest, answers: Sequence[str], *, memory: int | None
) -> Work:
    """Work of a child: score answers one after the other.

    Args:
        memory: as of `limits.enter_child`.
    """

    def work(reply: int) -> None:
        limits.enter_child(
            reply,
            seconds=request.timeout * len(answers),
            memory=memory,
            sandboxed=request.containment is not Containment.FORKS,
        )
        for answer in answers:
            entry = pickle.loads(request.entry)
            os.write(reply, judge(dataset.score_answer, request, answer, entry).pack())

    return work
