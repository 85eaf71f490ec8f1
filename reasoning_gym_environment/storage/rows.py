"""Records of stored rows: groups of rollouts, in dumps and in evaluation samples.

Rows are validated once, when they are read. Keys that this version doesn't know are kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import asdict, replace

from ..records import (
    Attempt,
    GroupResult,
    Problem,
    Recipe,
    Reward,
    Signal,
    Status,
    Verdict,
)
from ..scoring.extraction import AnswerFormat
from ..scoring.grading import ScoringSettings, signal
from ..tasks.facts import LIBRARY
from ..tasks.recipes import read_recipe
from ..util.values import convert, shorten

SCHEMA_VERSION = 1

# Integers up to 2**53 survive every format: JSON, Arrow and doubles.
Integer = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Number = Integer | Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
VerifierScore = (
    Annotated[int, Meta(ge=0, le=1)] | Annotated[float, Meta(ge=0.0, le=1.0)]
)


class Message(TypedDict):
    """A message of a conversation."""

    role: str
    content: str


class StoredScoring(TypedDict, total=False):
    """The settings that a row was scored with, of those that readers use; it may have others."""

    scoring_version: Integer
    solved_threshold: Number | None
    answer_format: AnswerFormat


class StoredRollout(Struct, frozen=True, kw_only=True):
    """One rollout; fields have the names and the order of its stored keys.

    Attributes:
        conversation: the prompt's messages, then the completion.
        score: the reward that the trainer gets.
        raw_score: the verifier's score, in [0, 1]; None when unscored.
        raw_form_score, tagged_form_score: scores of the bare and of the tagged answer.
        tokens: of prompt and completion; 0 without a completion.
        server_finish_reason: the server's own word; None if it gave none, and in older rows.
        other: keys that this version doesn't know.
    """

    conversation: Annotated[list[Message], Meta(min_length=1)]
    score: Number
    answer: str | None
    status: Status
    detail: str
    raw_score: VerifierScore | None
    raw_form_score: Number | None
    tagged_form_score: Number | None
    length_factor: Number
    verify_seconds: Number = 0.0
    finish_reason: str
    server_finish_reason: str | None = None
    tokens: Integer
    completion_tokens: Integer
    other: dict[str, Any] = field(default_factory=dict, name="(other)")

    @classmethod
    def from_attempt(
        cls, attempt: Attempt, prompt: Sequence[Mapping[str, str]]
    ) -> StoredRollout:
        """Record a fresh attempt after the messages of its prompt."""
        completion = attempt.completion
        conversation = [*prompt, {"role": "assistant", "content": completion.text}]
        return cls(
            conversation=cast("list[Message]", conversation),
            finish_reason=completion.finish_reason,
            server_finish_reason=completion.server_finish_reason,
            tokens=completion.length,
            completion_tokens=completion.completion_tokens,
            **grade_fields(attempt.answer, attempt.verdict, attempt.reward),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the stored row."""
        row = {**asdict(self), "status": self.status.value}
        del row["other"]
        if self.server_finish_reason is None:
            del row["server_finish_reason"]
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
    def complete(self) -> bool:
        """Whether the model has ended it; see `Completion.complete`."""
        return self.finish_reason == "stop"

    @property
    def length(self) -> int | None:
        """Tokens of the completion; None without one."""
        return self.completion_tokens if self.tokens else None


def grade_fields(
    answer: str | None, verdict: Verdict, reward: Reward
) -> dict[str, Any]:
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


class StoredGroup(Struct, frozen=True, kw_only=True):
    """All rollouts of one problem, with what regenerates and rescores it.

    Fields have the names and the order of the row's keys, whose first is `item_id`, the task. A row
    lacks the keys of fields with their default.

    Attributes:
        number: among the training groups of its run, from 1.
        step: the trainer's when it was written, or that of the evaluated checkpoint.
        time: when it was written, ISO 8601 in UTC.
        asked_again: whether its run had asked the problem before.
        source, chance: of its problem, if its task is a user's own.
        also_trained_on: whether training asks the questions of this sample's level too.
        sampled_at: the key `difficulty` of evaluation samples, in [0, 1]; None for the library's
            default configuration.
        other: keys that this version doesn't know.
        file: where it was read; not part of the row.
    """

    rollouts: Annotated[list[StoredRollout], Meta(min_length=1)]
    schema_version: Integer = SCHEMA_VERSION
    recipe: Recipe
    oracle: str | None
    run: str = ""
    replica: str | UnsetType = UNSET
    library_versions: dict[str, Any] = {}
    number: Integer = 0
    step: Integer | None = None
    scoring: StoredScoring = {}
    time: str = ""
    fault: dict[str, Any] | UnsetType = UNSET
    asked_again: bool = False
    source: str = ""
    chance: Number | None = None
    also_trained_on: bool = False
    sampled_at: Number | UnsetType | None = field(default=UNSET, name="difficulty")
    other: dict[str, Any] = field(default_factory=dict, name="(other)")
    file: Path | None = field(default=None, name="(file)")

    @classmethod
    def from_json(
        cls, row: Mapping[str, Any], *, file: Path | None = None
    ) -> StoredGroup:
        """Validate and read a row; raises ValueError with what is wrong with it."""
        version = convert(row, dict[str, Any]).get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(
                f"schema_version must be {SCHEMA_VERSION}, got {shorten(version)}"
            )
        recipe = read_recipe(row.get("recipe"))
        # The recipe is read already, and its level may have a decimal point.
        plain = {"task": recipe.task, "seed": recipe.seed}
        group = convert({**row, "recipe": plain}, cls)
        if row.get("item_id") != recipe.task:
            raise ValueError(
                f"item_id must be its recipe's task, got {row.get('item_id')!r:.50}"
            )
        rollouts = [
            replace(
                rollout,
                conversation=raw["conversation"],
                other=_unknown(raw, StoredRollout),
            )
            for rollout, raw in zip(group.rollouts, row["rollouts"], strict=True)
        ]
        unknown_keys = _unknown(row, cls)
        unknown_keys.pop("item_id")
        return replace(
            group,
            recipe=recipe,
            rollouts=rollouts,
            scoring=row.get("scoring", {}),
            other=unknown_keys,
            file=file,
        )

    @classmethod
    def from_result(
        cls,
        group: GroupResult,
        prompt: Sequence[Mapping[str, str]],
        run: Mapping[str, Any],
    ) -> StoredGroup:
        """Record a fresh group; `run` has the keys with the same value in all rows of a run."""
        problem = group.problem
        fields = {
            key: value for key, value in run.items() if key in cls.__struct_fields__
        }
        unknown_keys = {
            key: value for key, value in run.items() if key not in cls.__struct_fields__
        }
        return cls(
            rollouts=[
                StoredRollout.from_attempt(attempt, prompt)
                for attempt in group.attempts
            ],
            recipe=problem.recipe,
            oracle=problem.oracle,
            fault=fault_of(problem),
            asked_again=problem.replayed,
            source=problem.source,
            chance=problem.constant_baseline,
            also_trained_on=problem.also_trained_on,
            other=unknown_keys,
            **fields,
        )

    @classmethod
    def of_run(
        cls,
        group: GroupResult,
        prompt: Sequence[Mapping[str, str]],
        identity: Mapping[str, Any],
        scoring: ScoringSettings,
    ) -> StoredGroup:
        """Record a fresh group of a run, with the time in UTC; `identity` is as `run` above."""
        run = {**identity, "scoring": scoring.to_json(), "time": utc_now()}
        return cls.from_result(group, prompt, run)

    def to_json(self) -> dict[str, Any]:
        """Return the stored row: the inverse of `from_json`, with our keys first."""
        row = asdict(self)
        del row["file"], row["other"]
        row["difficulty"] = row.pop("sampled_at")
        row["rollouts"] = [rollout.to_json() for rollout in self.rollouts]
        row["recipe"] = self.recipe.to_json()
        names = (
            "run",
            "library_versions",
            "number",
            "scoring",
            "time",
            "asked_again",
            "source",
            "also_trained_on",
        )
        for key in names:
            if not row[key]:
                del row[key]
        for key in ("step", "chance"):
            if row[key] is None:
                del row[key]
        set_values = {key: value for key, value in row.items() if value is not UNSET}
        return {"item_id": self.task, **set_values, **self.other}

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
        """The group's training signal; see `scoring.grading.signal`."""
        return signal(
            [Verdict(score=r.raw_score, status=r.status) for r in self.rollouts]
        )

    @property
    def item_key(self) -> str:
        """A key for the same item in two evaluations: its recipe and the user's messages."""
        conversation = self.rollouts[0].conversation
        user = [
            message["content"] for message in conversation if message["role"] == "user"
        ]
        return stable_json([self.recipe.identity(), user])

    @property
    def is_sample(self) -> bool:
        """Whether it is an evaluation sample: only those have a difficulty, possibly None."""
        return self.sampled_at is not UNSET

    @property
    def difficulty(self) -> float | None:
        """The evaluation's difficulty, in [0, 1]; None for the library's default configuration."""
        return None if isinstance(self.sampled_at, UnsetType) else self.sampled_at

    @property
    def is_faulty(self) -> bool:
        """Whether the item is known to be faulty."""
        return self.fault is not UNSET

    @property
    def solved_threshold(self) -> float | None:
        """The score from which its rollouts count as solved; None is each task's own."""
        return self.scoring.get("solved_threshold")

    @property
    def scoring_version(self) -> int:
        """The version of the rules that scored it; see `scoring.grading.SCORING_VERSION`."""
        return self.scoring.get("scoring_version", 1)

    @property
    def answer_format(self) -> AnswerFormat:
        """Where its completions have their answer; rows that don't say it have tags."""
        return self.scoring.get("answer_format", "tags")

    @property
    def library_version(self) -> str:
        """The version of reasoning-gym that made the problem, as far as the row tells."""
        version = self.recipe.library_version or self.library_versions.get(LIBRARY)
        return str(version or "an unknown version")


def fault_of(problem: Problem) -> dict[str, Any] | UnsetType:
    """Return the fault of a faulty item's rows; no other row has one."""
    return UNSET if problem.fault is None else problem.fault.to_json()


def _unknown(row: Mapping[str, Any], model: type[Struct]) -> dict[str, Any]:
    """Return the keys that a model doesn't know."""
    return {
        key: value
        for key, value in row.items()
        if key not in model.__struct_encode_fields__
    }


def stable_json(value: Any) -> str:
    """Return the same JSON for equal values."""
    return json.dumps(value, sort_keys=True)


def utc_now() -> str:
    """Return the time in UTC, ISO 8601."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
