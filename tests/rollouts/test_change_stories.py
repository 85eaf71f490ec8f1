"""Invented runs with a fault, and healthy ones: what the package says of them."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from invented_run import graded, stored

from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.rollouts.changes import DriftCheck

GROUPS = 1200
ATTEMPTS = 8
FAULT = 601


@dataclass
class Policy:
    """How the policy answers one problem; a story changes it.

    Attributes:
        skill: the probability of a right answer.
        words: the mean number of tokens.
        silent: the probability of no answer.
        answer: what it answers whatever is asked, which the verifier pays by `skill`.
    """

    skill: float
    words: float
    level: int
    silent: float = 0.03
    answer: str | None = None


Story = Callable[[int, str, str, Policy], None]


def healthy(number: int, task: str, category: str, policy: Policy) -> None:
    """Change nothing."""


class Curriculum:
    """Raises the level of what is solved, and lowers that of what is not."""

    def __init__(self) -> None:
        self.level = 1
        self._recent: list[float] = []

    def learn(self, solved: float) -> None:
        self._recent = [*self._recent[-3:], solved]
        mean = sum(self._recent) / 4
        if len(self._recent) == 4 and (mean > 0.8 or (mean < 0.4 and self.level)):
            self.level += 1 if mean > 0.8 else -1
            self._recent = []


def told(
    story: Story, *, tasks: int, seed: int, curriculum: bool = False
) -> tuple[list[dict[str, Any]], list[int]]:
    """Run tasks t0, t1, … in five categories; return what is told, and the groups of t0."""
    rng = random.Random(seed)
    talents = [rng.uniform(0.3, 0.6) for _ in range(tasks)]
    levels = [Curriculum() for _ in range(tasks)]
    check = DriftCheck()
    own_numbers = []
    for number in range(1, GROUPS + 1):
        place = rng.randrange(tasks)
        if place == 0:
            own_numbers.append(number)
        task = f"t{place}"
        category = f"c{place % 5}"
        skill = talents[place] + 0.3 * number / GROUPS + rng.gauss(0, 0.15)
        level = levels[place].level if curriculum else 1
        policy = Policy(
            skill=min(0.97, max(0.01, skill + 0.25 - 0.25 * level)),
            words=400 * math.exp(rng.gauss(0, 0.2)),
            level=level,
        )
        story(number, task, category, policy)
        right = str(rng.randrange(1000))
        attempts = []
        for _ in range(ATTEMPTS):
            tokens = max(1, int(policy.words * rng.lognormvariate(0, 0.35)))
            solved = rng.random() < policy.skill
            answer: str | None = right if solved else str(rng.randrange(1000))
            answer = policy.answer or answer
            if rng.random() < policy.silent:
                solved = False
                answer = None
            attempts.append(graded("…", answer, float(solved), tokens=tokens))
        recipe = Recipe(task=task, seed=2 * number, level=policy.level)
        group = stored(recipe, attempts, right, number=number)
        check.add(group, category)
        levels[place].learn(group.solved / ATTEMPTS)
    return check.flags(), own_numbers


def collapse(number: int, task: str, category: str, policy: Policy) -> None:
    if number >= FAULT:
        policy.skill = 0.03


def one_task_fails(number: int, task: str, category: str, policy: Policy) -> None:
    if number >= FAULT and task == "t0":
        policy.skill = 0.02


def a_category_fails(number: int, task: str, category: str, policy: Policy) -> None:
    if number >= FAULT and category == "c0":
        policy.skill /= 10


def one_answer_to_all(number: int, task: str, category: str, policy: Policy) -> None:
    if number >= FAULT:
        policy.answer = "7"
        policy.skill = 0.05


def one_task_repeats_and_rises(
    number: int, task: str, category: str, policy: Policy
) -> None:
    if number >= FAULT and task == "t0":
        policy.answer = "7"
        policy.skill = 0.95
        policy.level = 1 + number // 100


def eight_times_as_long(number: int, task: str, category: str, policy: Policy) -> None:
    if number >= FAULT:
        policy.words *= 8


def without_tags(number: int, task: str, category: str, policy: Policy) -> None:
    if FAULT <= number < FAULT + 300 and task == "t0":
        policy.silent = 1.0


def hacked(number: int, task: str, category: str, policy: Policy) -> None:
    if task == "t0":
        policy.skill, policy.words = (1.0, 12) if number >= FAULT else (0.08, 260)


def a_bad_hour(number: int, task: str, category: str, policy: Policy) -> None:
    if 500 <= number < 650:
        policy.skill = 0.1


def harder_and_worse(number: int, task: str, category: str, policy: Policy) -> None:
    policy.level = 2 if number >= FAULT else 1
    policy.skill = 0.02 if number >= FAULT else 0.6


EVERYTHING, ONE_TASK, A_CATEGORY = (None, None), ("t0", None), (None, "c0")


@pytest.mark.parametrize("curriculum", [False, True])
@pytest.mark.parametrize(
    "tasks",
    [
        pytest.param(5, marks=pytest.mark.nightly),
        20,
        pytest.param(105, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize(
    ("story", "kind", "where", "since", "until"),
    [
        (collapse, "solved", EVERYTHING, FAULT, None),
        (one_task_fails, "solved", ONE_TASK, FAULT, None),
        (a_category_fails, "solved", A_CATEGORY, FAULT, None),
        (one_answer_to_all, "solved", EVERYTHING, FAULT, None),
        (one_task_repeats_and_rises, "repeats", ONE_TASK, FAULT, None),
        (eight_times_as_long, "longer", EVERYTHING, FAULT, None),
        (without_tags, "no_answer", ONE_TASK, FAULT, FAULT + 300),
        (hacked, "shorter", ONE_TASK, FAULT, None),
        (a_bad_hour, "solved", EVERYTHING, 500, 650),
        (harder_and_worse, "solved", EVERYTHING, FAULT, None),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_is_named_with_its_place(
    story: Story,
    kind: str,
    where: tuple[str | None, str | None],
    since: int,
    until: int | None,
    tasks: int,
    curriculum: bool,
) -> None:
    if story is one_task_fails and tasks == 105:
        pytest.skip("eleven groups of a task are too few to tell a share from noise")
    flags, own_numbers = told(story, tasks=tasks, seed=7, curriculum=curriculum)

    def is_near(number: int, expected: int) -> bool:
        """Within 3 % of the run, or two groups of the one task."""
        if abs(number - expected) <= 0.03 * GROUPS:
            return True
        between = range(min(number, expected), max(number, expected))
        return where == ONE_TASK and sum(own in between for own in own_numbers) <= 3

    if tasks == 5 and where == A_CATEGORY:
        where = ONE_TASK  # the category's only one
    [flag] = [
        flag
        for flag in flags
        if kind in flag["kinds"] and (flag["task"], flag["category"]) == where
    ]
    assert is_near(flag["since"], since)
    if until is None:
        assert flag["until"] is None
    elif where != ONE_TASK or tasks < 105:  # three groups can't tell that it is over
        assert is_near(flag["until"], until)


@pytest.mark.nightly
def test_twenty_healthy_runs_have_at_most_one_change() -> None:
    found = [
        flag["text"]
        for seed in range(20)
        for flag in told(
            healthy, tasks=(5, 20, 105)[seed % 3], seed=seed, curriculum=seed % 2 == 1
        )[0]
    ]
    assert len(found) <= 1, found


def a_third_less(number: int, task: str, category: str, policy: Policy) -> None:
    if number >= FAULT:
        policy.skill *= 0.65


def test_a_fall_of_a_policy_that_learns_before_and_after_it_is_named() -> None:
    flags, _ = told(a_third_less, tasks=20, seed=31)
    [flag] = flags
    assert (flag["kind"], flag["task"], flag["category"]) == ("solved", *EVERYTHING)
    assert abs(flag["since"] - FAULT) <= 0.03 * GROUPS


def two_faults(number: int, task: str, category: str, policy: Policy) -> None:
    if task == "t0" and number >= 300:
        policy.skill, policy.words = 1.0, 12
    if category == "c1" and number >= 900:
        policy.silent = 0.9


def test_two_groups_of_a_sick_category_in_a_row_are_no_change_of_all_tasks() -> None:
    flags, _ = told(two_faults, tasks=20, seed=31)
    assert {(flag["task"], flag["category"]) for flag in flags} == {
        ONE_TASK,
        (None, "c1"),
    }
