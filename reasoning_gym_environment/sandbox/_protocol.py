"""The protocol between the event loop's process and its workers, over pipes and sockets.

Requests are pickles, which a worker may trust. The parent unpickles nothing: a generator's reply is
JSON with an entry's bytes, as it may have imported a user's module, and a verifier's is fixed-size
raw numbers, as it saw model text.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, BinaryIO, Generic, Literal, NamedTuple, TypeVar

from ..records import Fault, Recipe, Status, Verdict
from ..util.values import escape_control_characters

LENGTH = struct.Struct("<I")
"""The header of every frame: how many bytes follow."""

MAX_REPLY = 16 * 2**20
"""Bytes of a worker's reply: a problem with its recipe has fewer."""

MAX_ANSWERS = 16 * 2**20
"""Characters of all answers in one request."""

MAX_ANSWER = 2**20
"""Characters of an answer; a right one is no longer than its problem."""

OUT_OF_MEMORY = b""
"""The reply of a worker that ends because its memory is used up."""

FORM_SCORES = struct.Struct("<Bdddi400s")
"""`Outcome`, raw and tagged score (NaN if the form was not tried or raised), seconds, errors, and
the error of a user's function or verifier."""


class Inspect(NamedTuple):
    """Asks a generator what the entry of a recipe is like."""

    recipe: Recipe


class Solve(NamedTuple):
    """Asks a generator to answer the problem of a recipe by its task's own solver."""

    recipe: Recipe


class CheckEntry(NamedTuple):
    """Asks a generator for the fault of an entry from outside, as that of a `MadeProblem`."""

    task: str
    entry: dict[str, Any]


Request = (
    Recipe
    | Inspect
    | Solve
    | CheckEntry
    | frozenset[str]
    | Literal["ladders", "module"]
)
"""Asks a generator for the problem of a recipe, what its entry is like, or its solver's answer; for
a `Discovery`, where these tasks are known to build and not tried; for every task's `TaskLadder`; or
for the `ModuleTasks` of its process."""

Message = TypeVar("Message")


@dataclass(frozen=True, kw_only=True, slots=True)
class MadeProblem:
    """A problem but for its recipe and its entry, which follows the reply as bytes.

    Its `fault` says nothing of whether a completion can give the label.
    """

    question: str
    oracle: str | None
    fault: Fault | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """An entry as text, fields that JSON would change, and bytes by which it grew the peak."""

    content: str
    json_changes: str
    memory: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondAnswer:
    """What a task's own solver answers."""

    answer: str


@dataclass(frozen=True, kw_only=True)
class Reply(Generic[Message]):
    """A message, or what went wrong, and the digest of the module that this process has."""

    message: Message | None = None
    error: str = ""
    digest: str = ""


class Outcome(IntEnum):
    """How a child ended with one answer."""

    SCORED = 0
    TIMEOUT = 1
    OUT_OF_MEMORY = 2
    CRASHED = 3
    REJECTED = 4
    KILLED = 5
    STARVED = 6
    UNTRIED = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class EntryAnswers:
    """A request to score the answers to one entry.

    Attributes:
        answers: distinct, in the order of the verdicts.
        timeout: seconds that one answer may work or wait, both forms together.
        patience: seconds on the wall for one answer; then the machine has starved it.
        group_timeout: seconds on the wall for all answers; the rest is then not tried.
        is_own_task: whether the task is a user's, whose verifier may import and pays nothing for
            tags.
        single_use: whether each answer to such a task has a child of its own.
    """

    task: str
    entry: bytes
    answers: tuple[str, ...]
    timeout: float
    patience: float
    group_timeout: float
    parameters: Mapping[str, Any] = field(default_factory=dict)
    is_own_task: bool = False
    single_use: bool = False


class FunctionCall(NamedTuple):
    """A request to call a contained function.

    Attributes:
        data: JSON that the child reads, not its host.
        patience: as of `EntryAnswers`, for all attempts together.
    """

    text: str
    data: str
    patience: float


@dataclass(frozen=True, kw_only=True, slots=True)
class FormScores:
    """The result for one answer; `detail` is untrusted text from the child of a user's verifier."""

    outcome: Outcome
    raw: float = math.nan
    tagged: float = math.nan
    seconds: float = 0.0
    errors: int = 0
    detail: str = ""

    def pack(self) -> bytes:
        numbers = self.outcome, self.raw, self.tagged, self.seconds, self.errors
        return FORM_SCORES.pack(*numbers, self.detail.encode(errors="replace"))

    @property
    def deferred(self) -> bool:
        """Whether the answer was not scored, since it needs a single-use child."""
        return self.errors == -1

    @classmethod
    def defer(cls) -> FormScores:
        """Return a persistent worker's result for an answer that it does not score."""
        return cls(outcome=Outcome.REJECTED, errors=-1)

    @classmethod
    def unpack(cls, data: bytes) -> FormScores:
        """Read a record; raise ValueError for an unknown outcome, struct.error for a wrong size."""
        outcome, raw, tagged, seconds, errors, detail = FORM_SCORES.unpack(data)
        return cls(
            outcome=Outcome(outcome),
            raw=raw,
            tagged=tagged,
            seconds=seconds,
            errors=errors,
            detail=detail.rstrip(b"\0").decode(errors="replace"),
        )


STARVED = "the machine was too busy to verify it"
"""The detail of an answer whose child had no processor for most of the time."""

_FAILURES = {
    Outcome.TIMEOUT: (0.0, Status.TIMEOUT, "the verifier did not finish in time"),
    Outcome.OUT_OF_MEMORY: (
        0.0,
        Status.OUT_OF_MEMORY,
        "the verifier ran out of memory",
    ),
    Outcome.CRASHED: (0.0, Status.CRASHED, "the verifier's process died"),
    Outcome.REJECTED: (0.0, Status.REJECTED, "answers of this kind are not evaluated"),
    Outcome.KILLED: (
        None,
        Status.UNSCORED,
        "the verifier's process was killed from outside",
    ),
    Outcome.STARVED: (None, Status.UNSCORED, STARVED),
    Outcome.UNTRIED: (
        None,
        Status.UNSCORED,
        "the time of its group was over before it was verified",
    ),
}


def is_starved(verdict: Verdict) -> bool:
    """Return whether a verdict is that of an answer that the machine starved."""
    return verdict.status is Status.UNSCORED and verdict.detail == STARVED


def to_verdict(scores: FormScores, *, solved_from: float = 1.0) -> Verdict:
    """Turn the scores of both forms into a verdict; the higher one counts.

    Scores are clipped to [0, 1]: some verifiers leave that range. NaN counts as 0. An answer that
    did not finish earns nothing for either form.
    """
    seconds = max(0.0, scores.seconds) if math.isfinite(scores.seconds) else 0.0
    if scores.outcome is not Outcome.SCORED:
        none, status, detail = _FAILURES[scores.outcome]
        return Verdict(
            score=none,
            status=status,
            detail=detail,
            seconds=seconds,
        )
    forms = (scores.raw, scores.tagged)
    raw, tagged = (
        None if math.isnan(form) else min(1.0, max(0.0, form)) for form in forms
    )
    score = max(raw or 0.0, tagged or 0.0)
    errors = min(2, max(0, scores.errors))
    status = Status.SOLVED if score >= solved_from else Status.WRONG
    if score == 0.0 and errors:
        status = Status.VERIFIER_ERROR
    return Verdict(
        score=score,
        status=status,
        detail=escape_control_characters(scores.detail) if errors else "",
        seconds=seconds,
        raw_score=raw,
        tagged_score=tagged,
        errors=errors,
    )


def unpack_verdicts(
    payload: bytes, count: int, *, solved_from: float = 1.0
) -> list[Verdict]:
    """Read a verifier host's reply; raise ValueError unless it is `count` well-formed records."""
    if len(payload) != count * FORM_SCORES.size:
        raise ValueError(f"{len(payload)} bytes for {count} verdicts")
    return [
        to_verdict(
            FormScores.unpack(payload[start : start + FORM_SCORES.size]),
            solved_from=solved_from,
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
