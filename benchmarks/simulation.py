"""Runs of the real sampler against simulated learners, without servers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reasoning_gym_environment.core.difficulty import Ladder
from reasoning_gym_environment.core.levels import Levels
from reasoning_gym_environment.core.sampling import Sampler
from reasoning_gym_environment.demo.learner import Learner, broad_skills

GROUP_SIZE = 8
GROUPS_PER_TASK = 60

Rule = Callable[[Mapping[str, Ladder], Learner], Levels]
"""Makes the rule of one run; only the oracle looks at the learner."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What a run is like.

    Attributes:
        learner: "fixed", "rising" (skills that rise with training and fall without), or
            "jump" (after half the run all skills rise by half of every ladder).
        in_flight: groups drawn whose results are not back; they come back in any order.
        width, item_spread: see `broad_skills` and `Learner`.
    """

    learner: str = "fixed"
    in_flight: int = 0
    by_signal: bool = False
    width: float = 1.0
    item_spread: float = 0.5
    groups_per_task: int = GROUPS_PER_TASK


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """A finished group.

    Attributes:
        number: how many groups of its task finished before.
        off: how far the task's solved share was from the target when the group had been
            recorded; None where the target lies outside the task's ladder.
    """

    task: str
    number: int
    level: int | None
    solved: int
    expected: float
    off: float | None

    @property
    def mixed(self) -> bool:
        return 0 < self.solved < GROUP_SIZE


def new_learner(setting: Setting, heights: Mapping[str, int], seed: int) -> Learner:
    gain = 0.01 if setting.learner == "rising" else 0.0
    return Learner(
        broad_skills(heights, seed, width=setting.width),
        seed=seed,
        item_spread=setting.item_spread,
        gain=gain,
        loss=gain / (2 * len(heights)),
    )


def simulate(
    rule: Rule, setting: Setting, heights: Mapping[str, int], seed: int, target: float = 0.7
) -> list[Group]:
    """All groups of one run, in the order they finished."""
    ladders: dict[str, Ladder] = {task: ({},) * height for task, height in heights.items()}
    learner = new_learner(setting, heights, seed)
    levels = rule(ladders, learner)
    weights = dict.fromkeys(heights, 1.0)
    sampler = Sampler(
        weights, run_seed=seed, replica="0", levels=levels, by_signal=setting.by_signal
    )
    rng = random.Random(seed)
    flying = []
    groups: list[Group] = []
    numbers = dict.fromkeys(heights, 0)
    total = setting.groups_per_task * len(heights)
    while len(groups) < total:
        while len(flying) <= setting.in_flight:
            flying.append(sampler.next_recipe())
        recipe = flying.pop(rng.randrange(len(flying)))
        if setting.learner == "jump" and len(groups) == total // 2:
            learner.improve(0.5)
        height = heights[recipe.task]
        chance = learner.solve_probability(recipe, height)
        solved = sum(rng.random() < chance for _ in range(GROUP_SIZE))
        sampler.record(recipe, solved=solved, scored=GROUP_SIZE)
        learner.after_group(recipe.task, mixed=0 < solved < GROUP_SIZE)
        expected = expected_share(levels, learner, recipe.task, height)
        inside = within(learner, recipe.task, height, target)
        groups.append(
            Group(
                task=recipe.task,
                number=numbers[recipe.task],
                level=recipe.level,
                solved=solved,
                expected=expected,
                off=abs(expected - target) if inside else None,
            )
        )
        numbers[recipe.task] += 1
    return groups


def within(learner: Learner, task: str, height: int, target: float) -> bool:
    """Whether the target lies between the ends of the task's ladder."""
    easiest = learner.solved_share(task, 0, height)
    hardest = learner.solved_share(task, height - 1, height)
    return easiest >= target >= hardest


def expected_share(levels: Levels, learner: Learner, task: str, height: int) -> float:
    """The solved share of what the task would be given now."""
    drawn = [levels.level(task, (k + 0.5) / 20) for k in range(20)]
    return sum(
        drawn.count(level) / 20 * learner.solved_share(task, level, height) for level in {*drawn}
    )
