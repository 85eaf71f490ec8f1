"""A learner without a model: per task, the chance to solve an item of a given level.

Items of a task follow a logistic psychometric curve over its ladder. Items of one level differ
among each other, so the rollouts of a group are more alike than independent ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from ..records import Recipe

STEPS = (1.5, 3.0)
"""Range of the log-odds between neighbouring levels of a ladder of up to four; a taller one
spans as much as one of four."""

ABILITIES = (-0.15, 1.15)
"""Range of abilities: some tasks are too hard at the bottom, some too easy at the top."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill:
    """What a learner can do in one task.

    Attributes:
        ability: the difficulty, from 0 at the easiest level to 1 at the hardest, at which half
            of the items are solved; it may lie outside.
        span: log-odds from the easiest level to the hardest.
        default: the difficulty of the library's default configuration.
    """

    ability: float
    span: float
    default: float


def broad_skills(heights: Mapping[str, int], seed: int, *, width: float = 1.0) -> dict[str, Skill]:
    """Skills spread over the whole ladder of each task, and a little beyond.

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
        seed: decides how hard each item is.
        item_spread: standard deviation of the items' log-odds around their level's.
        gain: what a group with signal adds to the ability in its task.
        loss: what a group of any other task takes from what was gained in this one.
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
        """The chance to solve this very item, on a ladder of `height` levels."""
        item = random.Random(f"{self._seed}/{recipe.task}/{recipe.seed}").gauss(0, 1)
        log_odds = self._log_odds(recipe.task, recipe.level, height)
        return _logistic(log_odds + self._item_spread * item)

    def solved_share(self, task: str, level: int | None, height: int) -> float:
        """The mean chance over the items of a level (probit approximation, within 0.01)."""
        shrink = math.sqrt(1 + math.pi * self._item_spread**2 / 8)
        return _logistic(self._log_odds(task, level, height) / shrink)

    def after_group(self, task: str, *, mixed: bool) -> None:
        """Learn from a group with signal; forget a little of all other tasks."""
        for other, gained in self._gained.items():
            if other != task:
                self._gained[other] = max(0.0, gained - self._loss)
        self._gained[task] += self._gain * mixed

    def improve(self, ability: float) -> None:
        """Get better at once, in all tasks."""
        self._gained = {task: gained + ability for task, gained in self._gained.items()}


def _logistic(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))
