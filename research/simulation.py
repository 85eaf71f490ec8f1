"""Runs of the real sampler against simulated learners, without servers."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reasoning_gym_environment.demo.policy import Learner, spread_skills
from reasoning_gym_environment.problems.levels import LevelPolicy
from reasoning_gym_environment.problems.sampler import Sampler
from reasoning_gym_environment.records import Ladder, Recipe

GROUP_SIZE = 8

Rule = Callable[[Mapping[str, Ladder], Learner], LevelPolicy]
"""Makes the rule of one run; only the oracle looks at the learner."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What a run is like.

    Attributes:
        learner: "fixed", "rising" (skills that rise with training and fall without), or
            "jump" (after half the run all skills rise by half of every ladder).
        in_flight: groups drawn whose results are not back; they come back in any order.
        replicas: samplers that draw in turn; each learns from its own groups, and all train one
            learner.
        width, item_spread: see `spread_skills` and `Learner`.
    """

    learner: str = "fixed"
    in_flight: int = 0
    replicas: int = 1
    by_signal: bool = False
    width: float = 0.5
    item_spread: float = 3.0
    target: float = 0.7
    groups_per_task: int = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """A finished group, and where its task stood when it had been recorded.

    Attributes:
        number: how many groups of the task finished before.
        level: the mean level of what the task would be given next.
        share: the solved share expected there.
        inside: whether the task's ladder holds the target at all.
    """

    task: str
    number: int
    solved: int
    level: float
    share: float
    inside: bool

    @property
    def mixed(self) -> bool:
        return 0 < self.solved < GROUP_SIZE


def simulate(
    rule: Rule, setting: Setting, heights: Mapping[str, int], seed: int
) -> list[Group]:
    """Simulate one run: all its groups, in the order they finished."""
    ladders: dict[str, Ladder] = {
        task: ({},) * height for task, height in heights.items()
    }
    learner = _learner(setting, heights, seed)
    rules = [rule(ladders, learner) for _ in range(setting.replicas)]
    samplers = [
        Sampler(
            dict.fromkeys(heights, 1.0),
            run_seed=seed,
            replica=str(replica),
            levels=levels,
            by_signal=setting.by_signal,
        )
        for replica, levels in enumerate(rules)
    ]
    rng = random.Random(seed)
    numbers: Counter[str] = Counter()
    turns = itertools.cycle(range(setting.replicas))
    flying: list[tuple[int, Recipe]] = []
    groups: list[Group] = []
    total = setting.groups_per_task * len(heights)
    while len(groups) < total:
        while len(flying) <= setting.in_flight:
            replica = next(turns)
            flying.append((replica, samplers[replica].next_recipe()))
        replica, recipe = flying.pop(rng.randrange(len(flying)))
        if setting.learner == "jump" and len(groups) == total // 2:
            learner.improve(0.5)
        task, height = recipe.task, heights[recipe.task]
        chance = learner.solve_probability(recipe, height)
        solved = sum(rng.random() < chance for _ in range(GROUP_SIZE))
        samplers[replica].report_result(recipe, solved=solved, scored=GROUP_SIZE)
        learner.after_group(task, mixed=0 < solved < GROUP_SIZE)
        level, share = _standing(rules[replica], learner, task, height)
        inside = _within(learner, task, height, setting.target)
        number = numbers[task]
        numbers[task] += 1
        groups.append(
            Group(
                task=task,
                number=number,
                solved=solved,
                level=level,
                share=share,
                inside=inside,
            )
        )
    return groups


def _learner(setting: Setting, heights: Mapping[str, int], seed: int) -> Learner:
    """Make the learner of a setting.

    Rising skills gain a hundredth of the ladder from a group with signal, and lose as much while
    every other task is trained twice.
    """
    gain = 0.01 if setting.learner == "rising" else 0.0
    return Learner(
        spread_skills(heights, seed, width=setting.width),
        seed=seed,
        item_spread=setting.item_spread,
        gain=gain,
        loss=gain / (2 * len(heights)),
    )


def _within(learner: Learner, task: str, height: int, target: float) -> bool:
    easiest = learner.solved_share(task, 0, height)
    hardest = learner.solved_share(task, height - 1, height)
    return easiest >= target >= hardest


def _standing(
    levels: LevelPolicy, learner: Learner, task: str, height: int
) -> tuple[float, float]:
    """Work out the mean level, and the solved share, of what the rule would draw now."""
    drawn = Counter(levels.level(task, (k + 0.5) / 20) for k in range(20))
    level = sum((level or 0) * count for level, count in drawn.items()) / 20
    share = sum(
        count * learner.solved_share(task, level, height)
        for level, count in drawn.items()
    )
    return level, share / 20
