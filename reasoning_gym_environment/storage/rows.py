"""Records of stored rows: groups of rollouts, in dumps and in evaluation samples.

Rows are validated once, when they are read. Keys that this version doesn't know are kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from ..problems.seeds import is_evaluation_seed
from ..records import (
    UPSTREAM_THRESHOLD,
    Attempt,
    GroupResult,
    Problem,
    Recipe,
    Reward,
    Signal,
    Status,
    Verdict,
)
from ..scoring.rewards import signal
from ..tasks.recipes import LIBRARY, read_recipe
from ..util.models import validate

SCHEMA_VERSION = 1

Message = dict[str, str]
"""A `role` and a `content`."""

# Integers up to 2**53 survive every format: JSON, Arrow and doubles.
_Integer = Annotated[int, Meta(ge=-(2**53), le=2**53)]
_Number = _Integer | Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
_Score = Annotated[int, Meta(ge=0, le=1)] | Annotated[float, Meta(ge=0.0, le=1.0)]


class _Message(Struct):
    role: str
    content: str


class _Rollout(Struct):
    conversation: Annotated[list[_Message], Meta(min_length=1)]
    score: _Number
    answer: str | None
    status: Status
    detail: str
    raw_score: _Score | None
    raw_form_score: _Number | None
    tagged_form_score: _Number | None
    length_factor: _Number
    finish_reason: str
    tokens: _Integer
    completion_tokens: _Integer
    verify_seconds: _Number = 0.0


class _Recipe(Struct, forbid_unknown_fields=True):
    task: str
    seed: _Integer
    level: _Number | None
    parameters: dict[str, Any]
    library_version: str | None = None


class _Row(Struct):
    """Keys with a default are missing in some rows."""

    item_id: str
    recipe: _Recipe
    oracle: str | None
    rollouts: Annotated[list[_Rollout], Meta(min_length=1)]
    schema_version: _Integer
    scoring: dict[str, Any] = {}
    library_versions: dict[str, Any] = {}
    time: str = ""
    number: _Integer = 0
    difficulty: _Number | None = None
    asked_again: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRollout:
    """One rollout; fields have the names and the order of its stored keys.

    Attributes:
        conversation: the prompt's messages, then the completion.
        score: the reward that the trainer gets.
        raw_score: the verifier's score, in [0, 1]; None when unscored.
        raw_form_score, tagged_form_score: scores of the bare and of the tagged answer.
        verify_seconds: None where the row lacks it.
        tokens: of prompt and completion; 0 without a completion.
        other: keys that this version doesn't know.
    """

    conversation: Sequence[Message]
    score: float
    answer: str | None
    status: Status
    detail: str
    raw_score: float | None
    raw_form_score: float | None
    tagged_form_score: float | None
    length_factor: float
    verify_seconds: float | None = None
    finish_reason: str
    tokens: int
    completion_tokens: int
    other: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> StoredRollout:
        """Read a rollout of a validated row."""
        known = {key: row[key] for key in _ROLLOUT_KEYS if key in row}
        other = {key: value for key, value in row.items() if key not in known}
        return cls(**{**known, "status": Status(row["status"])}, other=other)

    @classmethod
    def from_attempt(cls, attempt: Attempt, prompt: Sequence[Message]) -> StoredRollout:
        """Record a fresh attempt after the messages of its prompt."""
        completion = attempt.completion
        return cls(
            conversation=[*prompt, {"role": "assistant", "content": completion.text}],
            finish_reason=completion.finish_reason,
            tokens=completion.length,
            completion_tokens=completion.completion_tokens,
            **_grade(attempt.answer, attempt.verdict, attempt.reward),
        )

    def with_grade(self, answer: str | None, verdict: Verdict, reward: Reward) -> StoredRollout:
        """Return the same completion with another grade."""
        return replace(self, **_grade(answer, verdict, reward))

    def to_json(self) -> dict[str, Any]:
        """Return the stored row: the inverse of `from_json`, byte for byte."""
        row = {key: getattr(self, key) for key in _ROLLOUT_KEYS}
        row["status"] = self.status.value
        if self.verify_seconds is None:
            del row["verify_seconds"]
        return {**row, **self.other}

    @property
    def prompt(self) -> Sequence[Message]:
        """The messages before the completion."""
        return self.conversation[:-1]

    @property
    def text(self) -> str:
        """The completion's text."""
        return self.conversation[-1]["content"]

    @property
    def question(self) -> str:
        """The user's last message; empty without one."""
        contents = (m["content"] for m in reversed(self.prompt) if m["role"] == "user")
        return next(contents, "")

    @property
    def scored(self) -> bool:
        return self.raw_score is not None

    @property
    def solved(self) -> bool:
        return self.status is Status.SOLVED

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"

    @property
    def length(self) -> int | None:
        """Tokens of the completion; None without one."""
        return self.completion_tokens if self.tokens else None


_ROLLOUT_KEYS = [entry.name for entry in fields(StoredRollout) if entry.name != "other"]


def _grade(answer: str | None, verdict: Verdict, reward: Reward) -> dict[str, Any]:
    """Return the fields of a rollout that scoring determines."""
    return {
        "score": reward.value,
        "answer": answer,
        "status": verdict.status,
        "detail": verdict.detail,
        "raw_score": verdict.score,
        "raw_form_score": verdict.raw_score,
        "tagged_form_score": verdict.tagged_score,
        "length_factor": reward.length_factor,
        "verify_seconds": round(verdict.seconds, 6),
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredGroup:
    """All rollouts of one problem, with what regenerates and rescores it.

    Attributes:
        about: the row's other keys in their order: run, library versions, scoring settings, time,
            the difficulty of an evaluation sample, and unknown ones.
        file: where it was read; not part of the row.
    """

    rollouts: Sequence[StoredRollout]
    schema_version: int = SCHEMA_VERSION
    recipe: Recipe
    oracle: str | None
    about: Mapping[str, Any]
    file: Path | None = field(default=None, compare=False)

    @classmethod
    def from_json(cls, row: Mapping[str, Any], *, file: Path | None = None) -> StoredGroup:
        """Validate and read a row; raises ValueError with what is wrong with it."""
        validate(row, _Row)
        recipe = read_recipe(row["recipe"])
        if row["item_id"] != recipe.task:
            raise ValueError(f"item_id must be its recipe's task, got {row['item_id']!r:.50}")
        return cls(
            rollouts=[StoredRollout.from_json(rollout) for rollout in row["rollouts"]],
            schema_version=row["schema_version"],
            recipe=recipe,
            oracle=row["oracle"],
            about={key: value for key, value in row.items() if key not in _GROUP_KEYS},
            file=file,
        )

    @classmethod
    def from_result(
        cls, group: GroupResult, prompt: Sequence[Message], run: Mapping[str, Any]
    ) -> StoredGroup:
        """Record a fresh group.

        Args:
            prompt: the messages that all rollouts begin with.
            run: keys with the same value in all rows of a run: its name, replica, library versions.
        """
        return cls(
            rollouts=[StoredRollout.from_attempt(attempt, prompt) for attempt in group.attempts],
            recipe=group.problem.recipe,
            oracle=group.problem.oracle,
            about={**run, **fault_key(group.problem), **asked_again_key(group.problem)},
        )

    def as_sample(self, difficulty: float | None) -> StoredGroup:
        """Return it as an evaluation sample; None is the task's default difficulty."""
        return replace(self, about={**self.about, "difficulty": difficulty})

    def to_json(self) -> dict[str, Any]:
        """Return the stored row: the inverse of `from_json`, with our keys first."""
        return {
            "item_id": self.task,
            "rollouts": [rollout.to_json() for rollout in self.rollouts],
            "schema_version": self.schema_version,
            "recipe": self.recipe.to_json(),
            "oracle": self.oracle,
            **self.about,
        }

    def line(self) -> str:
        """Return the stored row as an ASCII line."""
        return json.dumps(self.to_json()) + "\n"

    @property
    def task(self) -> str:
        return self.recipe.task

    @property
    def prompt(self) -> Sequence[Message]:
        return self.rollouts[0].prompt

    @property
    def question(self) -> str:
        return self.rollouts[0].question

    @property
    def scored(self) -> list[StoredRollout]:
        """The rollouts that have a verifier score."""
        return [rollout for rollout in self.rollouts if rollout.scored]

    @property
    def solved(self) -> int:
        """The number of solved rollouts."""
        return sum(rollout.solved for rollout in self.rollouts)

    @property
    def signal(self) -> Signal | None:
        """The group's training signal; see `scoring.rewards.signal`."""
        return signal([Verdict(score=r.raw_score, status=r.status) for r in self.rollouts])

    @property
    def item_key(self) -> str:
        """A key for the same item in two evaluations: its recipe and the user's messages."""
        conversation = self.rollouts[0].conversation
        user = [message["content"] for message in conversation if message["role"] == "user"]
        return stable_json([self.recipe.identity(), user])

    @property
    def is_sample(self) -> bool:
        """Whether it is an evaluation sample: only those have a difficulty, possibly None."""
        return "difficulty" in self.about

    @property
    def has_evaluation_seed(self) -> bool:
        return is_evaluation_seed(self.recipe.seed)

    @property
    def difficulty(self) -> float | None:
        """The evaluation's difficulty, in [0, 1]; None for the library's default configuration."""
        difficulty: float | None = self.about.get("difficulty")
        return difficulty

    @property
    def asked_again(self) -> bool:
        """Whether its run had asked the problem before."""
        return bool(self.about.get("asked_again"))

    @property
    def scoring(self) -> Mapping[str, Any]:
        """The scoring settings; empty in rows without them."""
        return dict(self.about.get("scoring", {}))

    @property
    def solved_threshold(self) -> float | None:
        """The score from which its rollouts count as solved; None is each task's own.

        Rows without one are of versions that knew upstream's rule alone.
        """
        threshold: float | None = self.scoring.get("solved_threshold", UPSTREAM_THRESHOLD)
        return threshold

    @property
    def library_versions(self) -> Mapping[str, Any]:
        """Versions by library; empty in rows without them."""
        return dict(self.about.get("library_versions", {}))

    @property
    def library_version(self) -> str:
        """The version of reasoning-gym that made the problem, as far as the row tells."""
        made = self.recipe.library_version or self.library_versions.get(LIBRARY)
        return str(made or "an unknown version")

    @property
    def is_faulty(self) -> bool:
        """Whether the item is known to be faulty: see `rescore` for rows of older versions."""
        return "fault" in self.about

    @property
    def number(self) -> int:
        """Its number among the training groups of its run, from 1; 0 where rows have none."""
        return int(self.about.get("number", 0))

    @property
    def time(self) -> str:
        """When it was written, ISO 8601 in UTC; empty in rows without it."""
        return str(self.about.get("time", ""))


def fault_key(problem: Problem) -> dict[str, Any]:
    """Return the key of a faulty item's rows; no other row has it."""
    return {} if problem.fault is None else {"fault": problem.fault.to_json()}


def asked_again_key(problem: Problem) -> dict[str, bool]:
    """Return the row's key for a problem that was asked before; empty for a fresh one."""
    return {"asked_again": True} if problem.asked_again else {}


_GROUP_KEYS = ("item_id", "rollouts", "schema_version", "recipe", "oracle")


def stable_json(value: Any) -> str:
    """Return the same JSON for equal values."""
    return json.dumps(value, sort_keys=True)
