"""The verifier host: keeps the library warm and forks the children that see model text.

Where nothing is executed, one child scores group after group. Where the task's verifier executes
answers, each has a child of its own that dies with it: whatever an answer does to its process, the
next child is a fresh fork.
"""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, BinaryIO

from ..records import Recipe
from ..tasks.datasets import Datasets
from ..tasks.facts import EXECUTES_ANSWERS, SLOW_ON_WRONG_ANSWERS
from . import limits, protocol
from .children import ParentGoneError, Work, run_child
from .lasting_child import LastingChild
from .protocol import Containment, FormScores, Outcome, VerifyRequest
from .verifier_child import judge, score_alone

_TRIES = 3
"""For an answer whose child is killed from outside, as the system does when memory runs out."""
_WARM_UP_SEEDS = {"countdown": (3, 4), "intermediate_integration": range(5), "puzzle24": (2, 4)}
"""Where items take long to make: those that don't. Else the first eight."""


def score_apart(dataset: Any, request: VerifyRequest, answers: Sequence[str]) -> Work:
    """Work of a child: score each answer in a child of its own.

    The one in between sees no effect of any answer. It scores the oracle first, and a wrong
    answer where none takes long: sympy's caches then hold what all answers to this entry need,
    and an answer that is one of the two has its score. Both pass the screen and run under a filter
    like any other: the oracle was made from a recipe.
    """

    def work(reply: int) -> None:
        sandboxed = request.containment is not Containment.FORKS
        can_kill = limits.enter_parent_of_children(
            reply, memory=request.memory, sandboxed=sandboxed
        )
        oracle = pickle.loads(request.entry)["answer"]
        wrong = () if request.task in SLOW_ON_WRONG_ANSWERS else ("0",)
        known = {
            text: judge(dataset.score_answer, request, text, pickle.loads(request.entry))
            for text in (oracle, *wrong)
        }
        gc.freeze()
        for answer in answers:
            if answer in known:
                os.write(reply, known[answer].pack())
                continue
            [scores] = run_child(
                score_alone(dataset, request, answer),
                1,
                timeout=request.timeout,
                can_kill=can_kill,
                sandboxed=sandboxed,
            )
            os.write(reply, scores.pack())

    return work


class VerifierHost:
    """Scores requests one after the other in children: one that lasts, or one for each answer.

    Args:
        datasets: warm ones.
    """

    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets
        self._lasting: LastingChild | None = None

    def verify(self, request: VerifyRequest, parent: int) -> list[FormScores]:
        """Score every answer; one that brings its child down costs the others nothing.

        Raises:
            ParentGoneError: `parent`, the request pipe, has closed.
        """
        try:
            dataset = self._datasets.get(request.task, request.parameters)
        except Exception:  # noqa: BLE001 - a dataset's constructor may raise anything: `errors` says so
            return [FormScores(outcome=Outcome.SCORED, errors=1)] * len(request.answers)
        give_up = time.monotonic() + request.group_timeout
        together = partial(self._together, dataset, request, give_up=give_up, parent=parent)
        apart = partial(_apart, dataset, request, give_up=give_up, parent=parent)
        scores = [FormScores.hold_back()] * len(request.answers)
        if request.task not in EXECUTES_ANSWERS or request.containment is Containment.FULL:
            scores = _score_all(together, request.answers, give_up)
        held_back = [
            answer for answer, score in zip(request.answers, scores, strict=True) if score.held_back
        ]
        others = iter(_score_all(apart, held_back, give_up))
        return [next(others) if score.held_back else score for score in scores]

    def _together(
        self,
        dataset: Any,
        request: VerifyRequest,
        answers: Sequence[str],
        *,
        give_up: float,
        parent: int,
    ) -> list[FormScores]:
        """Score answers in the child that lasts, up to and including the one that ends it."""
        child = self._lasting
        introduction = child.introduction(dataset, request) if child is not None else None
        if child is None or introduction is None:
            if child is not None:
                child.end()
            child = self._lasting = LastingChild(self._datasets, request)
            introduction = b""
        return child.score(
            dataset, request, answers, introduction=introduction, give_up=give_up, parent=parent
        )


def _apart(
    dataset: Any, request: VerifyRequest, answers: Sequence[str], *, give_up: float, parent: int
) -> list[FormScores]:
    """Score answers in a child each, up to and including the one that ends their parent."""
    return run_child(
        score_apart(dataset, request, answers),
        len(answers),
        # The child in between also spends time on the known answers, and on its children's ends.
        timeout=2 * request.timeout + 1,
        give_up=give_up,
        parent=parent,
        sandboxed=request.containment is not Containment.FORKS,
    )


def _score_all(
    way: Callable[[Sequence[str]], list[FormScores]], answers: Sequence[str], give_up: float
) -> list[FormScores]:
    """Score every answer, in a way that ends with one that brings its child down."""
    scores: list[FormScores] = []
    killed = 0
    while len(scores) < len(answers):
        left = answers[len(scores) :]
        if time.monotonic() >= give_up:
            return scores + [FormScores(outcome=Outcome.TIMEOUT)] * len(left)
        given = way(left)
        sound = list(itertools.takewhile(lambda one: one.outcome is not Outcome.KILLED, given))
        scores += sound
        killed = 0 if sound else killed
        if len(sound) < len(given):
            killed += 1
            if killed == _TRIES:
                scores.append(FormScores(outcome=Outcome.KILLED))
                killed = 0
    return scores


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
    host = VerifierHost(datasets)
    while (frame := protocol.read_frame(requests)) is not None:
        request = pickle.loads(frame)
        try:
            scores = host.verify(request, requests.fileno())
        except ParentGoneError:
            return
        protocol.write_frame(replies, b"".join(score.pack() for score in scores))
