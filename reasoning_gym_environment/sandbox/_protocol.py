"""The protocol between the event loop's process and its workers, over pipes and sockets.

Requests and a generator's replies are pickles: both ends trust each other. A verifier's reply is
fixed-size raw numbers: it comes from a process that saw model text, and the parent never unpickles
what such a process sends.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, BinaryIO

from ..records import SOLVED_SCORE, Status, Verdict

LENGTH = struct.Struct("<I")
"""The header of every frame: how many bytes follow."""

FORM_SCORES = struct.Struct("<Bdddi")
"""`Outcome`, raw and tagged score (NaN if the form was not tried or raised), seconds, errors."""


class Outcome(IntEnum):
    """How a child ended with one answer."""

    SCORED = 0
    TIMEOUT = 1
    OUT_OF_MEMORY = 2
    CRASHED = 3
    REJECTED = 4
    KILLED = 5


_DEFERRED = -1
"""In place of the number of errors."""


class Containment(Enum):
    """The layers between model text and the machine.

    Less than FULL is for tests of single layers, and for measuring their cost.
    """

    FULL = "screen, sandbox, limits, children"
    UNSCREENED = "sandbox, limits, children"
    FORKS = "limits on time and memory, children"


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyRequest:
    """A request to score the answers to one entry.

    Attributes:
        answers: distinct, in the order of the verdicts.
        timeout: seconds for one answer, both forms together.
        group_timeout: seconds for all answers; the rest then counts as timed out.
    """

    task: str
    entry: bytes
    answers: tuple[str, ...]
    timeout: float
    group_timeout: float
    parameters: Mapping[str, Any] = field(default_factory=dict)
    containment: Containment = Containment.FULL

    @property
    def sandboxed(self) -> bool:
        """Whether children are kept from files, sockets, processes and signals."""
        return self.containment is not Containment.FORKS


@dataclass(frozen=True, kw_only=True, slots=True)
class FormScores:
    """The result for one answer, from a child or from the host in its place."""

    outcome: Outcome
    raw: float = math.nan
    tagged: float = math.nan
    seconds: float = 0.0
    errors: int = 0

    def pack(self) -> bytes:
        return FORM_SCORES.pack(self.outcome, self.raw, self.tagged, self.seconds, self.errors)

    @property
    def deferred(self) -> bool:
        """Whether the answer was not scored, since it needs a single-use child."""
        return self.errors == _DEFERRED

    @classmethod
    def defer(cls) -> FormScores:
        """Return a persistent worker's result for an answer that it does not score."""
        return cls(outcome=Outcome.REJECTED, errors=_DEFERRED)

    @classmethod
    def unpack(cls, data: bytes) -> FormScores:
        """Read a record; raise ValueError for an unknown outcome, struct.error for a wrong size."""
        outcome, raw, tagged, seconds, errors = FORM_SCORES.unpack(data)
        return cls(outcome=Outcome(outcome), raw=raw, tagged=tagged, seconds=seconds, errors=errors)


_FAILURES = {
    Outcome.TIMEOUT: (Status.TIMEOUT, "the verifier did not finish in time"),
    Outcome.OUT_OF_MEMORY: (Status.OUT_OF_MEMORY, "the verifier ran out of memory"),
    Outcome.CRASHED: (Status.CRASHED, "the verifier's process died"),
    Outcome.REJECTED: (Status.REJECTED, "answers of this kind are not evaluated"),
}


def to_verdict(scores: FormScores, *, solved_from: float = SOLVED_SCORE) -> Verdict:
    """Turn scores into a verdict. An answer that did not finish earns nothing for either form.

    An answer whose process was killed from outside is unscored.
    """
    seconds = max(0.0, scores.seconds) if math.isfinite(scores.seconds) else 0.0
    if scores.outcome in _FAILURES:
        status, detail = _FAILURES[scores.outcome]
        return Verdict(score=0.0, status=status, detail=detail, seconds=seconds)
    if scores.outcome is Outcome.KILLED:
        detail = "the verifier's process was killed from outside"
        return Verdict(score=None, status=Status.UNSCORED, detail=detail, seconds=seconds)
    return combine_forms(
        None if math.isnan(scores.raw) else scores.raw,
        None if math.isnan(scores.tagged) else scores.tagged,
        errors=min(2, max(0, scores.errors)),
        seconds=seconds,
        solved_from=solved_from,
    )


def combine_forms(
    raw: float | None,
    tagged: float | None,
    *,
    errors: int = 0,
    seconds: float = 0.0,
    solved_from: float = SOLVED_SCORE,
) -> Verdict:
    """Return the verdict on an answer from the scores of its two forms; the higher one wins.

    None stands for a form for which the verifier raised or returned NaN, and counts as 0.
    Scores are clipped to [0, 1]: some verifiers leave that range.
    """
    clipped = [None if s is None or math.isnan(s) else min(1.0, max(0.0, s)) for s in (raw, tagged)]
    score = max(s or 0.0 for s in clipped)
    status = Status.SOLVED if score >= solved_from else Status.WRONG
    if score == 0.0 and errors:
        status = Status.VERIFIER_ERROR
    return Verdict(
        score=score,
        status=status,
        seconds=seconds,
        raw_score=clipped[0],
        tagged_score=clipped[1],
        errors=errors,
    )


def unpack_verdicts(
    payload: bytes, count: int, *, solved_from: float = SOLVED_SCORE
) -> list[Verdict]:
    """Read a verifier host's reply to a request with `count` answers.

    Raises:
        ValueError: the reply is not `count` well-formed records.
    """
    if len(payload) != count * FORM_SCORES.size:
        raise ValueError(f"{len(payload)} bytes for {count} verdicts")
    return [
        to_verdict(
            FormScores.unpack(payload[start : start + FORM_SCORES.size]), solved_from=solved_from
        )
        for start in range(0, len(payload), FORM_SCORES.size)
    ]


def read_frame(stream: BinaryIO) -> bytes | None:
    """Read the next frame; return None if the stream ends, also in the middle of a frame."""
    header = stream.read(LENGTH.size)
    if len(header) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(header)
    payload = stream.read(length)
    return payload if len(payload) == length else None


def write_frame(stream: BinaryIO, payload: bytes) -> None:
    stream.write(LENGTH.pack(len(payload)) + payload)
    stream.flush()
