"""Policies and learners without a model.

A learner has, per task, the chance to solve an item of a level. Items of a task follow a logistic
psychometric curve over its ladder. Items of one level differ among each other, so the rollouts of a
group are more alike than independent ones.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..records import Problem, Recipe


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
    """A source of completions."""

    def sample(self, question: str, n: int) -> list[Sample]:
        """Return `n` completions of one question."""


class ScriptedPolicy:
    """A policy that cycles through the same texts for any question."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = tuple(texts)
        self._given = 0

    def sample(self, question: str, n: int) -> list[Sample]:
        turns = range(self._given, self._given + n)
        self._given += n
        return [Sample(text=self._texts[turn % len(self._texts)]) for turn in turns]


class SimulatedPolicy:
    """A policy that answers correctly with a given probability.

    It knows the answers from `learn` and answers all other questions wrong. Some completions break
    the format. The k-th completion of a question depends only on the seed, the question and k, so
    requests may come in any order.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._answers: dict[str, tuple[str, float]] = {}
        self._given: Counter[str] = Counter()

    def learn(self, problem: Problem, solve_probability: float) -> None:
        """Store the answer of a problem and the probability to give it."""
        if problem.oracle is not None:
            self._answers[problem.question] = (problem.oracle, solve_probability)

    def sample(self, question: str, n: int) -> list[Sample]:
        turns = range(self._given[question], self._given[question] + n)
        self._given[question] += n
        return [self._sample_once(question, turn) for turn in turns]

    def _sample_once(self, question: str, turn: int) -> Sample:
        rng = random.Random(f"{self._seed}/{turn}/{question}")
        oracle, solve_probability = self._answers.get(question, (None, 0.0))
        if rng.random() < solve_probability and oracle is not None:
            return _write(oracle, rng)
        guess = rng.randrange(1000)
        return _write(str(guess if str(guess) != oracle else guess + 1), rng)


def _write(answer: str, rng: random.Random) -> Sample:
    """Return the answer after a thought, or a completion that breaks the format."""
    thoughts = (
        "Let me read the question again.",
        "First I list what is given.",
        "That leaves two cases to check.",
        "The first case contradicts the second rule, so it is out.",
        "Now I carry the result over and count once more.",
        "This agrees with the example.",
    )
    thought = " ".join(rng.choices(thoughts, k=rng.randint(1, 12)))
    opened = f"<think>{thought}"
    tagged = f"<answer>{answer}</answer>"
    # The share of completions for each way to break the format.
    fault = rng.random() / 0.03
    if fault < 1:
        return Sample(text=opened, finish_reason="length")
    if fault < 2:
        return Sample(text=f"{opened}</think>The answer is {answer}.")
    if fault < 3:
        return Sample(text=f"{opened}</think>{tagged} or rather {tagged}")
    return Sample(text=f"{opened}</think>{tagged}")


STEPS = (1.5, 3.0)
"""Range of the log-odds between neighboring levels of a ladder of up to four; taller ladders span
as much as one of four."""

ABILITIES = (-0.15, 1.15)
"""Range of abilities: some tasks are too hard at the bottom, some too easy at the top."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill:
    """A learner's skill in one task.

    Attributes:
        ability: the difficulty, from 0 at the easiest level to 1 at the hardest, at which half
            of the items are solved; it may lie outside.
        span: log-odds from the easiest level to the hardest.
        default: the difficulty of the library's default configuration.
    """

    ability: float
    span: float
    default: float


def spread_skills(
    heights: Mapping[str, int], seed: int, *, width: float = 1.0
) -> dict[str, Skill]:
    """Return skills that cover the whole ladder of each task and a little beyond.

    Args:
        heights: task name to the number of its levels.
        width: multiplies STEPS.
    """
    skills = {}
    for task, height in heights.items():
        rng = random.Random(f"{seed}/{task}")
        steps = min(height, 4) - 1 or 3  # a single level stands for a ladder of four
        skills[task] = Skill(
            ability=rng.uniform(*ABILITIES),
            span=width * rng.uniform(*STEPS) * steps,
            default=rng.random(),
        )
    return skills


class Learner:
    """Skills that change with training.

    Args:
        skills: by task.
        seed: of the items' difficulties.
        item_spread: standard deviation of the items' log-odds around their level's.
        gain: ability that a group with signal adds in its task.
        loss: gained ability that a group of any other task takes away.
    """

    def __init__(
        self,
        skills: Mapping[str, Skill],
        *,
        seed: int,
        item_spread: float = 0.5,
        gain: float = 0.0,
        loss: float = 0.0,
    ) -> None:
        self._skills = dict(skills)
        self._seed = seed
        self._item_spread = item_spread
        self._gain = gain
        self._loss = loss
        self._gained = dict.fromkeys(skills, 0.0)

    def _log_odds(self, task: str, level: int | None, height: int) -> float:
        skill = self._skills[task]
        difficulty = skill.default
        if level is not None:
            difficulty = level / (height - 1) if height > 1 else 0.5
        return skill.span * (skill.ability + self._gained[task] - difficulty)

    def solve_probability(self, recipe: Recipe, height: int) -> float:
        """Return the chance to solve this item, on a ladder of `height` levels."""
        item = random.Random(f"{self._seed}/{recipe.task}/{recipe.seed}").gauss(0, 1)
        log_odds = self._log_odds(recipe.task, recipe.level, height)
        return _logistic(log_odds + self._item_spread * item)

    def solved_share(self, task: str, level: int | None, height: int) -> float:
        """Return the mean chance over the items of a level (probit approximation, within 0.01)."""
        shrink = math.sqrt(1 + math.pi * self._item_spread**2 / 8)
        return _logistic(self._log_odds(task, level, height) / shrink)

    def after_group(self, task: str, *, mixed: bool) -> None:
        """Gain ability from a group with signal; lose a little in all other tasks."""
        for other_task, gained in self._gained.items():
            if other_task != task:
                self._gained[other_task] = max(0.0, gained - self._loss)
        self._gained[task] += self._gain * mixed

    def improve(self, ability: float) -> None:
        """Add ability in all tasks."""
        self._gained = {task: gained + ability for task, gained in self._gained.items()}


def _logistic(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))
