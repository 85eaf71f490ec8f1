"""Policies that need no model: one that knows answers by chance, one that follows a script."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..records import Problem

_BROKEN_SHARE = 0.03
"""Of completions, for each way to break the format."""

_THOUGHTS = (
    "Let me read the question again.",
    "First I list what is given.",
    "That leaves two cases to check.",
    "The first case contradicts the second rule, so it is out.",
    "Now I carry the result over and count once more.",
    "This agrees with the example.",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One completion of a policy.

    Attributes:
        text: the whole completion, its thought included.
        finish_reason: "stop", or "length" for one that breaks off.
    """

    text: str
    finish_reason: str = "stop"


class Policy(Protocol):
    """Whatever answers questions."""

    def sample(self, question: str, n: int) -> list[Sample]:
        """`n` completions for one question."""


class ScriptedPolicy:
    """Gives the same texts in turn, whatever the question."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = tuple(texts)
        self._given = 0

    def sample(self, question: str, n: int) -> list[Sample]:
        turns = range(self._given, self._given + n)
        self._given += n
        return [Sample(text=self._texts[turn % len(self._texts)]) for turn in turns]


class SimulatedPolicy:
    """Answers right as often as it was taught to.

    It knows the answers it was taught with `learn`; to other questions, and where no single
    answer is the right one, it answers wrong. Some completions break the format. The k-th
    completion for a question depends on the seed, the question and k alone, so requests may
    come in any order.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._answers: dict[str, tuple[str, float]] = {}
        self._given: Counter[str] = Counter()

    def learn(self, problem: Problem, solve_probability: float) -> None:
        """Enter a problem into the answer book."""
        if problem.oracle is not None:
            self._answers[problem.question] = (problem.oracle, solve_probability)

    def sample(self, question: str, n: int) -> list[Sample]:
        turns = range(self._given[question], self._given[question] + n)
        self._given[question] += n
        return [self._sample_once(question, turn) for turn in turns]

    def _sample_once(self, question: str, turn: int) -> Sample:
        rng = random.Random(f"{self._seed}/{turn}/{question}")
        oracle, solve_probability = self._answers.get(question, (None, 0.0))
        right = rng.random() < solve_probability
        answer = oracle if right and oracle is not None else _wrong_answer(oracle, rng)
        return _write(answer, rng)


def _wrong_answer(oracle: str | None, rng: random.Random) -> str:
    guess = rng.randrange(1000)
    return str(guess if str(guess) != oracle else guess + 1)


def _write(answer: str, rng: random.Random) -> Sample:
    """The answer after a thought of some length, or one of the ways to break the format."""
    thought = " ".join(rng.choices(_THOUGHTS, k=rng.randint(1, 12)))
    opened = f"<think>{thought}"
    tagged = f"<answer>{answer}</answer>"
    way = rng.random() / _BROKEN_SHARE
    if way < 1:
        return Sample(text=opened, finish_reason="length")
    if way < 2:
        return Sample(text=f"{opened}</think>The answer is {answer}.")
    if way < 3:
        return Sample(text=f"{opened}</think>{tagged} or rather {tagged}")
    return Sample(text=f"{opened}</think>{tagged}")
