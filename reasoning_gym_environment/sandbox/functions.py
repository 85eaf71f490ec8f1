"""The function pool: calls of a user's function, each in a contained child of a worker process."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..errors import WorkerLostError
from ..records import Status, Verdict
from ..util.values import escape_control_characters
from ._fork_server import ForkServer
from ._function_host import PROGRAM, ROLE, FunctionSource
from ._protocol import FormScores, FunctionCall, Outcome, to_verdict
from .pool import verdict_of_lost, warn_of_error
from .worker_groups import (
    FIRST_TRY_SECONDS,
    HOST_GRACE_SECONDS,
    SecondTries,
    WorkerGroup,
    WorkerPool,
)

__all__ = ["MAX_TEXT", "FunctionPool", "FunctionSource"]

MAX_TEXT = 16 * 2**20
"""Characters of a text, and of its data as JSON. A longer text is wrong."""


class FunctionPool(WorkerPool):
    """Calls a function in worker processes.

    Args:
        source: the function, and the limits of its calls.
        counts: counts verdicts by status, errors, and worker restarts.
        processes: hosts, each of which runs one call at a time.
        others: as of `contain`.
    """

    def __init__(
        self,
        source: FunctionSource,
        counts: Counter[str],
        *,
        processes: int,
        bounds: tuple[float, float] = (0.0, 1.0),
        solved_threshold: float = 1.0,
        environment: Sequence[str] = (),
        require_containment: bool = False,
    ) -> None:
        self._source = source
        self._counts = counts
        self._lowest, self._highest = bounds
        self._solved_threshold = solved_threshold
        server = ForkServer(program=PROGRAM, source=source, environment=environment)
        self._hosts = WorkerGroup(
            ROLE,
            size=processes,
            counts=counts,
            start_worker=server.start,
        )
        self._second_tries = SecondTries(ROLE, counts=counts, start_worker=server.start)
        super().__init__(
            [self._hosts],
            [server],
            second_tries=[self._second_tries],
            require_containment=require_containment,
        )

    async def call(self, text: str, data: str) -> Verdict:
        """Call the function with a text and JSON data, and judge what it returns."""
        if len(text) > MAX_TEXT:
            detail = f"a text of more than {MAX_TEXT} characters"
            verdict = Verdict(score=self._lowest, status=Status.WRONG, detail=detail)
        else:
            verdict = await self._call(text, data)
        self._counts[verdict.status.value] += 1
        warn_of_error(
            self._source.shown, verdict, self._counts[Status.VERIFIER_ERROR.value]
        )
        return verdict

    async def _call(self, text: str, data: str) -> Verdict:
        """Call the function; once more if that costs a host, or if the machine starved it."""
        # A longer limit leaves no room for two tries within a minute.
        patience = max(FIRST_TRY_SECONDS, self._source.timeout)
        request = pickle.dumps(FunctionCall(text, data, patience))
        lost: WorkerLostError
        for _ in range(2):
            try:
                reply = await self._hosts.submit(
                    request, timeout=patience + HOST_GRACE_SECONDS
                )
            except WorkerLostError as error:
                lost = error
                continue
            scores = FormScores.unpack(reply)
            if scores.outcome is Outcome.STARVED:
                second_reply = await self._second_tries.submit(
                    lambda seconds: pickle.dumps(FunctionCall(text, data, seconds))
                )
                if second_reply is not None:
                    scores = FormScores.unpack(second_reply)
            return self._judge(scores)
        return self._with_own_lowest(verdict_of_lost(lost))

    def _judge(self, scores: FormScores) -> Verdict:
        """Turn what a child wrote, which an answer may have forged, into a verdict."""
        if scores.outcome is not Outcome.SCORED:
            return self._with_own_lowest(to_verdict(scores))
        seconds = max(0.0, scores.seconds) if math.isfinite(scores.seconds) else 0.0
        lowest = self._lowest
        highest = self._highest
        if not lowest <= scores.raw <= highest:
            outside = f"returned {scores.raw:g}, outside of [{lowest:g}, {highest:g}]: set bounds"
            return Verdict(
                score=lowest,
                status=Status.VERIFIER_ERROR,
                detail=escape_control_characters(scores.detail) or outside,
                seconds=seconds,
                errors=1,
            )
        solved = scores.raw >= self._solved_threshold
        return Verdict(
            score=scores.raw,
            status=Status.SOLVED if solved else Status.WRONG,
            seconds=seconds,
            raw_score=scores.raw,
        )

    def _with_own_lowest(self, verdict: Verdict) -> Verdict:
        return (
            verdict if verdict.score is None else replace(verdict, score=self._lowest)
        )
