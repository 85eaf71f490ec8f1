"""The child that scores group after group, where no answer is executed.

It is under the limits of every other child before it reads its first answer. No answer leaves
anything behind that a later score depends on, and what shows the least sign of it is replaced.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import select
import time
from collections.abc import Sequence
from typing import Any

from ..tasks.datasets import Datasets
from ..tasks.facts import SHARES_DATA
from . import children, limits, protocol
from .protocol import Containment, FormScores, Outcome, VerifyRequest
from .verifier_child import score_groups

_MOST_GROUPS = 256
_SPARE_SECONDS = 60.0
"""Of processor time, beyond what its first group may need."""
_MOST_GROWN = 16 * 2**20
"""Bytes of address space: what an answer takes away from those after it."""
_LARGEST_TOLD = 128 * 1024
"""Bytes of a pickled dataset. A larger one takes as long to read as another child to fork."""
_SOUND = {Outcome.SCORED, Outcome.REJECTED}


class LastingChild:
    """A child as its host sees it: it takes groups until it is replaced.

    Args:
        datasets: it knows those that are there now, and can't open the files of another: it is told
            what it takes to score with one that was built later.
        request: the first, whose limits it gets.
    """

    def __init__(self, datasets: Datasets, request: VerifyRequest) -> None:
        self._known = {id(dataset): dataset for dataset in datasets.cached()}
        self._containment, self._memory = request.containment, request.memory
        self._groups = 0
        self._seconds = _SPARE_SECONDS + _seconds_of(request)
        self._begun_with = limits.address_space()
        requests, self._requests = os.pipe()
        work = score_groups(datasets, requests, request, seconds=self._seconds)
        self._pid, self._replies = children.start(work)
        os.close(requests)
        os.set_blocking(self._requests, False)
        self._wait_status: int | None = None

    def introduction(self, dataset: Any, request: VerifyRequest) -> bytes | None:
        """Say what it must be told of the dataset to score the request.

        Returns:
            Nothing where it knows the dataset, which is pickled where it doesn't. None where it may
            not score the request, or has ended, or can't be told.
        """
        takes = (
            self._wait_status is None
            and (self._containment, self._memory) == (request.containment, request.memory)
            and self._groups < _MOST_GROUPS
            and _seconds_of(request) <= self._seconds
            and self._is_quiet()
        )
        if not takes:
            return None
        return b"" if id(dataset) in self._known else _pickled(dataset, request.task)

    def score(
        self,
        dataset: Any,
        request: VerifyRequest,
        answers: Sequence[str],
        *,
        introduction: bytes,
        give_up: float,
        parent: int,
    ) -> list[FormScores]:
        """Score answers up to and including the one that brings it down.

        Args:
            introduction: what it must be told of the dataset.
            give_up, parent: as of `children.read_scores`.

        Raises:
            ParentGoneError: `parent` has closed.
        """
        begin = time.monotonic()
        deadline = min(give_up, begin + request.timeout)
        self._groups += 1
        self._known[id(dataset)] = dataset
        asked = dataclasses.replace(request, answers=tuple(answers))
        count = len(answers)
        try:
            sent = self._send((id(dataset), introduction, asked), deadline, parent)
            data, timed_out = children.read_scores(
                self._replies,
                count + 1,
                timeout=request.timeout,
                give_up=give_up if sent else deadline,
                parent=parent,
            )
        except BaseException:
            self.end()
            raise
        scores = children.unpack_scores(data)
        self._seconds -= time.monotonic() - begin
        if len(scores) <= count or not self._is_sound(scores):
            sandboxed = request.containment is not Containment.FORKS
            scores = children.scores_of(
                data, count, self.end(), timed_out=timed_out, sandboxed=sandboxed
            )
        return scores[:count]

    def _send(self, message: Any, deadline: float, parent: int) -> bool:
        """Write a message to the child; one that has gone, or reads nothing, gives no score then.

        Returns:
            Whether it was written before the deadline.

        Raises:
            ParentGoneError: `parent` has closed.
        """
        poll = select.poll()
        poll.register(self._requests, select.POLLOUT)
        poll.register(parent, select.POLLIN)
        frame = pickle.dumps(message)
        left = memoryview(protocol.LENGTH.pack(len(frame)) + frame)
        with contextlib.suppress(BrokenPipeError):
            while left:
                ready = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
                if parent in ready:
                    raise children.ParentGoneError
                if not ready:
                    return False
                left = left[os.write(self._requests, left) :]
        return True

    def _is_quiet(self) -> bool:
        """Say whether it lives, and says nothing that it wasn't asked."""
        poll = select.poll()
        poll.register(self._replies, select.POLLIN)
        return not poll.poll(0)

    def _is_sound(self, scores: Sequence[FormScores]) -> bool:
        """Say whether all went well, no more was said than was asked, and no memory is missing."""
        return (
            {score.outcome for score in scores} <= _SOUND
            and scores[-1].raw == self._groups
            and self._is_quiet()
            and 0 < limits.address_space(self._pid) <= self._begun_with + _MOST_GROWN
        )

    def end(self) -> int:
        """Kill it and return its wait status. May be called again."""
        if self._wait_status is None:
            os.close(self._requests)
            os.close(self._replies)
            self._wait_status = children.reap(self._pid)
        return self._wait_status


def _pickled(dataset: Any, task: str) -> bytes | None:
    """Pickle a dataset; None where that isn't possible, or takes too much, or isn't all of it."""
    if task in SHARES_DATA:
        return None
    try:
        pickled = pickle.dumps(dataset)
    except (pickle.PicklingError, AttributeError, TypeError):  # a lambda, a local function, a lock
        return None
    return pickled if len(pickled) <= _LARGEST_TOLD else None


def _seconds_of(request: VerifyRequest) -> float:
    return request.timeout * len(request.answers)
