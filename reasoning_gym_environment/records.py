"""The values that travel from the registry to the trainer's batch.

A group can be followed through the code by these names alone:
recipe -> problem -> completions -> attempts -> group result.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

ATROPOS_SOLVED_SCORE = 0.5
"""The verifier score from which upstream's rules count an answer as correct."""

IGNORE_INDEX = -100
"""Mask of a token that is not trained on; counting this very object is fastest."""

Ladder = tuple[Mapping[str, Any], ...]
"""A task's levels, easiest first, each as dataset parameters."""


class Status(str, Enum):
    """The outcome of one completion's answer; every rollout has exactly one."""

    SOLVED = "solved"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    SEVERAL_ANSWERS = "several_answers"
    REJECTED = "rejected"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    VERIFIER_ERROR = "verifier_error"
    UNSCORED = "unscored"


FORMAT_FAILURES = frozenset({Status.NO_ANSWER, Status.SEVERAL_ANSWERS})
"""The statuses of completions that broke the answer format."""


class Signal(str, Enum):
    """The training signal of a group, by which of its scored rollouts are solved."""

    MIXED = "mixed"
    ALL_SOLVED = "all_solved"
    NONE_SOLVED = "none_solved"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Everything that determines a problem, for one version of the library.

    Attributes:
        task: name in reasoning-gym's registry.
        seed: in [0, 2**53); the lowest bit says whether it was drawn for training (0) or for
            evaluation (1).
        level: difficulty level the parameters came from; None is the library's default.
        parameters: dataset configuration that differs from the library's default.
        library_version: version of reasoning-gym that made its problem; None if none is known.
            Equal recipes may have different ones.
    """

    task: str
    seed: int
    level: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    library_version: str | None = field(default=None, compare=False)

    @property
    def is_evaluation(self) -> bool:
        """Whether it was drawn for an evaluation."""
        return self.seed % 2 == 1

    @property
    def is_default(self) -> bool:
        """Whether it is of the task's default configuration, where floors are measured."""
        return self.level is None and not self.parameters

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, the inverse of `from_json`; without `library_version` if None."""
        data = self.identity()
        if self.library_version is not None:
            data["library_version"] = self.library_version
        return data

    def identity(self) -> dict[str, Any]:
        """Return plain JSON that is equal for equal recipes."""
        return {
            "task": self.task,
            "seed": self.seed,
            "level": self.level,
            "parameters": deepcopy(dict(self.parameters)),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Recipe:
        """Return a recipe from `to_json`; raises TypeError on a missing or unknown key."""
        return cls(**data)


def recipe_key(recipe: Recipe) -> str:
    """Return a text that is equal for equal recipes: their JSON without the library's version."""
    return json.dumps(recipe.identity(), sort_keys=True)


def recipe_text(recipe: Recipe) -> str:
    """Return a recipe's JSON with sorted keys, to store it as text."""
    return json.dumps(recipe.to_json(), sort_keys=True)


class FaultKind(str, Enum):
    """What is wrong with an item."""

    FALSE_LABEL = "false_label"
    UNANSWERABLE = "unanswerable"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of an item; an ambiguous one is left out of evaluation alone."""

    kind: FaultKind
    detail: str

    def to_json(self) -> dict[str, str]:
        """Return plain JSON."""
        return {"kind": self.kind.value, "detail": self.detail}


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """The problem generated from a recipe.

    Attributes:
        question: the text for the model.
        oracle: the task's own answer; None if several answers are right.
        entry: the library's entry, pickled by its generator because JSON would break the
            entries of two tasks. Only worker processes unpickle it.
        fault: what is known to be wrong with the item.
        replayed: whether its run asked it before.
        source: the user's module that has its task; empty for the library's.
        constant_baseline: what the best constant solves of such a task, if its proof says so.
        also_trained_on: whether training asks the questions of this evaluation item's level too.
    """

    recipe: Recipe
    question: str
    oracle: str | None
    entry: bytes
    fault: Fault | None = None
    replayed: bool = False
    source: str = ""
    constant_baseline: float | None = None
    also_trained_on: bool = False

    def __repr__(self) -> str:
        """Return its recipe and the beginning of its question; the entry would be unreadable."""
        question = textwrap.shorten(self.question, 100, placeholder=" …")
        return f"Problem(recipe={self.recipe!r}, question={question!r})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One sampled completion with its token-level training data.

    Tokens and logprobs from a server are arrays: tuples take five times the memory, and the
    garbage collector visits each of them.

    Attributes:
        text: the completion without the prompt, reasoning included.
        tokens: prompt and completion token ids.
        masks: as long as `tokens`; IGNORE_INDEX on the prompt, the token id elsewhere.
        logprobs: as long as `tokens`, 1.0 on the prompt; None if the server returns none.
        finish_reason: "stop" if the model has ended it, else why it is not complete, such as
            "length".
        server_finish_reason: the server's own word for it; None if it gave none.
        usage: numbers of tokens of prompt and completion, where `tokens` is empty.
        length: number of tokens with the prompt; 0 only if there is no completion.
        completion_tokens: number of tokens without the prompt.
    """

    text: str
    tokens: Sequence[int]
    masks: Sequence[int]
    logprobs: Sequence[float] | None
    finish_reason: str
    server_finish_reason: str | None = None
    usage: tuple[int, int] | None = None
    length: int = field(init=False)
    completion_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        prompt_tokens = self.masks.count(IGNORE_INDEX)
        prompt_tokens, own_tokens = self.usage or (
            prompt_tokens,
            len(self.masks) - prompt_tokens,
        )
        object.__setattr__(self, "length", prompt_tokens + own_tokens)  # frozen
        object.__setattr__(self, "completion_tokens", own_tokens)

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"

    @property
    def complete(self) -> bool:
        """Whether the model has ended it: not the limit, nor the server for its own reasons."""
        return self.finish_reason == "stop"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The verifier's result for one answer.

    Attributes:
        score: in [0, 1], or in the bounds of a contained function; None with status UNSCORED.
        detail: an explanation for people; may be empty.
        seconds: time spent in the verifier.
        form_score: of a right answer in the verifier's notation; None for one that is written so.
        raw_score, tagged_score: of the bare answer and of `<answer>answer</answer>`;
            None for a form that was not tried or not finished.
        errors: for how many of the two forms the verifier raised.
    """

    score: float | None
    status: Status
    detail: str = ""
    seconds: float = 0.0
    form_score: float | None = None
    raw_score: float | None = None
    tagged_score: float | None = None
    errors: int = 0

    @property
    def credit(self) -> float | None:
        """What the answer earns: the verifier's score, however a right answer is written."""
        return self.score if self.form_score is None else self.form_score


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """The score of one completion, for a trainer: in Python, and as JSON over HTTP.

    Attributes:
        score: in [0, 1], of the better of the bare and the tagged answer, however a right answer
            is written, or in the bounds of a contained function. None if scoring failed on our
            side: leave the completion out, do not count it as 0.
        status: what happened; solved means that the answer is right.
        answer: what was extracted, by default the text between the answer tags; None unless there
            is exactly one.
        detail: an explanation for people; may be empty.
        seconds: time spent in the verifier.
    """

    score: float | None
    status: Status
    answer: str | None = None
    detail: str = ""
    seconds: float = 0.0

    @classmethod
    def of(cls, verdict: Verdict, answer: str | None = None) -> Score:
        """Return the score of a completion whose answer got this verdict."""
        return cls(
            score=verdict.credit,
            status=verdict.status,
            answer=answer,
            detail=verdict.detail,
            seconds=verdict.seconds,
        )

    @property
    def solved(self) -> bool:
        """Whether the status is solved."""
        return self.status is Status.SOLVED

    def to_json(self) -> dict[str, Any]:
        """Write plain JSON."""
        return {**asdict(self), "status": self.status.value}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reward:
    """The reward for the trainer, and how it was computed.

    Attributes:
        value: in [0, 1], sent to the trainer.
        length_factor: in [0, 1], the factor of the length penalty.
    """

    value: float
    length_factor: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A completion with its extracted answer, verdict and reward."""

    completion: Completion
    answer: str | None
    verdict: Verdict
    reward: Reward


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupResult:
    """All attempts at one problem, in the order of the completions."""

    problem: Problem
    attempts: tuple[Attempt, ...]

    @property
    def rewards(self) -> tuple[float, ...]:
        return tuple(attempt.reward.value for attempt in self.attempts)

    @property
    def scored(self) -> tuple[Attempt, ...]:
        """The attempts that the verifier scored."""
        return tuple(
            a for a in self.attempts if a.verdict.status is not Status.UNSCORED
        )

    @property
    def solved(self) -> int:
        """The number of solved attempts."""
        return sum(a.verdict.status is Status.SOLVED for a in self.attempts)

    def with_rewards(self, values: Sequence[float]) -> GroupResult:
        """Return the group with other rewards for the trainer, one for each attempt.

        Its verdicts stay, and with them what metrics and curriculum count as solved.
        """
        pairs = zip(self.attempts, values, strict=True)
        rewarded = (
            replace(a, reward=replace(a.reward, value=float(v))) for a, v in pairs
        )
        return replace(self, attempts=tuple(rewarded))
