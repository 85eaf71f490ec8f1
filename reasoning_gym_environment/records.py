"""The values that travel from the registry to the trainer's batch.

A group can be followed through the code by these names alone:
recipe -> problem -> completions -> attempts -> group result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

SOLVED_SCORE = 0.5
"""An answer is solved from this verifier score on."""

MASKED = -100
"""The mask of a token that is not trained on; this object is counted faster than an equal one."""

Ladder = tuple[Mapping[str, Any], ...]
"""A task's levels, easiest first, each as dataset parameters."""


class Status(str, Enum):
    """What became of one completion's answer; every rollout has exactly one."""

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
    """Whether a group teaches: which of its scored rollouts are solved."""

    MIXED = "mixed"
    ALL_SOLVED = "all_solved"
    NONE_SOLVED = "none_solved"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """All that determines a problem: same recipe, same library version, same problem.

    Attributes:
        task: name in reasoning-gym's registry.
        seed: in [0, 2**53); the lowest bit says training (0) or evaluation (1).
        level: difficulty level the parameters came from; None is the library's default.
        parameters: dataset configuration that differs from the library's default.
    """

    task: str
    seed: int
    level: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Write plain JSON, the inverse of `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Recipe:
        """Read what `to_json` wrote; raises TypeError on a missing or unknown key."""
        return cls(**data)


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A recipe made concrete.

    Attributes:
        question: the text the model is asked.
        oracle: the task's own answer; None where several answers are right.
        entry: the library's entry, pickled by the generator that made it. Only
            worker processes open it: JSON would break the entries of two tasks.
    """

    recipe: Recipe
    question: str
    oracle: str | None
    entry: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One sampled completion with its token-level training data.

    What a server gave as numbers is in arrays: tuples of them take five times the memory, and the
    garbage collector looks at each.

    Attributes:
        text: the completion alone, thought included.
        tokens: prompt and completion token ids.
        masks: as long as `tokens`; MASKED on the prompt, the token id elsewhere.
        logprobs: as long as `tokens`, 1.0 on the prompt; None where the server gives none.
        finish_reason: "stop", or "length" for a truncated completion.
        completion_tokens: how many tokens are the completion's own.
    """

    text: str
    tokens: Sequence[int]
    masks: Sequence[int]
    logprobs: Sequence[float] | None
    finish_reason: str
    completion_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        own = len(self.masks) - self.masks.count(MASKED)
        object.__setattr__(self, "completion_tokens", own)  # frozen

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What the verifier made of one answer.

    Attributes:
        score: in [0, 1]; None when nothing can be said (status UNSCORED).
        detail: what happened, for people; empty when there is nothing to add.
        seconds: time spent in the verifier.
        raw_score, tagged_score: of the bare answer and of `<answer>answer</answer>`;
            None for a form that was not tried or did not finish.
        errors: how many of the two forms made the verifier raise.
    """

    score: float | None
    status: Status
    detail: str = ""
    seconds: float = 0.0
    raw_score: float | None = None
    tagged_score: float | None = None
    errors: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Reward:
    """The score the trainer sees, and how it came about.

    Attributes:
        value: in [0, 1], what is sent.
        score: the verifier's score it began with; None when unscored.
        length_factor: in [0, 1], what the length penalty left of it.
    """

    value: float
    score: float | None
    length_factor: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A completion, the answer found in it, its verdict and its reward."""

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
        """The attempts about which the verifier could say something."""
        return tuple(a for a in self.attempts if a.verdict.status is not Status.UNSCORED)

    @property
    def solved(self) -> int:
        """How many attempts are solved."""
        return sum(a.verdict.status is Status.SOLVED for a in self.attempts)
