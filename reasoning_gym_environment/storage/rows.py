"""Records of stored rows: groups of rollouts, in dumps and in evaluation samples.

Rows are checked once, when they are read; what is written again keeps every key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..problems.seeds import is_evaluation_seed
from ..records import Attempt, GroupResult, Recipe, Reward, Signal, Status, Verdict
from ..scoring.rewards import signal
from .schema import SCHEMA_VERSION, require_group

Message = dict[str, str]
"""A `role` and a `content`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRollout:
    """One rollout; its fields have the names and the order of its keys in the files.

    Attributes:
        conversation: the prompt's messages, then the completion.
        score: the reward, which is what the trainer gets.
        raw_score: the verifier's score, in [0, 1]; None when unscored.
        raw_form_score, tagged_form_score: those of the answer's two forms.
        verify_seconds: None where the row lacks it.
        tokens: of prompt and completion; 0 where the server gave no completion.
        other: what this version does not know.
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
        """Read a rollout of a row that was checked."""
        known = {key: row[key] for key in _KEYS if key in row}
        other = {key: value for key, value in row.items() if key not in known}
        return cls(**{**known, "status": Status(row["status"])}, other=other)

    @classmethod
    def from_attempt(cls, attempt: Attempt, prompt: Sequence[Message]) -> StoredRollout:
        """Put a fresh attempt down, behind the messages that it began with."""
        completion = attempt.completion
        return cls(
            conversation=[*prompt, {"role": "assistant", "content": completion.text}],
            finish_reason=completion.finish_reason,
            tokens=len(completion.tokens),
            completion_tokens=completion.completion_tokens,
            **_grade(attempt.answer, attempt.verdict, attempt.reward),
        )

    def graded(self, answer: str | None, verdict: Verdict, reward: Reward) -> StoredRollout:
        """Give the same completion another grade."""
        return replace(self, **_grade(answer, verdict, reward))

    def to_json(self) -> dict[str, Any]:
        """Make the stored row: the inverse of `from_json`, byte for byte."""
        row = {key: getattr(self, key) for key in _KEYS}
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
        """What the model wrote."""
        return self.conversation[-1]["content"]

    @property
    def question(self) -> str:
        """The last message of the user; empty where there is none."""
        said = (m["content"] for m in reversed(self.prompt) if m["role"] == "user")
        return next(said, "")

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
        """Tokens of the completion; None where the server gave none."""
        return self.completion_tokens if self.tokens else None


_KEYS = [entry.name for entry in fields(StoredRollout) if entry.name != "other"]


def _grade(answer: str | None, verdict: Verdict, reward: Reward) -> dict[str, Any]:
    """Give the fields of a rollout that scoring it again replaces."""
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
    """All rollouts of one problem: enough to regenerate it and to score them again.

    Attributes:
        about: what else the row says, in its order: its run, the library versions, the settings
            of scoring, the time; of an evaluation sample the difficulty; what else there is.
        file: where it was read; no part of the row.
    """

    rollouts: Sequence[StoredRollout]
    schema_version: int = SCHEMA_VERSION
    recipe: Recipe
    oracle: str | None
    about: Mapping[str, Any]
    file: Path | None = field(default=None, compare=False)

    @classmethod
    def from_json(cls, row: Mapping[str, Any], *, file: Path | None = None) -> StoredGroup:
        """Check and read a row; raises ValueError, which says what is wrong with it."""
        require_group(row)
        own = ("item_id", "rollouts", "schema_version", "recipe", "oracle")
        return cls(
            rollouts=[StoredRollout.from_json(rollout) for rollout in row["rollouts"]],
            schema_version=row["schema_version"],
            recipe=Recipe.from_json(row["recipe"]),
            oracle=row["oracle"],
            about={key: value for key, value in row.items() if key not in own},
            file=file,
        )

    @classmethod
    def from_result(
        cls, group: GroupResult, prompt: Sequence[Message], run: Mapping[str, Any]
    ) -> StoredGroup:
        """Put a fresh group down.

        Args:
            prompt: the messages the rollouts began with.
            run: what is the same for all rows of a run: its name, replica, library versions.
        """
        return cls(
            rollouts=[StoredRollout.from_attempt(attempt, prompt) for attempt in group.attempts],
            recipe=group.problem.recipe,
            oracle=group.problem.oracle,
            about=run,
        )

    def as_sample(self, difficulty: float | None) -> StoredGroup:
        """Make a sample of an evaluation of it; None is the task's default difficulty."""
        return replace(self, about={**self.about, "difficulty": difficulty})

    def to_json(self) -> dict[str, Any]:
        """Make the stored row: the inverse of `from_json`, with our keys first."""
        return {
            "item_id": self.task,
            "rollouts": [rollout.to_json() for rollout in self.rollouts],
            "schema_version": self.schema_version,
            "recipe": self.recipe.to_json(),
            "oracle": self.oracle,
            **self.about,
        }

    def line(self) -> str:
        """Make the stored row as a line of a file, in ASCII."""
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
        """The rollouts about which the verifier could say something."""
        return [rollout for rollout in self.rollouts if rollout.scored]

    @property
    def solved(self) -> int:
        """How many rollouts are solved."""
        return sum(rollout.solved for rollout in self.rollouts)

    @property
    def signal(self) -> Signal | None:
        """Whether the group teaches, as `scoring.rewards.signal` says."""
        return signal([Verdict(score=r.raw_score, status=r.status) for r in self.rollouts])

    @property
    def recipe_key(self) -> str:
        """A name that is equal for groups of the same problem, whichever files they are in."""
        return recipe_key(self.recipe)

    @property
    def item_key(self) -> str:
        """A name that is equal for the same item in two evaluations, whoever answered it."""
        conversation = self.rollouts[0].conversation
        asked = [message["content"] for message in conversation if message["role"] == "user"]
        return stable_json([self.recipe.to_json(), asked])

    @property
    def is_sample(self) -> bool:
        """Whether it is of an evaluation: only those name a difficulty, or None for the default."""
        return "difficulty" in self.about

    @property
    def has_evaluation_seed(self) -> bool:
        return is_evaluation_seed(self.recipe.seed)

    @property
    def difficulty(self) -> float | None:
        """What an evaluation asked for, in [0, 1]; None for the library's default configuration."""
        difficulty: float | None = self.about.get("difficulty")
        return difficulty

    @property
    def scoring(self) -> Mapping[str, Any]:
        """The settings of its scores; empty in rows that don't say."""
        return dict(self.about.get("scoring", {}))

    @property
    def library_versions(self) -> Mapping[str, Any]:
        """The versions by library; empty in rows that don't say."""
        return dict(self.about.get("library_versions", {}))

    @property
    def time(self) -> str:
        """When it was written, ISO 8601 in UTC; empty in rows that don't say."""
        return str(self.about.get("time", ""))


def recipe_key(recipe: Recipe) -> str:
    """Name a problem: the same text for equal recipes."""
    return stable_json(recipe.to_json())


def stable_json(value: Any) -> str:
    """Write JSON that is the same text for equal values."""
    return json.dumps(value, sort_keys=True)
