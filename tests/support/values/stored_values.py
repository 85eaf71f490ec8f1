"""Stored groups as the real code writes them, for tests of what reads them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from reasoning_gym_environment.inference.prompts import build_messages
from reasoning_gym_environment.records import (
    Attempt,
    Completion,
    GroupResult,
    Problem,
    Recipe,
    Reward,
    Status,
    Verdict,
)
from reasoning_gym_environment.storage.rows import StoredGroup

RUN: Mapping[str, Any] = {
    "run": "a run",
    "replica": "gym_0",
    "library_versions": {"reasoning-gym": "0.1.25", "atroposlib": "0.4.0"},
}


def said(text: str, *, tokens: int = 4, finish_reason: str = "stop") -> Completion:
    """A completion of that many tokens, without a prompt."""
    own = tuple(range(tokens))
    return Completion(
        text=text, tokens=own, masks=own, logprobs=None, finish_reason=finish_reason
    )


def attempt(
    score: float | None,
    text: str = "<answer>4</answer>",
    *,
    finish_reason: str = "stop",
) -> Attempt:
    """A rollout of that score; None is an unscored one."""
    status = Status.UNSCORED if score is None else Status.WRONG
    if score is not None and score >= 0.5:
        status = Status.SOLVED
    return Attempt(
        completion=said(text, finish_reason=finish_reason),
        answer="4",
        verdict=Verdict(score=score, status=status, raw_score=score),
        reward=Reward(value=0.75 if score is None else score),
    )


def as_stored(group: GroupResult, **extra: Any) -> dict[str, Any]:
    """The group's row after a round trip through a file."""
    prompt = build_messages("Think.", group.problem.question)
    fresh = StoredGroup.from_result(group, prompt, {**RUN, **extra})
    row: dict[str, Any] = json.loads(json.dumps(fresh.to_json()))
    return row


def stored(
    *attempts: Attempt, seed: int = 2, question: str | None = None, task: str = "gcd"
) -> dict[str, Any]:
    """A row of a problem that no library made; the question names the seed."""
    problem = Problem(
        recipe=Recipe(task=task, seed=seed),
        question=question or f"Question {seed}?",
        oracle="4",
        entry=b"",
    )
    return as_stored(GroupResult(problem=problem, attempts=attempts))


def write_dump(
    path: Path, rows: Iterable[dict[str, Any]], *, torn: bool = False
) -> Path:
    """The rows in a file, which ends in the middle of a line where it is torn."""
    end = '{"item_id": "gc' if torn else ""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + end)
    return path
