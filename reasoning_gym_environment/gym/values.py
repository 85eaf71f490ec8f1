"""What the gym gives: scores, and what it says of tasks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..records import Status


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """What became of one completion.

    Attributes:
        score: in [0, 1], of the better of the bare and the tagged answer; None where nothing can
            be said, which is our failure: leave the completion out, it is not worth 0.
        status: what happened; solved from `solved_threshold` on.
        answer: what stands between the answer tags; None unless there is exactly one.
        detail: what happened, for people; empty when there is nothing to add.
        seconds: spent in the verifier.
    """

    score: float | None
    status: Status
    answer: str | None = None
    detail: str = ""
    seconds: float = 0.0

    @property
    def solved(self) -> bool:
        """Whether the status is solved."""
        return self.status is Status.SOLVED

    def to_json(self) -> dict[str, Any]:
        """Write plain JSON."""
        return {**asdict(self), "status": self.status.value}


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSummary:
    """A task of the library, whose levels go from 0, the easiest, to `levels - 1`."""

    name: str
    category: str
    levels: int
