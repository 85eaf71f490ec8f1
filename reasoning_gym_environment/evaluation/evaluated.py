"""Evaluation items as they are read back from their samples, fresh or stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..records import Status


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one attempt.

    Attributes:
        score: the verifier's, in [0, 1]; None when unscored.
        reward: the score after the length penalty.
        tokens: of the completion; None when the server gave none.
    """

    status: Status
    score: float | None
    reward: float
    tokens: int | None
    truncated: bool

    @property
    def solved(self) -> float:
        return float(self.status is Status.SOLVED)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluatedItem:
    """All attempts at one item.

    Attributes:
        key: equal for the same item in two evaluations, whoever answered it.
        difficulty: in [0, 1]; None for the library's default configuration.
    """

    key: str
    task: str
    difficulty: float | None
    outcomes: tuple[Outcome, ...]

    @property
    def scored(self) -> tuple[Outcome, ...]:
        return tuple(o for o in self.outcomes if o.score is not None)


def item_from_row(row: Mapping[str, Any]) -> EvaluatedItem:
    """Read one line of `samples.jsonl`.

    Raises:
        LookupError, TypeError, ValueError: it is not one.
    """
    rollouts = row["rollouts"]
    asked = [m["content"] for m in rollouts[0]["conversation"] if m["role"] == "user"]
    return EvaluatedItem(
        key=json.dumps([row["recipe"], asked], sort_keys=True),
        task=row["recipe"]["task"],
        difficulty=row["difficulty"],
        outcomes=tuple(_outcome(rollout) for rollout in rollouts),
    )


def _outcome(rollout: Mapping[str, Any]) -> Outcome:
    return Outcome(
        status=Status(rollout["status"]),
        score=None if rollout["raw_score"] is None else _share(rollout["raw_score"]),
        reward=float(rollout["score"]),
        tokens=int(rollout["completion_tokens"]) if rollout["tokens"] else None,
        truncated=rollout["finish_reason"] == "length",
    )


def _share(value: Any) -> float:
    number = float(value)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"a score of {number} is not in [0, 1]")
    return number
